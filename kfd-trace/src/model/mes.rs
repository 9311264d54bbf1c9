//! Requests to the firmware scheduler MES.

use super::runlist::Reason;
use serde::{Deserialize, Serialize};

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MesOp {
    /// Run the queue.
    Add,
    /// Stop it, and save its state.
    Remove,
}

impl MesOp {
    /// Both.
    pub const ALL: [MesOp; 2] = [MesOp::Add, MesOp::Remove];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MesOp::Add => "add",
            MesOp::Remove => "remove",
        }
    }
}

/// One request, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MesQueue {
    pub queue_id: u32,
    pub gpu_id: Option<u32>,
    pub op: MesOp,
    /// `None` where the calling function is not known.
    pub reason: Option<Reason>,
    /// Time inside the driver function that makes the request and waits for the firmware, nanoseconds.
    pub latency_ns: u64,
    /// Positive errno, 0 for success.
    pub errno: i32,
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub(crate) fn mes_queue() -> MesQueue {
        MesQueue {
            queue_id: 3,
            gpu_id: Some(58270),
            op: MesOp::Add,
            reason: Some(Reason::Create),
            latency_ns: 85_000,
            errno: 0,
        }
    }
}
