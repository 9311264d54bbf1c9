//! Selects the processes and queues that have series of their own.

use crate::state::Process;
use std::time::Duration;

/// The requested detail. Both numbers are limits, since neither PIDs nor queues are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// `--metrics.max-processes`; `None` with `--no-metrics.per-process`.
    pub processes: Option<usize>,
    /// `--metrics.max-new-processes`: how many new ones an hour.
    pub new_processes: u64,
    /// `--metrics.max-queues`; `None` without `--metrics.per-queue`.
    pub queues: Option<usize>,
    /// `--metrics.linger`.
    pub linger: Duration,
}

impl Detail {
    /// [`Detail::linger`] in nanoseconds.
    #[must_use]
    pub fn linger_ns(&self) -> u64 {
        u64::try_from(self.linger.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the process is alive, or ended so recently that its counters are still shown.
    pub(super) fn shows(&self, process: &Process, now_ns: u64) -> bool {
        process.released_ns.is_none_or(|ended| now_ns.saturating_sub(ended) < self.linger_ns())
    }
}
