//! A line of a replay that belongs to no process: what came before it is not known to be all.

use super::json::SCHEMA;
use crate::text::clock::Clock;
use crate::text::escape;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct GapLine {
    schema: u32,
    /// Wall clock, RFC 3339 in UTC.
    ts: Option<String>,
    mono_ns: u64,
    event: &'static str,
    pid: Option<u32>,
    tid: Option<u32>,
    task_pid: Option<u32>,
    comm: Option<&'static str>,
    kfd_process: Option<&'static str>,
    /// Changes of the tracer's state that are missing: events, and what it read. `null` where they were not counted.
    lost_changes: Option<u64>,
}

/// Writes one line. `mono_ns`: when it was recorded again; `lost`: changes that are missing, if they were counted.
///
/// # Errors
/// Those of `out`.
pub fn gap(out: &mut impl Write, mono_ns: u64, clock: &Clock, lost: Option<u64>) -> io::Result<()> {
    let line = GapLine {
        schema: SCHEMA,
        ts: clock.rfc3339(mono_ns),
        mono_ns,
        event: "recording_gap",
        pid: None,
        tid: None,
        task_pid: None,
        comm: None,
        kfd_process: None,
        lost_changes: lost,
    };
    escape::json(&mut *out, &line)?;
    writeln!(out)
}

/// The same for people.
#[must_use]
pub(super) fn text(lost: Option<u64>) -> String {
    match lost {
        Some(lost) => format!("recording gap: {lost} changes before this were lost; what exists follows"),
        None => "recording gap: nothing is known of the time before this; what exists follows".to_owned(),
    }
}
