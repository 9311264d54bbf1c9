//! Sums of ioctls per process and command. The only owner of `IOCTL_STATS`, `IOCTL_ERRORS` and `IOCTL_REST`.
//!
//! A thread keeps its sums in its slot, which no other thread writes. Sums without a place there are kept in
//! the two hash maps, which all CPUs share: few threads use them, and with one part per CPU they would take
//! many times the memory. A place is taken by the first command that needs it, and freed by the daemon when
//! the process has ended.

use crate::words::zero;
use crate::{atomic, losses};
use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_NOEXIST};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use core::mem::offset_of;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::{self, CallerSlot};
use kfd_trace_common::limits::{IOCTL_ERRORS_MAX, IOCTL_NUMBERS, IOCTL_STATS_MAX};
use kfd_trace_common::rules;
use kfd_trace_common::stat::{BUCKETS, ErrorKey, IoctlKey, IoctlStat, Sum, bucket_of, is_in};

#[map]
static IOCTL_STATS: HashMap<IoctlKey, IoctlStat> = HashMap::with_max_entries(IOCTL_STATS_MAX, 0);

#[map]
static IOCTL_ERRORS: HashMap<ErrorKey, u64> = HashMap::with_max_entries(IOCTL_ERRORS_MAX, 0);

/// By number of the command: calls that find `IOCTL_STATS` full, so that the machine's sums stay exact.
#[map]
static IOCTL_REST: Array<IoctlStat> = Array::with_max_entries(IOCTL_NUMBERS, BPF_F_MMAPABLE);

/// The probe that counts a call at its entry, and the one at its return.
const ENTRY: ProbeId = ProbeId::Ioctl;
const RETURN: ProbeId = ProbeId::IoctlReturn;

/// In read-only data and not on the stack, which has 512 bytes for everything.
static ZERO: IoctlStat = IoctlStat::ZERO;

/// A slot's sum for the calls of a command, if it belongs to that command and to the process that the thread
/// calls.
#[inline(always)]
pub(crate) fn place_of(slot: &mut CallerSlot, cmd: u32) -> Option<&mut Sum> {
    let process = slot.caller.call.process;
    let sum = &mut slot.sums[in_flight::cell_of(rules::nr(cmd))];
    (sum.process == process && sum.cmd == cmd).then_some(sum)
}

/// The same; takes an unused place if needed.
#[inline(always)]
pub(crate) fn take_place(slot: &mut CallerSlot, cmd: u32) -> Option<&mut Sum> {
    let process = slot.caller.call.process;
    let sum = &mut slot.sums[in_flight::cell_of(rules::nr(cmd))];
    if sum.process == 0 {
        // The daemon left everything else unchanged when it freed the place, and the daemon may read it
        // before the first call is added.
        // SAFETY: integers.
        unsafe { zero(sum) };
        sum.cmd = cmd;
        // SAFETY: a valid and aligned word. Volatile and last: from then on the daemon reads the sums.
        unsafe { (&raw mut sum.process).write_volatile(process) };
    }
    (sum.process == process && sum.cmd == cmd).then_some(sum)
}

/// The value of a process and command, which other CPUs add to as well.
#[inline(never)]
fn stat_of(probe: ProbeId, process: u64, cmd: u32) -> Option<*mut IoctlStat> {
    let key = IoctlKey { process, cmd, pad: 0 };
    let stat = IOCTL_STATS.get_ptr_mut(key).or_else(|| {
        // Another CPU may have created the entry meanwhile: then this fails, and the second lookup finds it.
        let zero: &'static IoctlStat = &ZERO;
        let _ = IOCTL_STATS.insert(key, zero, u64::from(BPF_NOEXIST));
        IOCTL_STATS.get_ptr_mut(key)
    });
    stat.or_else(|| {
        losses::trouble(probe, Trouble::IoctlStatsFull);
        IOCTL_REST.get_ptr_mut(rules::nr(cmd))
    })
}

/// A call entered `kfd_ioctl`.
#[inline(always)]
pub(crate) fn entered(process: u64, cmd: u32) {
    if let Some(stat) = stat_of(ENTRY, process, cmd) {
        // SAFETY: a value of a map, to which programs only add in this way.
        unsafe { atomic::add(&raw mut (*stat).entered, 1) };
    }
}

/// `kfd_ioctl` refuses the call before any handler.
#[inline(always)]
pub(crate) fn refused(process: u64, cmd: u32, errno: u32) {
    if let Some(stat) = stat_of(ENTRY, process, cmd) {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*stat).refused, 1) };
    }
    error(ENTRY, process, cmd, errno);
}

/// The thread entered another call without this one's return having been seen.
#[inline(always)]
pub(crate) fn no_return_seen(process: u64, cmd: u32) {
    if let Some(stat) = stat_of(ENTRY, process, cmd) {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*stat).no_return_seen, 1) };
    }
}

/// A call returned `result` after `latency_ns`, for a call whose sums are in no slot.
#[inline(never)]
pub(crate) fn returned(process: u64, cmd: u32, result: i32, latency_ns: u64) {
    if let Some(stat) = stat_of(RETURN, process, cmd) {
        // SAFETY: as above.
        unsafe {
            atomic::add(&raw mut (*stat).returned, 1);
            atomic::add(&raw mut (*stat).latency_ns, latency_ns);
        }
        let buckets = stat.cast::<u64>().wrapping_add(offset_of!(IoctlStat, buckets) / size_of::<u64>());
        let bucket = bucket_of(latency_ns);
        if bucket < BUCKETS {
            // SAFETY: as above, and one of the buckets.
            unsafe { atomic::add(buckets.add(bucket), 1) };
        }
    }
    if result < 0 {
        error(RETURN, process, cmd, result.unsigned_abs());
    }
}

/// The same for a call in a slot. Returns the latency as counted.
#[inline(always)]
pub(crate) fn returned_in(slot: &mut CallerSlot, result: i32, mut latency_ns: u64) -> u64 {
    let process = slot.caller.call.process;
    // The place is the call's as long as it is the process's: the daemon frees those of ended ones.
    match slot.sums.get_mut(slot.caller.cell as usize).filter(|sum| sum.process == process) {
        Some(sum) => {
            let mut bucket = sum.bucket;
            if !is_in(bucket, latency_ns) {
                latency_ns = possible(latency_ns);
                bucket = bucket_of(latency_ns) as u32;
                sum.bucket = bucket;
            }
            count(&mut sum.stat, bucket as usize, latency_ns);
            if result < 0 {
                error_in(sum, result.unsigned_abs());
            }
        }
        None => {
            latency_ns = possible(latency_ns);
            returned(process, slot.caller.call.cmd, result, latency_ns);
        }
    }
    latency_ns
}

/// The clock may step back a little between two CPUs.
#[inline(always)]
pub(crate) fn possible(latency_ns: u64) -> u64 {
    if (latency_ns as i64) < 0 { 0 } else { latency_ns }
}

#[inline(always)]
fn count(stat: &mut IoctlStat, bucket: usize, latency_ns: u64) {
    stat.returned += 1;
    stat.latency_ns += latency_ns;
    if let Some(bucket) = stat.buckets.get_mut(bucket) {
        *bucket += 1;
    }
}

#[inline(always)]
fn error_in(sum: &mut Sum, errno: u32) {
    if sum.errno == errno {
        sum.errors += 1;
    } else {
        other_error_in(sum, errno);
    }
}

#[inline(never)]
fn other_error_in(sum: &mut Sum, errno: u32) {
    if sum.errno == 0 {
        (sum.errno, sum.errors) = (errno, 1);
    } else {
        error(RETURN, sum.process, sum.cmd, errno);
    }
}

#[inline(never)]
fn error(probe: ProbeId, process: u64, cmd: u32, errno: u32) {
    let key = ErrorKey { process, cmd, errno };
    let count = IOCTL_ERRORS.get_ptr_mut(key).or_else(|| {
        let _ = IOCTL_ERRORS.insert(key, 0, u64::from(BPF_NOEXIST));
        IOCTL_ERRORS.get_ptr_mut(key)
    });
    match count {
        // SAFETY: as above.
        Some(count) => unsafe { atomic::add(count, 1) },
        None => losses::trouble(probe, Trouble::IoctlErrorsFull),
    }
}

/// For the daemon: the hash map's value for a process and command.
#[inline(always)]
pub(crate) fn stat(key: &IoctlKey) -> Option<*const IoctlStat> {
    IOCTL_STATS.get_ptr(key)
}

/// For the daemon, about a process that has ended.
#[inline(always)]
pub(crate) fn remove(key: &IoctlKey) {
    // The entry may already be removed, which is fine.
    let _ = IOCTL_STATS.remove(key);
}

/// For the daemon: how often an errno occurred.
#[inline(always)]
pub(crate) fn errors(key: &ErrorKey) -> Option<*const u64> {
    IOCTL_ERRORS.get_ptr(key)
}

/// For the daemon, about a process that has ended.
#[inline(always)]
pub(crate) fn remove_errors(key: &ErrorKey) {
    let _ = IOCTL_ERRORS.remove(key);
}
