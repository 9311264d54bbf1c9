//! Calls of `kfd_ioctl` between entry and return, by thread. The only owner of `IN_FLIGHT`.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::{bindings::BPF_ANY, macros::map, maps::HashMap};
use kfd_trace_common::counter::Trouble;
use kfd_trace_common::in_flight::Slot;
use kfd_trace_common::limits::IN_FLIGHT_MAX;

use crate::counters;

#[map]
static IN_FLIGHT: HashMap<u32, Slot> = HashMap::with_max_entries(IN_FLIGHT_MAX, 0);

#[inline(always)]
fn tid() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

/// The call that the running thread is in.
#[inline(always)]
pub(crate) fn current() -> Option<*mut Slot> {
    IN_FLIGHT.get_ptr_mut(tid())
}

/// Its command; 0 when the thread is in none.
#[inline(always)]
pub(crate) fn current_cmd() -> u32 {
    // SAFETY: a value of the map, and only this thread writes it.
    current().map_or(0, |slot| unsafe { (*slot).cmd })
}

/// Notes that the running thread entered a call.
#[inline(always)]
pub(crate) fn enter(slot: &Slot) {
    if IN_FLIGHT.insert(tid(), slot, u64::from(BPF_ANY)).is_err() {
        counters::trouble(Trouble::InFlightFull);
    }
}

/// Takes the running thread's call out. A slot is always taken out at the return: a stale one would lend its
/// start to a later call whose entry was missed.
#[inline(always)]
pub(crate) fn leave() -> Option<Slot> {
    let tid = tid();
    // SAFETY: a value of the map, copied before it is removed; only this thread writes it.
    let slot = unsafe { *IN_FLIGHT.get_ptr(tid)? };
    // It was there a moment ago, and nobody else removes this thread's slot.
    let _ = IN_FLIGHT.remove(tid);
    Some(slot)
}
