//! Per-CPU counters: probe hits, records, troubles. The only owner of `COUNTERS`.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use kfd_trace_common::counter::{self, COUNTERS as LEN, ProbeId, Trouble};
use kfd_trace_common::kind::Kind;

#[map]
static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(LEN, 0);

#[inline(always)]
fn add(index: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(index) {
        // SAFETY: the verifier knows this pointer as a value of this CPU, and a program is not preempted by
        // another one on its CPU.
        unsafe { *counter += 1 };
    }
}

#[inline(always)]
pub(crate) fn hit(probe: ProbeId) {
    add(counter::hits(probe));
}

#[inline(always)]
pub(crate) fn trouble(trouble: Trouble) {
    add(counter::trouble(trouble));
}

#[inline(always)]
pub(crate) fn sent(kind: Kind) {
    add(counter::sent(kind));
}

#[inline(always)]
pub(crate) fn lost(kind: Kind) {
    add(counter::lost(kind));
}
