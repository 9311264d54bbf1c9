//! Observed events, decoded: owned values without a byte layout.

use super::incident::{Eviction, MqdOp, QueueUpdate, UserQueueCall, VmFault};
use super::mes::MesQueue;
use super::pointers::Memory;
pub use super::queue::{Origin, QueueFacts, QueueType};
use super::runlist::{Preemption, Runlist};
use super::suspension::Suspension;
use kfd_trace_common::kind::Kind;
use serde::{Deserialize, Serialize};

/// Number that the BPF side assigned to a `struct kfd_process`; never reused, and not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

/// One record of the ring buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub mono_ns: u64,
    /// The KFD process that owns the event; `None` if there is none (a failed open) or it was unreadable.
    pub process: Option<ProcessId>,
    /// tgid of the owner in the initial PID namespace; `None` when it could not be read.
    pub tgid: Option<u32>,
    /// The thread that ran.
    pub tid: u32,
    /// tgid of the thread that ran: a kworker's at teardown, a child's on an inherited descriptor.
    pub task_tgid: u32,
    pub cpu: u32,
    /// Command of the ioctl in which this happened, if any.
    pub in_ioctl: Option<u32>,
    pub body: Body,
}

impl Event {
    /// Reports an existing object as an event of its owner: no thread ran when it was found.
    #[must_use]
    pub fn of_standing(mono_ns: u64, process: Option<ProcessId>, tgid: Option<u32>, body: Body) -> Self {
        let own = tgid.unwrap_or(0);
        Event { mono_ns, process, tgid, tid: own, task_tgid: own, cpu: 0, in_ioctl: None, body }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    ProcessSeen(ProcessSeen),
    /// Return value of `kfd_open`: 0 or a positive errno.
    Open {
        errno: i32,
        comm: String,
    },
    Close,
    MmRelease,
    ProcessRelease,
    QueueCreate(QueueFacts),
    QueueDestroy {
        queue_id: u32,
        gpu_id: Option<u32>,
        /// What was read at its pointers, if it was.
        last: Option<Memory>,
    },
    /// The driver removed the queue's sysfs entry, then failed to destroy the queue: it still exists.
    QueueDestroyFailed {
        queue_id: u32,
        gpu_id: Option<u32>,
        errno: i32,
    },
    Ioctl(IoctlCall),
    QueueUpdate(QueueUpdate),
    /// The outermost call of an MQD function; an init precedes the queue's creation.
    MqdWrite {
        queue_id: u32,
        gpu_id: Option<u32>,
        op: MqdOp,
    },
    Evict(Eviction),
    Restore(Eviction),
    VmFault(VmFault),
    GpuResetBegin {
        gpu_id: Option<u32>,
    },
    GpuResetEnd {
        gpu_id: Option<u32>,
    },
    HwsHang {
        gpu_id: Option<u32>,
    },
    UserQueue(UserQueueCall),
    /// All GPUs of the process: `gpu_id` is `None`.
    EvictFailed(Eviction),
    /// The owner is the process that caused it.
    Preempt(Preemption),
    Runlist(Runlist),
    /// The owner is the debugged process; the thread that ran is the debugger's.
    QueuesSuspended(Suspension),
    QueuesResumed(Suspension),
    MesQueue(MesQueue),
}

impl Body {
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Body::ProcessSeen(_) => Kind::ProcessSeen,
            Body::Open { .. } => Kind::Open,
            Body::Close => Kind::Close,
            Body::MmRelease => Kind::MmRelease,
            Body::ProcessRelease => Kind::ProcessRelease,
            Body::QueueCreate(_) => Kind::QueueCreate,
            Body::QueueDestroy { .. } => Kind::QueueDestroy,
            Body::QueueDestroyFailed { .. } => Kind::QueueDestroyFailed,
            Body::Ioctl(_) => Kind::Ioctl,
            Body::QueueUpdate(_) => Kind::QueueUpdate,
            Body::MqdWrite { .. } => Kind::MqdWrite,
            Body::Evict(_) => Kind::Evict,
            Body::Restore(_) => Kind::Restore,
            Body::VmFault(_) => Kind::VmFault,
            Body::GpuResetBegin { .. } => Kind::GpuResetBegin,
            Body::GpuResetEnd { .. } => Kind::GpuResetEnd,
            Body::HwsHang { .. } => Kind::HwsHang,
            Body::UserQueue(_) => Kind::UserQueue,
            Body::EvictFailed(_) => Kind::EvictFailed,
            Body::Preempt(_) => Kind::Preempt,
            Body::Runlist(_) => Kind::Runlist,
            Body::QueuesSuspended(_) => Kind::QueuesSuspended,
            Body::QueuesResumed(_) => Kind::QueuesResumed,
            Body::MesQueue(_) => Kind::MesQueue,
        }
    }

    /// Positive errno of what failed; `None` for success, and where nothing can fail or be measured.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        let errno = match self {
            Body::Open { errno, .. } | Body::QueueDestroyFailed { errno, .. } => Some(*errno),
            Body::Ioctl(call) => call.outcome.errno(),
            Body::QueueUpdate(update) => update.errno,
            Body::Evict(eviction) | Body::Restore(eviction) | Body::EvictFailed(eviction) => {
                Some(eviction.errno)
            }
            Body::UserQueue(call) => Some(call.errno),
            Body::Preempt(preemption) => Some(preemption.errno),
            Body::Runlist(list) => Some(list.errno),
            Body::QueuesSuspended(call) | Body::QueuesResumed(call) => Some(call.errno),
            Body::MesQueue(change) => Some(change.errno),
            Body::ProcessSeen(_)
            | Body::Close
            | Body::MmRelease
            | Body::ProcessRelease
            | Body::QueueCreate(_)
            | Body::QueueDestroy { .. }
            | Body::MqdWrite { .. }
            | Body::VmFault(_)
            | Body::GpuResetBegin { .. }
            | Body::GpuResetEnd { .. }
            | Body::HwsHang { .. } => None,
        };
        errno.filter(|errno| *errno != 0)
    }

    /// The GPU that it is about, as far as it is of one and that was readable.
    #[must_use]
    pub fn gpu_id(&self) -> Option<u32> {
        match self {
            Body::QueueCreate(facts) => facts.gpu_id,
            Body::QueueUpdate(update) => update.now.gpu_id,
            Body::QueueDestroy { gpu_id, .. }
            | Body::QueueDestroyFailed { gpu_id, .. }
            | Body::MqdWrite { gpu_id, .. }
            | Body::GpuResetBegin { gpu_id }
            | Body::GpuResetEnd { gpu_id }
            | Body::HwsHang { gpu_id } => *gpu_id,
            Body::Evict(eviction) | Body::Restore(eviction) | Body::EvictFailed(eviction) => eviction.gpu_id,
            Body::VmFault(fault) => fault.gpu_id,
            Body::Preempt(preemption) => preemption.gpu_id,
            Body::Runlist(list) => list.gpu_id,
            Body::MesQueue(change) => change.gpu_id,
            Body::ProcessSeen(_)
            | Body::Open { .. }
            | Body::Close
            | Body::MmRelease
            | Body::ProcessRelease
            | Body::Ioctl(_)
            | Body::UserQueue(_)
            | Body::QueuesSuspended(_)
            | Body::QueuesResumed(_) => None,
        }
    }

    /// comm that the event itself has.
    #[must_use]
    pub fn comm(&self) -> Option<&str> {
        match self {
            Body::Open { comm, .. } => Some(comm),
            Body::ProcessSeen(seen) => seen.comm.as_deref(),
            Body::UserQueue(call) => Some(&call.comm),
            // An event with an owner: the owner's row has the name. A whole GPU has none.
            Body::Close
            | Body::MmRelease
            | Body::ProcessRelease
            | Body::QueueCreate(_)
            | Body::QueueDestroy { .. }
            | Body::QueueDestroyFailed { .. }
            | Body::Ioctl(_)
            | Body::QueueUpdate(_)
            | Body::MqdWrite { .. }
            | Body::Evict(_)
            | Body::Restore(_)
            | Body::VmFault(_)
            | Body::GpuResetBegin { .. }
            | Body::GpuResetEnd { .. }
            | Body::HwsHang { .. }
            | Body::EvictFailed(_)
            | Body::Preempt(_)
            | Body::Runlist(_)
            | Body::QueuesSuspended(_)
            | Body::QueuesResumed(_)
            | Body::MesQueue(_) => None,
        }
    }
}

/// A KFD process at its first sight, as reported by the kernel: it may exit before /proc is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSeen {
    /// It existed before the tracer saw it: its creation was not seen.
    pub standing: bool,
    /// Start of the leader, CLOCK_BOOTTIME nanoseconds.
    pub start_boottime_ns: Option<u64>,
    /// PID in the process's own PID namespace.
    pub ns_tgid: Option<u32>,
    /// UID in the initial user namespace.
    pub uid: Option<u32>,
    pub comm: Option<String>,
    /// Last component of the cgroup v2 path.
    pub cgroup_leaf: Option<String>,
    /// Which of its PID's contexts it is (7.2); `None` for the primary one, and for drivers without others.
    pub context_id: Option<u32>,
}

/// One ioctl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoctlCall {
    /// The command that user space passed; contains number and size.
    pub cmd: u32,
    /// CLOCK_MONOTONIC at the entry, nanoseconds.
    pub entered_ns: u64,
    pub outcome: Outcome,
    /// The kernel's copy of the arguments after the handler; empty when no handler was entered. Of a call that maps
    /// memory also its array of gpu_ids, where that could be read ([`super::ioctl::gpus`]).
    pub args: Vec<u8>,
}

/// How an ioctl ended, as far as observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It returned. `result` is the driver's value: 0 or more, or a negative errno.
    Returned { result: i32, latency_ns: u64 },
    /// Refused before any handler; the errno (positive) follows from the rules of `kfd_ioctl`.
    Refused { errno: i32 },
    /// WAIT_EVENTS where only the returns of handlers are probed: neither result nor latency is measured.
    NotMeasured,
    /// Its end was not seen: its return was missed, or where only the returns of handlers are probed, it failed before.
    NoReturnSeen,
}

impl Outcome {
    /// Positive errno, 0 for success; `None` when not measured.
    #[must_use]
    pub fn errno(self) -> Option<i32> {
        match self {
            Outcome::Returned { result, .. } => Some(if result < 0 { result.saturating_neg() } else { 0 }),
            Outcome::Refused { errno } => Some(errno),
            Outcome::NotMeasured | Outcome::NoReturnSeen => None,
        }
    }
}
