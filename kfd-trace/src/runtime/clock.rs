//! The clocks: records carry CLOCK_MONOTONIC, users read wall time.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds of CLOCK_MONOTONIC now.
#[must_use]
pub fn mono_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

/// Nanoseconds of CLOCK_BOOTTIME now: the clock of a process's start.
#[must_use]
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

/// CPU time of all threads of this process.
#[must_use]
pub fn own_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_nanos(nanoseconds(now.tv_sec, now.tv_nsec))
}

/// The offset from CLOCK_MONOTONIC to the Unix epoch, nanoseconds. Must be read again from time to time,
/// since the wall clock is set and slewed.
#[must_use]
pub fn wall_minus_mono_ns() -> i64 {
    unix_ns() - i64::try_from(mono_ns()).unwrap_or(i64::MAX)
}

/// The offset from CLOCK_MONOTONIC to CLOCK_BOOTTIME, nanoseconds: it changes only while the machine sleeps, but the two
/// are read one after the other.
#[must_use]
pub fn boot_minus_mono_ns() -> i64 {
    let (mono, boot) = (mono_ns(), boot_ns());
    i64::try_from(boot.saturating_sub(mono)).unwrap_or(i64::MAX)
}

/// Nanoseconds of the Unix epoch now.
#[must_use]
pub fn unix_ns() -> i64 {
    let wall = clock_gettime(ClockId::Realtime);
    i64::try_from(nanoseconds(wall.tv_sec, wall.tv_nsec)).unwrap_or(i64::MAX)
}

/// Nanoseconds as seconds.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
}
