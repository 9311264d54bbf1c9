//! A line of a replay that belongs to no process: what came before it is not known to be all.

use super::driver::Unowned;
use crate::text::clock::Clock;
use crate::text::escape;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct GapLine {
    #[serde(flatten)]
    unowned: Unowned,
    /// Changes of the tracer's state that are missing: events, and what it read. `null` where they were not counted.
    lost_changes: Option<u64>,
}

/// Writes one line. `mono_ns`: when it was recorded again; `lost`: changes that are missing, if they were counted.
///
/// # Errors
/// Those of `out`.
pub fn gap(out: &mut impl Write, mono_ns: u64, clock: &Clock, lost: Option<u64>) -> io::Result<()> {
    let line = GapLine { unowned: Unowned::new("recording_gap", mono_ns, clock), lost_changes: lost };
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
