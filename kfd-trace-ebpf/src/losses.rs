//! Counters of what does not get through, by the probe whose program failed: records that found the ring
//! buffer full, troubles. The only owner of `LOSSES`.
//!
//! One array for all CPUs, mapped by the daemon like `COUNTERS`.

use crate::atomic;
use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::{macros::map, maps::Array};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::loss::{self, LOSSES as LEN};

#[map]
static LOSSES: Array<u64> = Array::with_max_entries(LEN, BPF_F_MMAPABLE);

#[inline(always)]
fn add(index: u32) {
    if let Some(counter) = LOSSES.get_ptr_mut(index) {
        // SAFETY: a valid and aligned word of the map, which programs change in this way only.
        unsafe { atomic::add(counter, 1) };
    }
}

/// A record of this kind found the ring buffer full.
#[inline(always)]
pub(crate) fn lost(probe: ProbeId, kind: Kind) {
    add(loss::lost(probe, kind));
}

#[inline(always)]
pub(crate) fn trouble(probe: ProbeId, trouble: Trouble) {
    add(loss::trouble(probe, trouble));
}
