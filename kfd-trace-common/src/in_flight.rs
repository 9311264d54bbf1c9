//! A call of `kfd_ioctl` that has not returned yet: the value of the map of calls under way, keyed by tid.

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Slot {
    /// CLOCK_MONOTONIC at the entry, nanoseconds.
    pub entered_ns: u64,
    /// The owner, as in [`crate::record::Header::process`].
    pub process: u64,
    /// The handler's copy of the arguments; 0 unless arguments are asked for.
    pub data: u64,
    /// tgid of the owner.
    pub tgid: u32,
    /// The command as user space gave it.
    pub cmd: u32,
    /// Queue id plus one of a queue whose sysfs entry went during this call; 0 for none.
    pub deleted_queue: u32,
    /// Its gpu_id.
    pub deleted_gpu: u32,
}

const _: () = assert!(size_of::<Slot>() == 40);
