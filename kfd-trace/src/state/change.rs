//! What one event changed in the state.

use super::process::ProcessKey;
use super::queue::Queue;
use super::totals::Anomaly;

/// What one event changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The row that the event is about.
    pub process: Option<ProcessKey>,
    /// The queues that the event ended, each with its cause.
    pub ended: Vec<Queue>,
    /// The process that the event ended. May be another process: the previous owner of a reused PID, or one
    /// dropped to free its row.
    pub released: Option<ProcessKey>,
    /// For an event that ends a condition (eviction, reset): how long it lasted. `None` if its begin was not
    /// seen.
    pub lasted_ns: Option<u64>,
    /// For an update that changed the priority of its queue: the one before.
    pub priority_before: Option<u32>,
    /// For a GPU-wide event: tgids of the processes that have queues on the GPU; for a preemption or a runlist the
    /// others that have active ones.
    pub hit: Vec<u32>,
    pub anomalies: Vec<Anomaly>,
}
