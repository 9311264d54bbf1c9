//! Values of options: a text in, a value or one line about the mistake out.

use bytesize::ByteSize;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::SignedDuration;
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::RING_BYTES;
use std::time::Duration;

pub(super) fn kinds() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.iter().map(|kind| kind.name())).try_map(|name| {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or("no such kind of event")
    })
}

pub(super) fn probes() -> impl TypedValueParser<Value = ProbeId> {
    PossibleValuesParser::new(ProbeId::ALL.iter().map(|probe| probe.name())).try_map(|name| {
        ProbeId::ALL.iter().copied().find(|probe| probe.name() == name).ok_or("no such probe")
    })
}

/// Ten years: more would end beyond what clocks can tell.
const LONGEST: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match span(text)? {
        Duration::ZERO => Err("must be more than 0; try 10s or 1m30s".to_owned()),
        span => Ok(span),
    }
}

pub(super) fn span(text: &str) -> Result<Duration, String> {
    let no_time = |_| match text.parse::<f64>() {
        Ok(_) => format!("{text} what? try {text}s"),
        Err(_) => "is no time; try 10s or 1m30s".to_owned(),
    };
    let parsed: SignedDuration = text.parse().map_err(no_time)?;
    match Duration::try_from(parsed) {
        Ok(span) if span > LONGEST => Err("must be at most ten years; try 10s or 1m30s".to_owned()),
        Ok(span) => Ok(span),
        Err(_) => Err("must not be less than 0; try 10s or 1m30s".to_owned()),
    }
}

/// Seconds, as curl has them, or a time with its unit.
pub(super) fn max_time(text: &str) -> Result<Duration, String> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    duration(if has_unit { text.to_owned() } else { format!("{text}s") }.as_str())
        .map_err(|_| "must be seconds, more than 0; try 10 or 0.5".to_owned())
}

/// More often nobody can read it.
const SHORTEST_SCREEN: Duration = Duration::from_millis(100);

pub(super) fn screen(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    if span < SHORTEST_SCREEN { Err("must be 100ms or more".to_owned()) } else { Ok(span) }
}

/// Below it the interval would be that of the clock's ticks.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(10);

pub(super) fn sample(text: &str) -> Result<Duration, String> {
    // 0 has no unit.
    match span(if text == "0" { "0s" } else { text })? {
        span if span.is_zero() || span >= SHORTEST_SAMPLE => Ok(span),
        _ => Err("must be 10ms or more, or 0 for never".to_owned()),
    }
}

/// Less has no room for a state and what comes after it.
const SMALLEST_RECORDING: u64 = 16 << 10;

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}; try 256MiB"))?;
    match size.as_u64() {
        bytes if bytes < SMALLEST_RECORDING => Err("must be 16KiB or more".to_owned()),
        bytes => Ok(bytes),
    }
}

pub(super) fn buffer_size(text: &str) -> Result<u32, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}; try 4MiB"))?;
    u32::try_from(size.as_u64())
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 30).contains(bytes))
        .ok_or_else(|| {
            format!("must be a power of two from 4KiB to 1GiB; try {}", ByteSize(u64::from(RING_BYTES)))
        })
}
