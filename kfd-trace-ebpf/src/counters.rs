//! Counters: probe hits and records sent. The only owner of `COUNTERS`.
//!
//! One array with one part per CPU, and no per-CPU map: the daemon maps it into its memory and reads without
//! a system call. While a bpf(2) lookup is under way, the kernel runs no kprobe program on that CPU, whatever
//! thread is on it.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use aya_ebpf::{macros::map, maps::Array};
use kfd_trace_common::counter::{self, ProbeId, STRIDE};
use kfd_trace_common::kind::Kind;

/// The loader sizes it for the number of CPUs of this machine.
#[map]
static COUNTERS: Array<u64> = Array::with_max_entries(STRIDE, BPF_F_MMAPABLE);

#[inline(always)]
fn add(index: u32) {
    // SAFETY: no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    if let Some(counter) = COUNTERS.get_ptr_mut(cpu * STRIDE + index) {
        // SAFETY: only programs on this CPU write here, and a program is not preempted by another one on its
        // CPU.
        unsafe { *counter += 1 };
    }
}

#[inline(always)]
pub(crate) fn hit(probe: ProbeId) {
    add(counter::hits(probe));
}

#[inline(always)]
pub(crate) fn sent(kind: Kind) {
    add(counter::sent(kind));
}
