//! One history entry: the minimum from which the event can be rebuilt.

use super::ended::Ended;
use super::owner::Owner;
use crate::model::event::{Body, Event, ProcessId, ProcessSeen, QueueFacts};
use crate::model::incident::{Eviction, UserQueueCall, VmFault};
use crate::model::suspension::{NamedQueue, Queues, Suspension};
use crate::state::change::Change;
use crate::state::queue::Queue;
use kfd_trace_common::kind::{Class, Kind};
use std::sync::Arc;

/// What happened, when, and to which process.
#[derive(Debug, PartialEq)]
pub struct Entry {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub mono_ns: u64,
    /// Nanoseconds since the Unix epoch, by the clock at the time the event was recorded.
    pub wall_ns: i64,
    /// `None` for GPU-wide events and driver events.
    pub owner: Option<Arc<Owner>>,
    pub tid: u32,
    pub task_tgid: u32,
    pub what: What,
}

/// What happened.
#[derive(Debug, PartialEq)]
pub enum What {
    ProcessSeen {
        standing: bool,
    },
    ProcessRelease,
    QueueCreate(Box<QueueFacts>),
    QueueDestroy(Ended),
    /// `since_ns`: from when the queue is known, which lives on.
    QueueDestroyFailed {
        queue_id: u32,
        gpu_id: Option<u32>,
        errno: i32,
        since_ns: Option<u64>,
    },
    UserQueue(Box<UserQueueCall>),
    Evict(Eviction),
    Restore {
        eviction: Eviction,
        lasted_ns: Option<u64>,
    },
    EvictFailed(Eviction),
    VmFault(VmFault),
    QueuesSuspended(Box<Suspension>),
    QueuesResumed(Box<Suspension>),
    ResetBegin(Hit),
    ResetEnd {
        hit: Hit,
        lasted_ns: Option<u64>,
    },
    Hang(Hit),
    Driver {
        loaded: bool,
        loads: u64,
    },
    Gap(Gap),
}

/// Of the time before it nothing is known, or not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// How long; `None` where that is not known.
    pub lasted_ns: Option<u64>,
    /// Changes that are missing; `None` where they were not counted.
    pub lost_changes: Option<u64>,
}

/// A GPU, and the tgids of the processes that had queues on it.
#[derive(Debug, PartialEq)]
pub struct Hit {
    pub gpu_id: Option<u32>,
    pub pids: Box<[u32]>,
}

impl What {
    /// `None` for events that are not kept. `ended` looks up the queue that the event ended, by id,
    /// `since_ns` from when a queue that lives is known.
    pub(super) fn of<'c>(
        event: &Event,
        change: &Change,
        ended: impl Fn(u32) -> Option<&'c Queue>,
        since_ns: impl Fn(u32) -> Option<u64>,
    ) -> Option<What> {
        let hit = |gpu_id| Hit { gpu_id, pids: change.hit.as_slice().into() };
        let lasted_ns = change.lasted_ns;
        Some(match &event.body {
            Body::ProcessSeen(seen) => What::ProcessSeen { standing: seen.standing },
            Body::ProcessRelease => What::ProcessRelease,
            Body::QueueCreate(facts) => What::QueueCreate(Box::new(facts.clone())),
            Body::QueueDestroy { queue_id, gpu_id, .. } => What::QueueDestroy(ended(*queue_id).map_or(
                Ended {
                    queue_id: *queue_id,
                    gpu_id: *gpu_id,
                    queue_type: None,
                    cause: None,
                    born_ns: None,
                    found_ns: None,
                    found_before_ns: None,
                },
                |queue| Ended { gpu_id: gpu_id.or(queue.facts.gpu_id), ..queue.into() },
            )),
            Body::QueueDestroyFailed { queue_id, gpu_id, errno } => {
                let (queue_id, gpu_id, errno) = (*queue_id, *gpu_id, *errno);
                What::QueueDestroyFailed { queue_id, gpu_id, errno, since_ns: since_ns(queue_id) }
            }
            Body::UserQueue(call) => What::UserQueue(Box::new(call.clone())),
            Body::Evict(eviction) => What::Evict(*eviction),
            Body::Restore(eviction) => What::Restore { eviction: *eviction, lasted_ns },
            Body::EvictFailed(eviction) => What::EvictFailed(*eviction),
            Body::VmFault(fault) => What::VmFault(*fault),
            Body::QueuesSuspended(call) => What::QueuesSuspended(Box::new(call.clone())),
            Body::QueuesResumed(call) => What::QueuesResumed(Box::new(call.clone())),
            Body::GpuResetBegin { gpu_id } => What::ResetBegin(hit(*gpu_id)),
            Body::GpuResetEnd { gpu_id } => What::ResetEnd { hit: hit(*gpu_id), lasted_ns },
            Body::HwsHang { gpu_id } => What::Hang(hit(*gpu_id)),
            Body::Open { .. }
            | Body::Close
            | Body::MmRelease
            | Body::Ioctl(_)
            | Body::QueueUpdate(_)
            | Body::MqdWrite { .. }
            | Body::Preempt(_)
            | Body::Runlist(_)
            | Body::MesQueue(_) => return None,
        })
    }

    /// `None` for loads and unloads of the driver, and for gaps, which no record reports.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        Some(match self {
            What::ProcessSeen { .. } => Kind::ProcessSeen,
            What::ProcessRelease => Kind::ProcessRelease,
            What::QueueCreate(_) => Kind::QueueCreate,
            What::QueueDestroy(_) => Kind::QueueDestroy,
            What::QueueDestroyFailed { .. } => Kind::QueueDestroyFailed,
            What::UserQueue(_) => Kind::UserQueue,
            What::Evict(_) => Kind::Evict,
            What::Restore { .. } => Kind::Restore,
            What::EvictFailed(_) => Kind::EvictFailed,
            What::VmFault(_) => Kind::VmFault,
            What::QueuesSuspended(_) => Kind::QueuesSuspended,
            What::QueuesResumed(_) => Kind::QueuesResumed,
            What::ResetBegin(_) => Kind::GpuResetBegin,
            What::ResetEnd { .. } => Kind::GpuResetEnd,
            What::Hang(_) => Kind::HwsHang,
            What::Driver { .. } | What::Gap(_) => return None,
        })
    }

    #[must_use]
    pub fn class(&self) -> Class {
        // All kinds of `What` have a class: a test compares them with the table.
        self.kind().and_then(Kind::class).unwrap_or(Class::Gpus)
    }

    #[must_use]
    pub fn gpu_id(&self) -> Option<u32> {
        match self {
            What::QueueCreate(facts) => facts.gpu_id,
            What::QueueDestroy(queue) => queue.gpu_id,
            What::QueueDestroyFailed { gpu_id, .. } => *gpu_id,
            What::Evict(eviction) | What::Restore { eviction, .. } | What::EvictFailed(eviction) => {
                eviction.gpu_id
            }
            What::VmFault(fault) => fault.gpu_id,
            What::ResetBegin(hit) | What::ResetEnd { hit, .. } | What::Hang(hit) => hit.gpu_id,
            What::ProcessSeen { .. }
            | What::ProcessRelease
            | What::UserQueue(_)
            | What::QueuesSuspended(_)
            | What::QueuesResumed(_)
            | What::Driver { .. }
            | What::Gap(_) => None,
        }
    }

    /// Whether this is about the process's queue with this id, or about all of its queues.
    #[must_use]
    pub fn concerns(&self, queue_id: u32) -> bool {
        match self {
            What::QueueCreate(facts) => facts.queue_id == Some(queue_id),
            What::QueueDestroy(queue) => queue.queue_id == queue_id,
            What::QueueDestroyFailed { queue_id: id, .. } => *id == queue_id,
            What::QueuesSuspended(call) | What::QueuesResumed(call) => match &call.queues {
                Queues::All => true,
                Queues::Named { listed, more } => {
                    *more > 0 || listed.iter().any(|named| named.queue_id == queue_id)
                }
            },
            // These have ids of their own.
            What::UserQueue(_) => false,
            What::ProcessSeen { .. }
            | What::ProcessRelease
            | What::Evict(_)
            | What::Restore { .. }
            | What::EvictFailed(_)
            | What::VmFault(_)
            | What::ResetBegin(_)
            | What::ResetEnd { .. }
            | What::Hang(_)
            | What::Driver { .. }
            | What::Gap(_) => true,
        }
    }

    /// For a GPU-wide event: tgids of the affected processes.
    #[must_use]
    pub fn hit(&self) -> &[u32] {
        match self {
            What::ResetBegin(hit) | What::ResetEnd { hit, .. } | What::Hang(hit) => &hit.pids,
            What::ProcessSeen { .. }
            | What::ProcessRelease
            | What::QueueCreate(_)
            | What::QueueDestroy(_)
            | What::QueueDestroyFailed { .. }
            | What::Evict(_)
            | What::Restore { .. }
            | What::EvictFailed(_)
            | What::VmFault(_)
            | What::UserQueue(_)
            | What::QueuesSuspended(_)
            | What::QueuesResumed(_)
            | What::Driver { .. }
            | What::Gap(_) => &[],
        }
    }

    pub(super) fn comm(&self) -> Option<&str> {
        match self {
            What::UserQueue(call) => Some(&call.comm),
            _ => None,
        }
    }

    fn lasted_ns(&self) -> Option<u64> {
        match self {
            What::Restore { lasted_ns, .. } | What::ResetEnd { lasted_ns, .. } => *lasted_ns,
            _ => None,
        }
    }

    /// Heap bytes of the entry, allocator overhead included.
    pub(super) fn heap(&self) -> usize {
        match self {
            What::QueueCreate(_) => size_of::<QueueFacts>() + 16,
            What::UserQueue(call) => size_of::<UserQueueCall>() + call.comm.len() + 32,
            What::QueuesSuspended(call) | What::QueuesResumed(call) => suspension_heap(call),
            other if other.hit().is_empty() => 0,
            other => size_of_val(other.hit()) + 16,
        }
    }

    fn body(&self, owner: Option<&Owner>) -> Option<Body> {
        Some(match self {
            What::ProcessSeen { standing } => Body::ProcessSeen(ProcessSeen {
                standing: *standing,
                start_boottime_ns: owner.and_then(|owner| owner.start_boottime_ns),
                ns_tgid: owner.and_then(|owner| owner.ns_pid),
                uid: owner.and_then(|owner| owner.uid),
                comm: None,
                cgroup_leaf: None,
                context_id: owner.and_then(|owner| owner.context_id),
            }),
            What::ProcessRelease => Body::ProcessRelease,
            What::QueueCreate(facts) => Body::QueueCreate(QueueFacts::clone(facts)),
            What::QueueDestroy(queue) => {
                Body::QueueDestroy { queue_id: queue.queue_id, gpu_id: queue.gpu_id, last: None }
            }
            What::QueueDestroyFailed { queue_id, gpu_id, errno, .. } => {
                Body::QueueDestroyFailed { queue_id: *queue_id, gpu_id: *gpu_id, errno: *errno }
            }
            What::UserQueue(call) => Body::UserQueue(UserQueueCall::clone(call)),
            What::Evict(eviction) => Body::Evict(*eviction),
            What::Restore { eviction, .. } => Body::Restore(*eviction),
            What::EvictFailed(eviction) => Body::EvictFailed(*eviction),
            What::VmFault(fault) => Body::VmFault(*fault),
            What::QueuesSuspended(call) => Body::QueuesSuspended(Suspension::clone(call)),
            What::QueuesResumed(call) => Body::QueuesResumed(Suspension::clone(call)),
            What::ResetBegin(hit) => Body::GpuResetBegin { gpu_id: hit.gpu_id },
            What::ResetEnd { hit, .. } => Body::GpuResetEnd { gpu_id: hit.gpu_id },
            What::Hang(hit) => Body::HwsHang { gpu_id: hit.gpu_id },
            What::Driver { .. } | What::Gap(_) => return None,
        })
    }
}

fn suspension_heap(call: &Suspension) -> usize {
    let listed = match &call.queues {
        Queues::All => 0,
        Queues::Named { listed, .. } => listed.capacity() * size_of::<NamedQueue>() + 16,
    };
    size_of::<Suspension>() + call.by_comm.as_ref().map_or(0, |comm| comm.capacity() + 16) + 16 + listed
}

/// As a replay of recordings shows it.
const GAP: &str = "recording_gap";

/// Events of the driver itself.
const UNLOADED: &str = "driver_unloaded";
const LOADED: &str = "driver_loaded";

impl Entry {
    /// Every name that an entry can have, in the order of the kinds.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        let kept = Kind::ALL.iter().filter(|kind| kind.class().is_some()).map(|kind| kind.name());
        kept.chain([UNLOADED, LOADED, GAP]).collect()
    }

    /// The value of `event` in JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match (self.what.kind(), &self.what) {
            (Some(kind), _) => kind.name(),
            (None, What::Driver { loaded: true, .. }) => LOADED,
            (None, What::Gap(_)) => GAP,
            (None, _) => UNLOADED,
        }
    }

    /// tgid of the owner in the initial PID namespace.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.owner.as_ref().and_then(|owner| owner.pid())
    }

    #[must_use]
    pub fn process(&self) -> Option<ProcessId> {
        self.owner.as_ref().and_then(|owner| owner.id())
    }

    /// Offset from CLOCK_MONOTONIC to wall-clock time when the event was recorded.
    #[must_use]
    pub fn mono_to_wall_ns(&self) -> i64 {
        self.wall_ns.saturating_sub_unsigned(self.mono_ns)
    }

    /// The event and its change; `None` for driver load and unload, and for gaps, which belong to no process.
    #[must_use]
    pub fn event(&self) -> Option<(Event, Change)> {
        let event = Event {
            mono_ns: self.mono_ns,
            process: self.process(),
            tgid: self.pid(),
            tid: self.tid,
            task_tgid: self.task_tgid,
            cpu: 0,
            in_ioctl: None,
            body: self.what.body(self.owner.as_deref())?,
        };
        let ended = match &self.what {
            What::QueueDestroy(queue) => vec![queue.queue(self.mono_ns)],
            _ => Vec::new(),
        };
        let (lasted_ns, hit) = (self.what.lasted_ns(), self.what.hit().to_vec());
        Some((event, Change { ended, lasted_ns, hit, ..Change::default() }))
    }
}
