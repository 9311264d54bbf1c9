//! A call of `kfd_ioctl` that has not returned yet, and the slot in which its thread keeps it.

use crate::limits::ARGS_LEN;
use crate::nested::Mqd;
use crate::stat::Sum;
use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct OpenCall {
    /// CLOCK_MONOTONIC at the entry, nanoseconds.
    pub entered_ns: u64,
    /// The owner, as in [`crate::record::Header::process`].
    pub process: u64,
    /// Where its arguments are read at its return. In the caller's memory, if the return of `kfd_ioctl` itself is
    /// probed; else the handler's copy of them, and 0 unless arguments are requested.
    pub data: u64,
    /// tgid of the owner.
    pub tgid: u32,
    /// tgid of the calling thread, which is a different one where CRIU calls for the owner; 0 in a slot,
    /// whose `thread` holds it.
    pub caller_tgid: u32,
    /// The command as user space passed it.
    pub cmd: u32,
    /// Remaining work at its return, bits of [`at_return`].
    pub at_return: u32,
    /// Id of a queue whose sysfs entry was removed during this call, and its gpu_id; with
    /// [`at_return::QUEUE_DELETED`].
    pub deleted_queue: u32,
    pub deleted_gpu: u32,
    /// Address of the owner's `struct kfd_process`.
    pub owner: u64,
    /// The last MQD write of this call.
    pub mqd: Mqd,
}

/// Remaining work at the return of a few calls.
pub mod at_return {
    /// The sysfs entry of a queue was removed: if the call fails, the queue may still exist.
    pub const QUEUE_DELETED: u32 = 1;
    /// The file then belongs to another process.
    pub const FILE_CHANGES: u32 = 2;
    /// A queue is being updated: removed when that is seen to return.
    pub const QUEUE_UPDATED: u32 = 4;
    /// The memory of the process may have changed: the call gets a record.
    pub const MEMORY_CHANGES: u32 = 8;
    /// The arguments that the handler got are kept.
    pub const ARGS_KEPT: u32 = 16;
}

/// Kind of call that the thread of a slot is in.
pub mod busy {
    pub const NO: u32 = 0;
    /// In the call of the slot.
    pub const IN_CALL: u32 = 1;
    /// In a call of a process that is not selected, or cannot be tracked; its end is not always seen.
    pub const UNWANTED: u32 = 2;
}

/// A thread that calls `kfd_ioctl`: its call, and cached data on the owner it called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Caller {
    /// tgid and tid as `bpf_get_current_pid_tgid` returns them; 0 for no thread.
    pub thread: u64,
    /// The call; the owner in it outlasts the call.
    pub call: OpenCall,
    /// Address of the `struct file` that the owner was found by; 0: look it up again.
    pub file: u64,
    /// The generation of the table of processes when the owner was looked up: the cached data is valid while
    /// it is unchanged.
    pub generation: u64,
    /// 1 when the owner is selected.
    pub wanted: u32,
    /// 1 when the owner is selected and the thread is known to belong to it, so that `kfd_ioctl` admits it.
    pub admitted: u32,
    /// One of [`busy`].
    pub busy: u32,
    /// Where among its sums those of its call are; [`NO_CELL`] when they are in a hash map.
    pub cell: u32,
}

impl Caller {
    /// No thread, in no call.
    pub const NONE: Self = Self {
        thread: 0,
        call: OpenCall {
            entered_ns: 0,
            process: 0,
            data: 0,
            tgid: 0,
            caller_tgid: 0,
            cmd: 0,
            at_return: 0,
            deleted_queue: 0,
            deleted_gpu: 0,
            owner: 0,
            mqd: Mqd::NONE,
        },
        file: 0,
        generation: 0,
        wanted: 0,
        admitted: 0,
        busy: busy::NO,
        cell: 0,
    };
}

/// The slot of a thread that calls `kfd_ioctl`, picked by its tid and kept until the daemon finds that the
/// thread or the process it called has ended: its call, and the sums of its calls, which no other thread
/// changes. Calls without a slot are kept in hash maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct CallerSlot {
    pub caller: Caller,
    pub sums: [Sum; SUMS],
    /// The arguments that the handler of its call got, with [`at_return::ARGS_KEPT`].
    pub args: [u8; ARGS_LEN],
}

/// Sums in a slot, a power of two.
pub const SUMS: usize = 16;

/// No place in the slot.
pub const NO_CELL: u32 = u32::MAX;

/// Index of a command's sum in a slot, shared by all commands with that index. The commands that a program
/// repeats have one each: queues, events, allocations and mappings.
#[must_use]
#[inline(always)]
pub const fn cell_of(nr: u32) -> usize {
    // Found by trial.
    ((nr * 113) >> 4) as usize % SUMS
}

const _: () = assert!(size_of::<OpenCall>() == 88 && size_of::<Caller>() == 128);
// A slot begins with its thread.
const _: () = assert!(offset_of!(CallerSlot, caller) == 0 && offset_of!(Caller, thread) == 0);
const _: () = assert!(size_of::<CallerSlot>() == 128 + SUMS * size_of::<Sum>() + ARGS_LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_a_program_repeats_has_sums_of_its_own() {
        // CREATE_QUEUE, DESTROY_QUEUE, GET_CLOCK_COUNTERS, UPDATE_QUEUE, CREATE_, DESTROY_, SET_ and
        // RESET_EVENT, WAIT_EVENTS, ALLOC_MEMORY_OF_GPU, FREE_, MAP_ and UNMAP_MEMORY_OF_GPU
        let hot = [0x02, 0x03, 0x05, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x16, 0x17, 0x18, 0x19];
        let cells: BTreeSet<usize> = hot.into_iter().map(cell_of).collect();
        assert_eq!(cells.len(), hot.len());
        assert!((0..=0xff).all(|nr| cell_of(nr) < SUMS));
    }
}
