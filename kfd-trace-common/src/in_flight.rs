//! A call of `kfd_ioctl` that has not returned yet, and the seat that its thread keeps it in.

use crate::stat::Sum;

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
    /// Queue id plus one of a queue whose sysfs entry went during this call; 0 for none. Not 0, either, in a call that leaves
    /// something else to do at its return.
    pub deleted_queue: u32,
    /// Its gpu_id.
    pub deleted_gpu: u32,
}

/// A thread that calls `kfd_ioctl`: its call, and what is remembered of whom it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Caller {
    /// tgid and tid as `bpf_get_current_pid_tgid` gives them; 0 for nobody.
    pub thread: u64,
    /// The call; the owner in it outlasts the call.
    pub slot: Slot,
    /// Address of the `struct file` that the owner was found by; 0 when it is to be looked up again.
    pub file: u64,
    /// The generation of the table of processes when the owner was looked up: what is remembered holds as long as it stands.
    pub generation: u64,
    /// 1 when the owner is asked for.
    pub wanted: u32,
    /// 1 when the owner is asked for and the thread is known to be of it, so that `kfd_ioctl` admits it.
    pub admitted: u32,
    /// 1 while the thread is in a call.
    pub busy: u32,
    /// Where among its sums those of its call are; [`NO_CELL`] when they are in a hash map.
    pub cell: u32,
}

impl Caller {
    /// Nobody, in no call.
    pub const NOBODY: Self = Self {
        thread: 0,
        slot: Slot { entered_ns: 0, process: 0, data: 0, tgid: 0, cmd: 0, deleted_queue: 0, deleted_gpu: 0 },
        file: 0,
        generation: 0,
        wanted: 0,
        admitted: 0,
        busy: 0,
        cell: 0,
    };
}

/// The place of a thread that calls `kfd_ioctl`, picked by its tid and kept until its process has ended: its call, and the
/// sums of its calls, which no other thread touches. What finds no place here goes to hash maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Seat {
    pub caller: Caller,
    pub sums: [Sum; SUMS],
}

/// Sums in a seat, a power of two.
pub const SUMS: usize = 16;

/// No place in the seat.
pub const NO_CELL: u32 = u32::MAX;

/// Which of a seat's sums are those of a command, or of none. The commands that a program repeats have one each: queues,
/// events, allocations and mappings.
#[must_use]
#[inline(always)]
pub const fn cell_of(nr: u32) -> usize {
    // Found by trying.
    ((nr * 113) >> 4) as usize % SUMS
}

const _: () = assert!(size_of::<Slot>() == 40 && size_of::<Caller>() == 80);
const _: () = assert!(size_of::<Seat>() == 80 + SUMS * size_of::<Sum>());

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_a_program_repeats_has_sums_of_its_own() {
        // CREATE_QUEUE, DESTROY_QUEUE, GET_CLOCK_COUNTERS, UPDATE_QUEUE, CREATE_, DESTROY_, SET_ and RESET_EVENT,
        // WAIT_EVENTS, ALLOC_MEMORY_OF_GPU, FREE_, MAP_ and UNMAP_MEMORY_OF_GPU
        let hot = [0x02, 0x03, 0x05, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x16, 0x17, 0x18, 0x19];
        let cells: BTreeSet<usize> = hot.into_iter().map(cell_of).collect();
        assert_eq!(cells.len(), hot.len());
        assert!((0..=0xff).all(|nr| cell_of(nr) < SUMS));
    }
}
