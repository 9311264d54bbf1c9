//! Additions to words that programs on other CPUs add to as well.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

/// Without the old value this is BPF_XADD, which every kernel has; with it, kernels before 5.12 would refuse
/// it.
///
/// # Safety
/// A valid and aligned word of a map, which programs change in this way only.
#[inline(always)]
pub(crate) unsafe fn add(word: *mut u64, by: u64) {
    // SAFETY: as the caller promises.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(word, by) };
}
