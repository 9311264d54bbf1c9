//! The outcome of a scenario, as numbers and as a line of text.

use super::Life;
use crate::scenario::op::Kind;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub life: Option<Life>,
    pub operations: BTreeMap<Kind, usize>,
    pub refused: usize,
    pub queues: usize,
    pub pids_reused: usize,
    pub comparisons: usize,
    pub lost: u64,
    /// Differences that the tracer found in the driver's lists and corrected.
    pub mended: f64,
    /// Rows of queues marked as resynced, over all comparisons.
    pub resynced: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Life { seed, drops, .. }) = self.life {
            write!(f, "seed {seed}{}: ", if drops { " (with drops)" } else { "" })?;
        }
        let kinds = self.operations.iter().map(|(kind, count)| format!("{} {count}", kind.name()));
        write!(
            f,
            "{} operations ({}), {} refused, {} queues created, {} PIDs reused, {} records lost, {} set right by the \
             tracer, {} comparisons, 0 differences",
            self.operations.values().sum::<usize>(),
            kinds.collect::<Vec<_>>().join(", "),
            self.refused,
            self.queues,
            self.pids_reused,
            self.lost,
            self.mended,
            self.comparisons,
        )
    }
}
