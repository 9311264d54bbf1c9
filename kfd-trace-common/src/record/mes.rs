//! Requests to the firmware scheduler MES.

use super::Header;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// In [`MesQueue::op`]: the queue is put on the hardware.
pub const ADD: u32 = 0;

/// It is taken off.
pub const REMOVE: u32 = 1;

/// Body of `Kind::MesQueue`. The header's process is the queue's.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct MesQueue {
    pub header: Header,
    /// Where `add_queue_mes` or `remove_queue_mes` returns to: inside of its caller.
    pub caller: u64,
    /// Time inside the function that makes the request and waits for the firmware, nanoseconds.
    pub latency_ns: u64,
    /// KFD's queue id.
    pub queue_id: u32,
    /// KFD's gpu_id; 0 when not readable.
    pub gpu_id: u32,
    /// [`ADD`] or [`REMOVE`].
    pub op: u32,
    /// What that function returned: 0 or a negative errno.
    pub result: i32,
}

const _: () = assert!(size_of::<MesQueue>() == 48 + 32);
