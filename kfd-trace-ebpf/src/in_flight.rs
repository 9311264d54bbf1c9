//! Calls of `kfd_ioctl` between entry and return, by thread. The only owner of `IN_FLIGHT`, which the daemon reads.

use aya_ebpf::{macros::map, maps::HashMap};
use kfd_trace_common::counter::Trouble;
use kfd_trace_common::in_flight::Slot;
use kfd_trace_common::limits::IN_FLIGHT_MAX;

use crate::nested::{self, Call};

#[map]
static IN_FLIGHT: HashMap<u32, Slot> = HashMap::with_max_entries(IN_FLIGHT_MAX, 0);

impl Call for Slot {
    const FULL: Trouble = Trouble::InFlightFull;

    #[inline(always)]
    fn map() -> &'static HashMap<u32, Self> {
        &IN_FLIGHT
    }
}

/// The command of the call that the running thread is in; 0 when it is in none.
#[inline(always)]
pub(crate) fn current_cmd() -> u32 {
    // SAFETY: a value of the map, and only this thread writes it.
    nested::current::<Slot>().map_or(0, |slot| unsafe { (*slot).cmd })
}
