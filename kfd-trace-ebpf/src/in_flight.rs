//! Calls of `kfd_ioctl` between entry and return, by thread. The only owner of `SEATS`, `CLAIMS` and `IN_FLIGHT`; the
//! daemon reads the first and the last, and drops of all three what ended processes have left.
//!
//! A thread keeps its seat, so that taking one may cost: no kernel before 5.12 has a compare-and-exchange for programs, so the
//! insertion of a claim in a hash map decides between two threads. Who finds the seat taken is kept in `IN_FLIGHT`.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_NOEXIST};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use kfd_trace_common::counter::Trouble;
use kfd_trace_common::in_flight::{Caller, Seat, Slot};
use kfd_trace_common::limits::{IN_FLIGHT_MAX, SEATS as SEATS_LEN};

use crate::nested::{self, Call};

#[map]
static SEATS: Array<Seat> = Array::with_max_entries(SEATS_LEN, BPF_F_MMAPABLE);

/// Who has claimed a seat.
#[map]
static CLAIMS: HashMap<u32, u64> = HashMap::with_max_entries(SEATS_LEN, 0);

#[map]
static IN_FLIGHT: HashMap<u32, Slot> = HashMap::with_max_entries(IN_FLIGHT_MAX, 0);

impl Call for Slot {
    const FULL: Trouble = Trouble::InFlightFull;

    #[inline(always)]
    fn map() -> &'static HashMap<u32, Self> {
        &IN_FLIGHT
    }
}

#[inline(always)]
fn at(thread: u64) -> Option<&'static mut Seat> {
    // SAFETY: a value of the map. Of the programs only the thread of the seat writes it, on whatever CPU it runs, and the one
    // that has just claimed it; who finds another thread there leaves it alone. The daemon writes `thread` and the sums of
    // ended processes.
    SEATS.get_ptr_mut(thread as u32 % SEATS_LEN).map(|seat| unsafe { &mut *seat })
}

/// The seat of the running thread; `None` if another one has it.
#[inline(always)]
pub(crate) fn seat() -> Option<&'static mut Seat> {
    let thread = bpf_get_current_pid_tgid();
    let seat = at(thread)?;
    if seat.caller.thread != thread && !take(thread) {
        return None;
    }
    Some(seat)
}

/// Takes a seat for a thread that has none yet. Sums stay: they are cleared by the daemon, when their process has ended.
#[inline(never)]
fn take(thread: u64) -> bool {
    let Some(seat) = at(thread) else { return false };
    let caller = &mut seat.caller;
    if caller.thread != 0 && caller.thread as u32 == thread as u32 {
        // Its tid is given again, or it has become another process: nobody else can be using the seat.
        caller.file = 0;
        caller.thread = thread;
        return true;
    }
    if CLAIMS.insert(thread as u32 % SEATS_LEN, thread, u64::from(BPF_NOEXIST)).is_err() {
        return false;
    }
    *caller = Caller::NOBODY;
    if let Some(stale) = nested::leave::<Slot>() {
        caller.slot = stale;
        caller.busy = 1;
    }
    caller.thread = thread;
    true
}

/// The seat of the running thread, if it has one: then `IN_FLIGHT` holds no call of it.
#[inline(always)]
pub(crate) fn own_seat() -> Option<&'static mut Seat> {
    let thread = bpf_get_current_pid_tgid();
    at(thread).filter(|seat| seat.caller.thread == thread)
}

/// The call that the running thread is in.
#[inline(always)]
pub(crate) fn current() -> Option<&'static mut Slot> {
    match own_seat() {
        Some(seat) if seat.caller.busy != 0 => Some(&mut seat.caller.slot),
        Some(_) => None,
        // SAFETY: a value of the map, and only this thread writes it.
        None => nested::current::<Slot>().map(|slot| unsafe { &mut *slot }),
    }
}

/// The command of the call that the running thread is in; 0 when it is in none.
#[inline(always)]
pub(crate) fn current_cmd() -> u32 {
    current().map_or(0, |slot| slot.cmd)
}
