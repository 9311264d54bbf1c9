//! Calls inside the driver between entry and return: values of maps keyed by tid.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A call of `update_queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Update {
    /// Address of its `struct queue`.
    pub queue: u64,
    /// Address of its `struct mqd_update_info`; 0 for none.
    pub minfo: u64,
    /// Id of the queue: by this and its process it is recognised when only the ioctl is seen to return.
    pub queue_id: u32,
    /// Always 0.
    pub pad: u32,
}

/// Where a call of an MQD function began: the thread's last one that was not made by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Mqd {
    /// Address of the queue's properties; 0 for none.
    pub properties: u64,
    /// The stack pointer at its entry.
    pub stack: u64,
    /// Its function.
    pub function: u64,
    /// KFD's gpu_id of the queue, which belongs to the process that is called; 0 if that is not known.
    pub gpu_id: u32,
    /// Always 0.
    pub pad: u32,
}

impl Mqd {
    pub const NONE: Self = Self { properties: 0, stack: 0, function: 0, gpu_id: 0, pad: 0 };

    /// Whether `outer` makes this call, if both begin in the same call of the thread. Its frame is below that
    /// of `outer`, or replaces it: an init ends in an update, which may be a jump. A later write by the same
    /// caller begins where `outer` did, in the same function.
    #[must_use]
    #[inline(always)]
    pub const fn is_inside(&self, outer: &Self) -> bool {
        self.properties == outer.properties
            && (self.stack < outer.stack || self.stack == outer.stack && self.function != outer.function)
    }
}

/// An eviction or a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Eviction {
    /// Address of the `struct qcm_process_device`; 0 outside of the function of one GPU.
    pub qpd: u64,
    /// CLOCK_MONOTONIC at the entry of that function, nanoseconds.
    pub entered_ns: u64,
    /// Address of the `struct kfd_process` that `kfd_process_evict_queues` was called for; 0 otherwise.
    pub process: u64,
    /// CLOCK_MONOTONIC at the entry of that call, nanoseconds.
    pub began_ns: u64,
    /// `qpd->evicted` at its entry.
    pub before: u32,
    /// One of [`crate::record::trigger`].
    pub trigger: u32,
    /// One of [`crate::eviction::Call`]: which of the two functions.
    pub call: u32,
    /// Always 0.
    pub pad: u32,
}

/// A change of what a GPU runs, by the thread that holds the lock of its scheduler: from its entry until the next
/// list is submitted. An entry outlasts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Schedule {
    /// Address of the `struct device_queue_manager`.
    pub dqm: u64,
    /// Return addresses, as in [`crate::record::Preempt`].
    pub caller: u64,
    pub outer: u64,
    /// Address of the `struct kfd_process` whose end has begun to change a GPU; 0 for none.
    pub ending: u64,
    /// CLOCK_MONOTONIC, nanoseconds: the request to take the queues off; 0 for none under way.
    pub sent_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds: they are off; 0 where none were on.
    pub released_ns: u64,
}

impl Schedule {
    pub const NONE: Self = Self { dqm: 0, caller: 0, outer: 0, ending: 0, sent_ns: 0, released_ns: 0 };
}

/// A queue that the thread adds to the firmware scheduler MES, or removes from it. An entry outlasts a call that makes no
/// request to the firmware: the scheduler is stopped, or the GPU is being reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct MesCall {
    /// Address of the `struct queue`.
    pub queue: u64,
    /// As in [`crate::record::MesQueue`].
    pub caller: u64,
    /// CLOCK_MONOTONIC of the request, nanoseconds; 0 before.
    pub called_ns: u64,
    /// [`crate::record::mes::ADD`] or [`crate::record::mes::REMOVE`].
    pub op: u32,
    /// Always 0.
    pub pad: u32,
}

/// A call of `amdgpu_userq_ioctl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UserQueue {
    /// Address of the kernel's copy of its arguments.
    pub args: u64,
    /// The caller's value: the driver overwrites it with its result.
    pub ring_address: u64,
    pub ring_size: u64,
    pub op: u32,
    pub queue_id: u32,
    pub ip_type: u32,
    /// Always 0.
    pub pad: u32,
}

/// A call of `suspend_queues` or `resume_queues`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Suspension {
    /// Address of the debugged `struct kfd_process`.
    pub process: u64,
    /// Address of the debugger's array of queue ids; 0 for a resume of all.
    pub ids: u64,
    /// CLOCK_MONOTONIC at the entry, nanoseconds.
    pub entered_ns: u64,
    /// Length of that array.
    pub named: u32,
    pub grace_period: u32,
    /// 1 for a resume.
    pub resumes: u32,
    /// Always 0.
    pub pad: u32,
}

/// A call of `kfd_process_wq_release`, in a kworker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Releasing {
    /// Address of its `struct kfd_process`.
    pub process: u64,
}

const _: () = assert!(size_of::<Releasing>() == 8);
const _: () = assert!(size_of::<Update>() == 24 && size_of::<Mqd>() == 32);
const _: () = assert!(size_of::<Eviction>() == 48 && size_of::<UserQueue>() == 40);
const _: () = assert!(size_of::<Suspension>() == 40);

#[cfg(test)]
mod tests {
    use super::Mqd;

    #[test]
    fn a_call_inside_another_one_is_deeper_or_replaces_it() {
        const INIT: u64 = 0x100;
        const UPDATE: u64 = 0x200;
        let at = |stack, function| Mqd { properties: 7, stack, function, ..Mqd::NONE };
        let init = at(1000, INIT);
        assert!(at(900, UPDATE).is_inside(&init) && at(900, INIT).is_inside(&init), "called, once per XCC");
        assert!(at(1000, UPDATE).is_inside(&init), "jumped to");
        assert!(!at(1000, INIT).is_inside(&init), "the same caller's next write");
        assert!(!at(1100, UPDATE).is_inside(&init), "its caller's");
        let other = Mqd { properties: 8, ..at(900, UPDATE) };
        assert!(!other.is_inside(&init) && !init.is_inside(&Mqd::NONE));
    }
}
