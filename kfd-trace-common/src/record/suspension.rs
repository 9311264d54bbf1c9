//! Queues that a debugger suspends and resumes.

use super::Header;
use crate::limits::{COMM_LEN, SUSPENSION_QUEUES};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// In [`Suspension::queues`], beside the id of a queue (`KFD_DBG_QUEUE_*_MASK`, uapi kfd_ioctl.h): the driver failed to
/// suspend or to resume it.
pub const ERROR: u32 = 1 << 30;

/// The process has no such queue, or it may not be suspended: new to the debugger, or being destroyed.
pub const INVALID: u32 = 1 << 31;

/// Body of `Kind::QueuesSuspended` and `Kind::QueuesResumed`. The header's process is the debugged one; the running
/// thread is the debugger's, or at the end of a debugged process one of its own.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Suspension {
    pub header: Header,
    /// Time inside the driver's function, nanoseconds.
    pub latency_ns: u64,
    /// The number of queues that were suspended or resumed, or a negative errno.
    pub result: i32,
    /// What the debugger passed to a suspend.
    pub grace_period: u32,
    /// Queues that it named.
    pub named: u32,
    /// How many of these are in `queues`; 0 when they could not be read.
    pub listed: u32,
    /// 1 for a resume of all queues, which names none.
    pub all: u32,
    /// Always 0.
    pub pad: u32,
    /// comm of the running thread.
    pub comm: [u8; COMM_LEN],
    /// Ids, with [`ERROR`] and [`INVALID`] as the driver returned them to the debugger.
    pub queues: [u32; SUSPENSION_QUEUES],
}

const _: () = assert!(size_of::<Suspension>() == 48 + 32 + COMM_LEN + 4 * SUSPENSION_QUEUES);
