//! What is requested of the stream.

use super::selection::Selection;
use super::targets::Targets;
use super::whose::Whose;
use crate::kernel::Roots;
use crate::probes::plan::Choice;
use kfd_trace_common::kind::Kind;
use std::collections::BTreeSet;
use std::time::Duration;

/// What is requested of the stream.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    pub roots: Roots,
    /// As the user gave them: processes or threads.
    pub pids: Vec<u32>,
    /// Whose lines are printed.
    pub whose: Whose,
    /// Empty for all kinds that need not be requested.
    pub kinds: BTreeSet<Kind>,
    pub json: bool,
    pub colour: bool,
    /// No event is printed.
    pub summary_only: bool,
    pub duration: Option<Duration>,
    pub ring_bytes: u32,
    /// Interval between samples of queues; zero for none.
    pub sample: Duration,
    pub choice: Choice,
}

impl StreamOptions {
    pub(super) fn selection(&self, targets: &Targets) -> Selection<'_> {
        Selection {
            kinds: &self.kinds,
            on_request: self.choice.runlists,
            processes: targets.are_some(),
            whose: &self.whose,
        }
    }
}
