//! Memory limits of the state.

use serde::{Deserialize, Serialize};

/// Bounds of [`super::State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLimits {
    /// Rows of processes, ended ones included. Above the limit, the row that was silent the longest is
    /// dropped.
    pub processes: usize,
    /// Rows of ended processes.
    pub ended_processes: usize,
    /// How long an ended process is kept, nanoseconds.
    pub linger_ns: u64,
    /// Ended queues kept per process: a failed destroy revives one of them.
    pub ended_queues: usize,
}

impl StateLimits {
    /// No more rows than a tracer of this program keeps: those of a recording are whatever its author wrote.
    #[must_use]
    pub fn clamped(self) -> Self {
        let most = Self::default();
        StateLimits {
            processes: self.processes.min(most.processes),
            ended_processes: self.ended_processes.min(most.ended_processes),
            linger_ns: self.linger_ns,
            ended_queues: self.ended_queues.min(most.ended_queues),
        }
    }
}

impl Default for StateLimits {
    /// Twice what the BPF side tracks at once; ended processes are kept for five minutes, so that a scrape
    /// every minute sees each.
    fn default() -> Self {
        Self { processes: 16_384, ended_processes: 1_024, linger_ns: 300_000_000_000, ended_queues: 32 }
    }
}
