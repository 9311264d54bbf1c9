//! Queues that a debugger suspends and resumes.

use serde::{Deserialize, Serialize};

/// One suspend or resume, of queues of one process; who did it is in the event's `task_tgid`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    pub queues: Queues,
    /// How many the driver says that it suspended or resumed: those that already were as requested count, too.
    pub count: Option<u32>,
    /// What the debugger passed, for a suspend.
    pub grace_period: Option<u32>,
    pub errno: i32,
    pub latency_ns: u64,
    /// comm of who did it.
    pub by_comm: Option<String>,
}

/// The queues of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queues {
    /// All of the process, without results.
    All,
    Named {
        /// In the caller's order.
        listed: Vec<NamedQueue>,
        /// Further ones, whose ids do not fit in the record or could not be read.
        more: u32,
    },
}

/// One queue that the debugger named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedQueue {
    pub queue_id: u32,
    /// `None`: the driver reported none.
    pub result: Option<QueueResult>,
}

/// What became of a queue (`KFD_DBG_QUEUE_*_MASK`, uapi kfd_ioctl.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueResult {
    Ok,
    /// The process has no such queue, or it may not be suspended: new to the debugger, or being destroyed.
    Invalid,
    /// The driver failed.
    Error,
}

impl QueueResult {
    /// The name in JSON and in the stream.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            QueueResult::Ok => "ok",
            QueueResult::Invalid => "invalid",
            QueueResult::Error => "error",
        }
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::{NamedQueue, QueueResult, Queues, Suspension};

    /// Two queues, and one that the process does not have.
    pub(crate) fn suspension() -> Suspension {
        let named = |queue_id, result| NamedQueue { queue_id, result: Some(result) };
        Suspension {
            queues: Queues::Named {
                listed: vec![
                    named(3, QueueResult::Ok),
                    named(4, QueueResult::Ok),
                    named(99, QueueResult::Invalid),
                ],
                more: 0,
            },
            count: Some(2),
            grace_period: Some(0),
            errno: 0,
            latency_ns: 7_000,
            by_comm: Some("rocgdb".to_owned()),
        }
    }

    /// As when debugging is disabled.
    pub(crate) fn resume_of_all() -> Suspension {
        Suspension { queues: Queues::All, count: Some(2), grace_period: None, ..suspension() }
    }
}
