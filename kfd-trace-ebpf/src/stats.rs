//! Sums of ioctls per process and command. The only owner of `IOCTL_STATS` and `IOCTL_ERRORS`.
//!
//! A thread keeps its sums in its seat: nobody else writes there. What finds no place there goes to the two hash maps. A place
//! is taken by the first command that comes, and freed by the daemon when the process has ended.

use aya_ebpf::{bindings::BPF_NOEXIST, macros::map, maps::PerCpuHashMap};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::{self, Seat};
use kfd_trace_common::limits::{IOCTL_ERRORS_MAX, IOCTL_STATS_MAX};
use kfd_trace_common::rules;
use kfd_trace_common::stat::{ErrorKey, IoctlKey, IoctlStat, Sum, bucket_of, is_in};

use crate::losses;

#[map]
static IOCTL_STATS: PerCpuHashMap<IoctlKey, IoctlStat> = PerCpuHashMap::with_max_entries(IOCTL_STATS_MAX, 0);

#[map]
static IOCTL_ERRORS: PerCpuHashMap<ErrorKey, u64> = PerCpuHashMap::with_max_entries(IOCTL_ERRORS_MAX, 0);

/// Who counts a call at its entry, and who at its return.
const ENTRY: ProbeId = ProbeId::Ioctl;
const RETURN: ProbeId = ProbeId::IoctlReturn;

/// In read-only data and not on the stack, which has 512 bytes for everything.
static ZERO: IoctlStat = IoctlStat::ZERO;

/// What a seat keeps of the calls of a command, if it is that command's and the process's that the thread calls.
#[inline(always)]
pub(crate) fn place_of(seat: &mut Seat, cmd: u32) -> Option<&mut Sum> {
    let process = seat.caller.slot.process;
    let sum = &mut seat.sums[in_flight::cell_of(rules::nr(cmd))];
    (sum.process == process && sum.cmd == cmd).then_some(sum)
}

/// The same; a free place is taken.
#[inline(always)]
pub(crate) fn take_place(seat: &mut Seat, cmd: u32) -> Option<&mut Sum> {
    let process = seat.caller.slot.process;
    let sum = &mut seat.sums[in_flight::cell_of(rules::nr(cmd))];
    if sum.process == 0 {
        // Who freed it left all else as it was.
        sum.stat = IoctlStat::ZERO;
        // SAFETY: a valid and aligned word. Volatile, since the daemon may read it before the first call is added.
        unsafe { (&raw mut sum.stat.entered).write_volatile(0) };
        (sum.cmd, sum.awaited, sum.bucket, sum.errno, sum.errors) = (cmd, 0, 0, 0, 0);
        // SAFETY: a valid and aligned word. Volatile and last: from then on the daemon reads the sums.
        unsafe { (&raw mut sum.process).write_volatile(process) };
    }
    (sum.process == process && sum.cmd == cmd).then_some(sum)
}

#[inline(never)]
fn stat_of(probe: ProbeId, process: u64, cmd: u32) -> Option<&'static mut IoctlStat> {
    let key = IoctlKey { process, cmd, pad: 0 };
    let stat = IOCTL_STATS.get_ptr_mut(key).or_else(|| {
        // Another CPU may have made the entry meanwhile: then this fails, and the second look finds it.
        let zero: &'static IoctlStat = &ZERO;
        let _ = IOCTL_STATS.insert(key, zero, u64::from(BPF_NOEXIST));
        IOCTL_STATS.get_ptr_mut(key)
    });
    let stat = stat.or_else(|| {
        losses::trouble(probe, Trouble::IoctlStatsFull);
        // Made by the daemon beforehand, so that the machine's sums stay exact.
        IOCTL_STATS.get_ptr_mut(IoctlKey { process: 0, cmd: rules::nr(cmd), pad: 0 })
    });
    // SAFETY: a value of this CPU, and a program is not preempted by another one on its CPU.
    stat.map(|stat| unsafe { &mut *stat })
}

/// A call entered `kfd_ioctl`.
#[inline(always)]
pub(crate) fn entered(process: u64, cmd: u32) {
    if let Some(stat) = stat_of(ENTRY, process, cmd) {
        stat.entered += 1;
    }
}

/// `kfd_ioctl` refuses the call before any handler.
#[inline(always)]
pub(crate) fn refused(process: u64, cmd: u32, errno: u32) {
    if let Some(stat) = stat_of(ENTRY, process, cmd) {
        stat.refused += 1;
    }
    error(ENTRY, process, cmd, errno);
}

/// The thread entered another call without this one's return having been seen.
#[inline(always)]
pub(crate) fn no_return_seen(process: u64, cmd: u32) {
    if let Some(stat) = stat_of(ENTRY, process, cmd) {
        stat.no_return_seen += 1;
    }
}

/// A handler returned `result` after `latency_ns`, of a call whose sums are in no seat.
#[inline(never)]
pub(crate) fn returned(process: u64, cmd: u32, result: i32, latency_ns: u64) {
    if let Some(stat) = stat_of(RETURN, process, cmd) {
        count(stat, bucket_of(latency_ns), latency_ns);
    }
    if result < 0 {
        error(RETURN, process, cmd, result.unsigned_abs());
    }
}

/// The same of a call in a seat. Gives the latency as it was counted.
#[inline(always)]
pub(crate) fn returned_in(seat: &mut Seat, result: i32, mut latency_ns: u64) -> u64 {
    let process = seat.caller.slot.process;
    // The place is the call's as long as it is the process's: the daemon frees those of ended ones.
    match seat.sums.get_mut(seat.caller.cell as usize).filter(|sum| sum.process == process) {
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
            returned(process, seat.caller.slot.cmd, result, latency_ns);
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
        // SAFETY: a value of this CPU, as above.
        Some(count) => unsafe { *count += 1 },
        None => losses::trouble(probe, Trouble::IoctlErrorsFull),
    }
}
