//! Calls inside the driver between entry and return: values of maps keyed by tid.

/// A call of `update_queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Update {
    /// Address of its `struct queue`.
    pub queue: u64,
    /// Address of its `struct mqd_update_info`; 0 for none.
    pub minfo: u64,
}

/// A call of an MQD function, and those that it makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Mqd {
    /// Address of the queue's properties: all nested calls are about the same.
    pub properties: u64,
    /// Calls that have not returned.
    pub depth: u64,
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

/// A call of `kfd_process_wq_release`, in a kworker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Releasing {
    /// Address of its `struct kfd_process`.
    pub process: u64,
}

const _: () = assert!(size_of::<Releasing>() == 8);
const _: () = assert!(size_of::<Update>() == 16 && size_of::<Mqd>() == 16);
const _: () = assert!(size_of::<Eviction>() == 48 && size_of::<UserQueue>() == 40);
