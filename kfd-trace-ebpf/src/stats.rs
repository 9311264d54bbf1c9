//! Sums of ioctls per process and command. The only owner of `IOCTL_STATS` and `IOCTL_ERRORS`.

use aya_ebpf::{bindings::BPF_NOEXIST, macros::map, maps::PerCpuHashMap};
use kfd_trace_common::counter::Trouble;
use kfd_trace_common::limits::{IOCTL_ERRORS_MAX, IOCTL_STATS_MAX};
use kfd_trace_common::rules;
use kfd_trace_common::stat::{ErrorKey, IoctlKey, IoctlStat, bucket_of};

use crate::counters;

#[map]
static IOCTL_STATS: PerCpuHashMap<IoctlKey, IoctlStat> = PerCpuHashMap::with_max_entries(IOCTL_STATS_MAX, 0);

#[map]
static IOCTL_ERRORS: PerCpuHashMap<ErrorKey, u64> = PerCpuHashMap::with_max_entries(IOCTL_ERRORS_MAX, 0);

/// In read-only data and not on the stack, which has 512 bytes for everything.
static ZERO: IoctlStat = IoctlStat::ZERO;

#[inline(always)]
fn stat_of(process: u64, cmd: u32) -> Option<&'static mut IoctlStat> {
    let key = IoctlKey { process, cmd, pad: 0 };
    let stat = IOCTL_STATS.get_ptr_mut(key).or_else(|| {
        // Another CPU may have made the entry meanwhile: then this fails, and the second look finds it.
        let zero: &'static IoctlStat = &ZERO;
        let _ = IOCTL_STATS.insert(key, zero, u64::from(BPF_NOEXIST));
        IOCTL_STATS.get_ptr_mut(key)
    });
    let stat = stat.or_else(|| {
        counters::trouble(Trouble::IoctlStatsFull);
        // Made by the daemon beforehand, so that the machine's sums stay exact.
        IOCTL_STATS.get_ptr_mut(IoctlKey { process: 0, cmd: rules::nr(cmd), pad: 0 })
    });
    // SAFETY: a value of this CPU, and a program is not preempted by another one on its CPU.
    stat.map(|stat| unsafe { &mut *stat })
}

/// A call entered `kfd_ioctl`.
#[inline(always)]
pub(crate) fn entered(process: u64, cmd: u32) {
    if let Some(stat) = stat_of(process, cmd) {
        stat.entered += 1;
    }
}

/// `kfd_ioctl` refuses the call before any handler.
#[inline(always)]
pub(crate) fn refused(process: u64, cmd: u32, errno: u32) {
    if let Some(stat) = stat_of(process, cmd) {
        stat.refused += 1;
    }
    error(process, cmd, errno);
}

/// The thread entered another call without this one's return having been seen.
#[inline(always)]
pub(crate) fn no_return_seen(process: u64, cmd: u32) {
    if let Some(stat) = stat_of(process, cmd) {
        stat.no_return_seen += 1;
    }
}

/// A handler returned `result` after `latency_ns`.
#[inline(always)]
pub(crate) fn returned(process: u64, cmd: u32, result: i32, latency_ns: u64) {
    if let Some(stat) = stat_of(process, cmd) {
        stat.returned += 1;
        stat.latency_ns += latency_ns;
        if let Some(bucket) = stat.buckets.get_mut(bucket_of(latency_ns)) {
            *bucket += 1;
        }
    }
    if result < 0 {
        error(process, cmd, result.unsigned_abs());
    }
}

#[inline(always)]
fn error(process: u64, cmd: u32, errno: u32) {
    let key = ErrorKey { process, cmd, errno };
    let count = IOCTL_ERRORS.get_ptr_mut(key).or_else(|| {
        let _ = IOCTL_ERRORS.insert(key, 0, u64::from(BPF_NOEXIST));
        IOCTL_ERRORS.get_ptr_mut(key)
    });
    match count {
        // SAFETY: a value of this CPU, as above.
        Some(count) => unsafe { *count += 1 },
        None => counters::trouble(Trouble::IoctlErrorsFull),
    }
}
