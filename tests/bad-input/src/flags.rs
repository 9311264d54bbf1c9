//! The command line.

use crate::allocation::{Bound, within};
use kfd_trace::cli::{Cli, Command, TracingOptions};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

/// clap rebuilds its description of all commands for each line.
const BOUND: Bound = Bound { a_byte: 100, always: 512 << 10 };

/// Parses arguments that are separated by newlines. Returns whether they were accepted.
///
/// # Panics
/// When a guarantee was violated, or a value was accepted that no command can use.
#[must_use]
pub fn read(text: &[u8]) -> bool {
    let arguments = text.split(|byte| *byte == b'\n').map(|part| OsString::from_vec(part.to_vec()));
    let line: Vec<OsString> = std::iter::once("kfd-trace".into()).chain(arguments).collect();
    within("flags", text.len(), BOUND, || match Cli::from_arguments(line) {
        Ok(cli) => {
            usable(&cli);
            true
        }
        Err(error) => {
            assert!([0, 2].contains(&error.exit_code()), "{error}");
            assert!(!error.to_string().is_empty());
            false
        }
    })
}

fn usable(cli: &Cli) {
    let trace = &cli.trace;
    assert!(trace.pids.iter().all(|pid| i32::try_from(*pid).is_ok_and(|pid| pid > 0)), "{:?}", trace.pids);
    if let Some(duration) = trace.duration {
        assert!(!duration.is_zero());
        assert!(
            std::time::Instant::now().checked_add(duration).is_some(),
            "no clock has an end after {duration:?}"
        );
        assert!(duration < Duration::from_secs(20 * 365 * 86_400), "{duration:?}");
    }
    ring(&trace.ring);
    if let Some(Command::Daemon(daemon)) = &cli.command {
        assert!(!daemon.listen.is_empty());
        ring(&daemon.ring);
    }
}

fn ring(ring: &TracingOptions) {
    let size = ring.probes.buffer_size;
    assert!(size.is_power_of_two() && (4096..=1 << 30).contains(&size), "a ring buffer of {size}");
}
