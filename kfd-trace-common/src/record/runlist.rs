//! Preemptions of a GPU, and the lists of queues that it runs.

use super::Header;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A `bool` of the driver that may not be readable; in [`Preempt`] and [`Runlist`].
pub mod oversubscribed {
    pub const NO: u32 = 0;
    pub const YES: u32 = 1;
    pub const NOT_READ: u32 = u32::MAX;
}

/// A count that could not be read; in [`Runlist`].
pub const NOT_COUNTED: u32 = u32::MAX;

/// Body of `Kind::Preempt`. The header's process is the one that caused it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Preempt {
    pub header: Header,
    /// Where `unmap_queues_cpsch` returns to: inside of its caller.
    pub caller: u64,
    /// The same of the thread's last `execute_queues_cpsch`; 0 for none. It counts where `caller` is inside of
    /// that function.
    pub outer: u64,
    /// From the request to the GPU until it was answered for all queues, or given up; nanoseconds.
    pub latency_ns: u64,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// 0, or the negative errno of the wait.
    pub result: i32,
    /// Of the list that ends: one of [`oversubscribed`].
    pub oversubscribed: u32,
    /// Always 0.
    pub pad: u32,
}

/// Body of `Kind::Runlist`. The header's process is the one that caused it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Runlist {
    pub header: Header,
    /// As in [`Preempt`].
    pub caller: u64,
    pub outer: u64,
    /// From the end of the preemption to the submission of this list; `u64::MAX` where nothing was preempted.
    pub unmapped_ns: u64,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// What `pm_send_runlist` returned: 0 or a negative errno.
    pub result: i32,
    /// Processes with queues on the GPU; [`NOT_COUNTED`] when not readable, as in the next two.
    pub processes: u32,
    /// Queues on the list.
    pub queues: u32,
    /// Those of them that are compute queues.
    pub cp_queues: u32,
    /// One of [`oversubscribed`].
    pub oversubscribed: u32,
}

const _: () = assert!(size_of::<Preempt>() == 48 + 40);
const _: () = assert!(size_of::<Runlist>() == 48 + 48);
