//! Calls of `kfd_ioctl` between entry and return, by thread. The only owner of `CALLER_SLOTS`, `SLOTS_TAKEN`,
//! `CLAIMS`, `IN_FLIGHT` and `ARGS`. The daemon reads `CALLER_SLOTS`, `SLOTS_TAKEN` and `IN_FLIGHT`; for ended threads
//! and processes it releases slots, removes claims (in this order, a second apart), and drops entries of `IN_FLIGHT`.
//!
//! A thread keeps its slot, so that claiming one may be slow: no kernel before 5.12 has a
//! compare-and-exchange for programs, so the insertion of a claim in a hash map decides between two threads.
//! A thread that finds the slot occupied is kept in `IN_FLIGHT`.

use crate::nested::{self, Call};
use crate::words::zero;
use aya_ebpf::bindings::{BPF_ANY, BPF_F_MMAPABLE, BPF_NOEXIST};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap};
use kfd_trace_common::counter::Trouble;
use kfd_trace_common::in_flight::{CallerSlot, OpenCall, busy};
use kfd_trace_common::limits::{
    ARGS_LEN, ARGS_MAX, CALLER_SLOTS as CALLER_SLOTS_LEN, CALLER_SLOTS_PART, IN_FLIGHT_MAX,
};

#[map]
static CALLER_SLOTS: Array<CallerSlot> = Array::with_max_entries(CALLER_SLOTS_LEN, BPF_F_MMAPABLE);

/// 1 for each part of `CALLER_SLOTS` of which a slot was ever taken: the daemon maps no other.
#[map]
static SLOTS_TAKEN: Array<u64> =
    Array::with_max_entries(CALLER_SLOTS_LEN / CALLER_SLOTS_PART, BPF_F_MMAPABLE);

/// The thread that has claimed a slot.
#[map]
static CLAIMS: HashMap<u32, u64> = HashMap::with_max_entries(CALLER_SLOTS_LEN, 0);

#[map]
static IN_FLIGHT: HashMap<u32, OpenCall> = HashMap::with_max_entries(IN_FLIGHT_MAX, 0);

/// The arguments that the handler of a call in `IN_FLIGHT` got. An entry outlasts a missed return, until the thread's
/// next call or until more threads than fit have made one.
#[map]
static ARGS: LruHashMap<u32, Args> = LruHashMap::with_max_entries(ARGS_MAX, 0);

/// The first bytes of a call's arguments.
pub(crate) type Args = [u8; ARGS_LEN];

/// In read-only data and not on the stack.
static NO_ARGS: Args = [0; ARGS_LEN];

impl Call for OpenCall {
    const FULL: Trouble = Trouble::InFlightFull;

    #[inline(always)]
    fn map() -> &'static HashMap<u32, Self> {
        &IN_FLIGHT
    }
}

/// The slot that a thread's tid maps to, whichever thread has it.
#[inline(always)]
fn at(thread: u64) -> Option<*mut CallerSlot> {
    CALLER_SLOTS.get_ptr_mut(thread as u32 % CALLER_SLOTS_LEN)
}

/// The thread of a slot; 0 for none. Through the pointer, since it may be another thread's.
#[inline(always)]
fn holder(slot: *mut CallerSlot) -> u64 {
    // SAFETY: the first word of a value of the map. Volatile, since others write it.
    unsafe { slot.cast::<u64>().read_volatile() }
}

#[inline(always)]
fn set_holder(slot: *mut CallerSlot, thread: u64) {
    // SAFETY: as above. Volatile, so that the compiler keeps it at this place.
    unsafe { slot.cast::<u64>().write_volatile(thread) };
}

/// The slot of the running thread.
#[inline(always)]
fn own(slot: *mut CallerSlot) -> &'static mut CallerSlot {
    // SAFETY: a value of the map. Of the programs only this thread uses it, on whatever CPU it runs: a thread
    // that finds another one there leaves it alone. The daemon stores 0 over `thread` and over a sum's
    // `process`, whole words, and no program relies on finding there what it has found before.
    unsafe { &mut *slot }
}

/// The slot of the running thread; `None` if another one has it.
#[inline(always)]
pub(crate) fn slot() -> Option<&'static mut CallerSlot> {
    let thread = bpf_get_current_pid_tgid();
    let slot = at(thread)?;
    if holder(slot) != thread && !take(thread) {
        return None;
    }
    Some(own(slot))
}

/// Claims a slot for a thread that has none yet. The sums are kept: they belong to the daemon, until their
/// process has ended.
#[inline(never)]
fn take(thread: u64) -> bool {
    let Some(slot) = at(thread) else { return false };
    let holder = holder(slot);
    if holder != 0 && holder as u32 == thread as u32 {
        // Its tid was reused, or it has become another process: no other thread can be using the slot.
        own(slot).caller.file = 0;
        set_holder(slot, thread);
        return true;
    }
    if CLAIMS.insert(thread as u32 % CALLER_SLOTS_LEN, thread, u64::from(BPF_NOEXIST)).is_err() {
        return false;
    }
    let caller = &mut own(slot).caller;
    // SAFETY: `Caller::NONE` is all zeros.
    unsafe { zero(caller) };
    if let Some(stale) = nested::leave::<OpenCall>() {
        caller.call = stale;
        caller.busy = busy::IN_CALL;
    }
    if let Some(part) = SLOTS_TAKEN.get_ptr_mut(thread as u32 % CALLER_SLOTS_LEN / CALLER_SLOTS_PART) {
        // SAFETY: a value of the map. All who write it write the same.
        unsafe { part.write_volatile(1) };
    }
    set_holder(slot, thread);
    true
}

/// The running thread stays in a slot that it has found to be its own: the daemon may have released it
/// meanwhile, taking the thread for ended. To be called after `busy` is set. A call that uses cached data
/// need not call it: the daemon invalidates that, and waits for a second, before it releases the slot.
#[inline(always)]
pub(crate) fn stay(slot: &mut CallerSlot) {
    set_holder(slot, bpf_get_current_pid_tgid());
}

/// The slot of the running thread, if it has one: then `IN_FLIGHT` holds no call of it.
#[inline(always)]
pub(crate) fn own_slot() -> Option<&'static mut CallerSlot> {
    let thread = bpf_get_current_pid_tgid();
    at(thread).filter(|slot| holder(*slot) == thread).map(own)
}

/// The call that the running thread is in.
#[inline(always)]
pub(crate) fn current() -> Option<&'static mut OpenCall> {
    match own_slot() {
        Some(slot) if slot.caller.busy == busy::IN_CALL => Some(&mut slot.caller.call),
        Some(_) => None,
        // SAFETY: a value of the map, and only this thread writes it.
        None => nested::current::<OpenCall>().map(|call| unsafe { &mut *call }),
    }
}

/// Where the arguments of the running thread's call are kept; `make`: a place is made for a thread without a slot.
#[inline(always)]
pub(crate) fn args(make: bool) -> Option<*mut Args> {
    if let Some(slot) = own_slot() {
        return Some(&raw mut slot.args);
    }
    let tid = bpf_get_current_pid_tgid() as u32;
    if make {
        let none: &'static Args = &NO_ARGS;
        ARGS.insert(tid, none, u64::from(BPF_ANY)).ok()?;
    }
    ARGS.get_ptr_mut(tid)
}

/// Address of the `struct kfd_process` that the running thread calls for, also where that is not selected; 0 when it
/// is in no call, or in one of another process without a slot.
#[inline(always)]
pub(crate) fn owner() -> u64 {
    match own_slot() {
        Some(slot) if slot.caller.busy == busy::NO => 0,
        Some(slot) => slot.caller.call.owner,
        // SAFETY: a value of the map, and only this thread writes it.
        None => nested::current::<OpenCall>().map_or(0, |call| unsafe { (*call).owner }),
    }
}

/// The command of the call that the running thread is in; 0 when it is in none.
#[inline(always)]
pub(crate) fn current_cmd() -> u32 {
    current().map_or(0, |call| call.cmd)
}

/// For the daemon, about a process that has ended.
#[inline(always)]
pub(crate) fn remove_call(tid: u32) {
    // The entry may already be removed, which is fine.
    let _ = IN_FLIGHT.remove(tid);
}

/// For the daemon, about a slot that it has released.
#[inline(always)]
pub(crate) fn remove_claim(slot: u32) {
    let _ = CLAIMS.remove(slot);
}
