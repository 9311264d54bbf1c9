//! What one event changed in the state.

use super::process::ProcessKey;
use super::queue::Queue;
use super::totals::Anomaly;

/// What one event changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The row it was about.
    pub process: Option<ProcessKey>,
    /// The queues that it ended, each with its cause.
    pub ended: Vec<Queue>,
    /// The process that it ended, which may be another one: of a reused PID, or one whose row was needed.
    pub released: Option<ProcessKey>,
    /// Of an event that ends a condition, how long it lasted: an eviction, a reset. `None` where its begin was not seen.
    pub lasted_ns: Option<u64>,
    /// Of what happens to a whole GPU: tgids of the processes that have queues on it.
    pub hit: Vec<u32>,
    pub anomalies: Vec<Anomaly>,
}
