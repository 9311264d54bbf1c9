//! What the driver lists: one KFD process with its queues, from the kernel's own table or from sysfs.

use super::event::{ProcessId, QueueFacts};

/// Where a KFD process is found: tgid, and which of its PID's contexts it is (7.2; `None` for the first one).
pub type Place = (u32, Option<u32>);

/// One listed process. `None` is "this source does not have it".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// Its number, if the BPF side has already seen it.
    pub id: Option<ProcessId>,
    /// In the initial PID namespace.
    pub tgid: u32,
    pub context_id: Option<u32>,
    /// Start of the leader, CLOCK_BOOTTIME nanoseconds.
    pub start_boottime_ns: Option<u64>,
    pub ns_tgid: Option<u32>,
    pub uid: Option<u32>,
    pub comm: Option<String>,
    pub queues: Vec<QueueFacts>,
}

impl Listed {
    #[must_use]
    pub fn place(&self) -> Place {
        (self.tgid, self.context_id)
    }

    /// The queue with this id.
    #[must_use]
    pub fn queue(&self, queue_id: u32) -> Option<&QueueFacts> {
        self.queues.iter().find(|queue| queue.queue_id == Some(queue_id))
    }
}
