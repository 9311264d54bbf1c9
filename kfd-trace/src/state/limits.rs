//! How much is remembered.

/// Bounds of [`super::State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLimits {
    /// Rows of processes, ended ones included. Above it the one that was silent for longest goes.
    pub processes: usize,
    /// Rows of processes that ended.
    pub ended_processes: usize,
    /// How long an ended process is remembered, nanoseconds.
    pub linger_ns: u64,
    /// Ended queues remembered per process: a failed destroy revives one of them.
    pub ended_queues: usize,
}

impl Default for StateLimits {
    /// Twice what the BPF side follows at once; ended processes for five minutes, so that a scrape every
    /// minute sees each.
    fn default() -> Self {
        Self { processes: 16_384, ended_processes: 1_024, linger_ns: 300_000_000_000, ended_queues: 32 }
    }
}
