//! A queue that ended, as an entry keeps it.

use super::owner::Owner;
use crate::model::event::{Origin, QueueFacts, QueueType};
use crate::state::process::Process;
use crate::state::queue::{Cause, Queue, QueueEnd};
use crate::state::source::Source;

/// A queue that ended. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    pub queue_id: u32,
    pub gpu_id: Option<u32>,
    pub queue_type: Option<QueueType>,
    /// `None` for an unknown queue.
    pub cause: Option<Cause>,
    /// `None` if its creation was not seen.
    pub born_ns: Option<u64>,
    /// When it was found as an existing queue.
    pub found_ns: Option<u64>,
    /// When an earlier tracer found it.
    pub found_before_ns: Option<u64>,
}

impl Ended {
    /// The time from which the queue is known to have existed; `None` for an unknown queue.
    #[must_use]
    pub fn stood_from_ns(&self) -> Option<u64> {
        self.born_ns.or(self.found_before_ns).or(self.found_ns)
    }

    /// `owner`: of the entry that has this end.
    #[must_use]
    pub fn identity(&self, owner: Option<&Owner>) -> QueueIdentity {
        QueueIdentity {
            pid: owner.and_then(Owner::pid),
            context_id: owner.and_then(|owner| owner.context_id),
            queue_id: self.queue_id,
            stood_from_ns: self.stood_from_ns(),
        }
    }

    /// The ended queue as a [`Queue`]; `at_ns` is the time of its end.
    pub(super) fn queue(&self, at_ns: u64) -> Queue {
        let facts = QueueFacts {
            queue_id: Some(self.queue_id),
            gpu_id: self.gpu_id,
            queue_type: self.queue_type,
            ..QueueFacts::unknown(Origin::Other)
        };
        let queue = Queue::standing(self.queue_id, &facts, Source::Probe, at_ns);
        let end = self.cause.map(|cause| QueueEnd { at_ns, cause });
        Queue { born_ns: self.born_ns, adopted_ns: self.found_ns, end, ..queue }
    }
}

/// Identity of a queue: its process, its id, and since when it is known to exist (CLOCK_MONOTONIC nanoseconds). The number of
/// a process is no part of it: it is a daemon's own, and entries may be of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueIdentity {
    pid: Option<u32>,
    context_id: Option<u32>,
    queue_id: u32,
    stood_from_ns: Option<u64>,
}

impl QueueIdentity {
    #[must_use]
    pub fn of(process: &Process, queue: &Queue) -> Self {
        let (pid, context_id, queue_id) = (process.tgid, process.context_id, queue.queue_id);
        QueueIdentity { pid, context_id, queue_id, stood_from_ns: queue.stood_from_ns() }
    }
}

impl From<&Queue> for Ended {
    fn from(queue: &Queue) -> Self {
        Ended {
            queue_id: queue.queue_id,
            gpu_id: queue.facts.gpu_id,
            queue_type: queue.facts.queue_type,
            cause: queue.end.map(|end| end.cause),
            born_ns: queue.born_ns,
            found_ns: queue.adopted_ns,
            found_before_ns: queue.found_before_ns(),
        }
    }
}
