//! A line of a replay, or of a daemon's history, that belongs to no process: what came before it is not known to be all.

use super::driver::Unowned;
use crate::state::Gap;
use crate::text::clock::{Clock, span};
use crate::text::count::{counted, verb};
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
    /// How long before this the last thing known was. `null` where that is not known.
    gap_ns: Option<u64>,
}

/// The object of one line, see [`gap`].
pub(crate) fn line(gap: Gap, mono_ns: u64, clock: &Clock) -> impl Serialize + use<> {
    let unowned = Unowned::new("recording_gap", mono_ns, clock);
    GapLine { unowned, lost_changes: gap.lost_changes, gap_ns: gap.lasted_ns }
}

/// Writes one line. `mono_ns`: when it was recorded again.
///
/// # Errors
/// Those of `out`.
pub fn gap(out: &mut impl Write, mono_ns: u64, clock: &Clock, gap: Gap) -> io::Result<()> {
    escape::json(&mut *out, &line(gap, mono_ns, clock))?;
    writeln!(out)
}

/// The same for people.
#[must_use]
pub(super) fn text(gap: Gap) -> String {
    format!("recording gap: {}; what exists follows", brief(gap))
}

/// What is missing.
#[must_use]
pub(crate) fn brief(gap: Gap) -> String {
    match (gap.lost_changes, gap.lasted_ns) {
        (Some(lost), _) => {
            format!("{} before this {} lost", counted(lost, "change", "changes"), verb(&lost, "was", "were"))
        }
        (None, Some(lasted_ns)) => format!("nothing is known of {} before this", span(lasted_ns)),
        (None, None) => "nothing is known of the time before this".to_owned(),
    }
}
