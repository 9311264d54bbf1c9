//! DBG_TRAP as rocgdb uses it, on a process that the calling thread traces (`kfd_chardev.c:kfd_ioctl_set_debug_trap`).

use super::Client;
use super::errno::Errno;
use super::uapi::{DebugTrap, QueueSnapshot, debug_trap_op as op};
use std::fs::File;
use std::os::fd::AsRawFd;

/// `EC_QUEUE_NEW`: every queue has this exception until a snapshot clears it, and cannot be suspended before.
const QUEUE_NEW: u64 = 1 << 30;

/// `queue_array_ptr` of a suspend and of a resume, as their number of queues, is at different places.
fn address(ids: &mut [u32]) -> u64 {
    ids.as_mut_ptr().expose_provenance() as u64
}

fn count<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).expect("a short list")
}

/// `events`: where the driver writes when an exception is raised.
pub fn enable(client: &mut Client, pid: u32, events: &File) -> Result<(), Errno> {
    // struct kfd_runtime_info, filled in by the driver
    let mut info = [0u64; 2];
    let size = u64::try_from(size_of_val(&info)).expect("a few bytes");
    let fd = u64::from(events.as_raw_fd().cast_unsigned());
    let info = info.as_mut_ptr().expose_provenance() as u64;
    client.debug_trap(&mut DebugTrap { pid, op: op::ENABLE, rest: [0, info, fd << 32 | size] })
}

pub fn disable(client: &mut Client, pid: u32) -> Result<(), Errno> {
    client.debug_trap(&mut DebugTrap { pid, op: op::DISABLE, rest: [0; 3] })
}

/// The ids of its queues, which are then no longer new.
pub fn snapshot(client: &mut Client, pid: u32) -> Result<Vec<u32>, Errno> {
    let mut found = [QueueSnapshot::default(); 64];
    let entry = u64::try_from(size_of::<QueueSnapshot>()).expect("a few bytes");
    let buffer = found.as_mut_ptr().expose_provenance() as u64;
    let mut args =
        DebugTrap { pid, op: op::GET_QUEUE_SNAPSHOT, rest: [QUEUE_NEW, buffer, entry << 32 | count(&found)] };
    client.debug_trap(&mut args)?;
    let [_, _, counts] = args.rest;
    let number = usize::try_from(counts & u64::from(u32::MAX)).expect("at most 64");
    Ok(found.iter().take(number).map(|queue| queue.queue_id).collect())
}

/// Each id gets the bits of its result.
pub fn suspend(client: &mut Client, pid: u32, grace_period: u32, ids: &mut [u32]) -> Result<(), Errno> {
    let rest = [0, address(ids), u64::from(grace_period) << 32 | count(ids)];
    client.debug_trap(&mut DebugTrap { pid, op: op::SUSPEND_QUEUES, rest })
}

/// The same.
pub fn resume(client: &mut Client, pid: u32, ids: &mut [u32]) -> Result<(), Errno> {
    let rest = [address(ids), count(ids), 0];
    client.debug_trap(&mut DebugTrap { pid, op: op::RESUME_QUEUES, rest })
}
