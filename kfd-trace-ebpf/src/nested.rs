//! Calls inside the driver between entry and return, by thread: for results known only at the return. Also
//! the last MQD write of threads that are in no call of `kfd_ioctl`, the last change of a GPU's list of queues, and
//! the GPU that a thread would find hanging. The only owner of `UPDATES`, `MQDS`, `SCHEDULES`, `MES_CALLS`, `HANG_SCOPES`,
//! `EVICTIONS`, `USER_QUEUES`, `SUSPENSIONS` and `RELEASING`.
//!
//! An entry whose return was missed would wait for the thread's next call, and kworkers make few: the daemon
//! removes what is left of a thread that has ended or works on nothing, and what stays the same for five minutes
//! ([`expire`]).

use crate::losses;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::{
    bindings::BPF_ANY,
    macros::map,
    maps::{HashMap, LruHashMap},
};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::limits::{NESTED_MAX, SUSPENSIONS_MAX};
use kfd_trace_common::nested::{Eviction, MesCall, Mqd, Releasing, Schedule, Suspension, Update, UserQueue};

#[map]
static UPDATES: HashMap<u32, Update> = HashMap::with_max_entries(NESTED_MAX, 0);

/// An entry outlasts its write, until the thread's next one or until more threads than fit have written.
#[map]
static MQDS: LruHashMap<u32, Mqd> = LruHashMap::with_max_entries(NESTED_MAX, 0);

/// An entry outlasts a call that makes no request to the firmware, until the thread's next one or until the daemon
/// removes it.
#[map]
static MES_CALLS: HashMap<u32, MesCall> = HashMap::with_max_entries(NESTED_MAX, 0);

impl Call for MesCall {
    const FULL: Trouble = Trouble::NestedFull;

    #[inline(always)]
    fn map() -> &'static HashMap<u32, Self> {
        &MES_CALLS
    }
}

/// An entry outlasts a change that does not end in a new list, until the thread's next one or until the daemon
/// removes it.
#[map]
static SCHEDULES: HashMap<u32, Schedule> = HashMap::with_max_entries(NESTED_MAX, 0);

impl Call for Schedule {
    const FULL: Trouble = Trouble::NestedFull;

    #[inline(always)]
    fn map() -> &'static HashMap<u32, Self> {
        &SCHEDULES
    }
}

/// Address of the `struct device_queue_manager` that the thread would find hanging. An entry outlasts what it is about,
/// until the thread's next one or until more threads than fit have had one.
#[map]
static HANG_SCOPES: LruHashMap<u32, u64> = LruHashMap::with_max_entries(NESTED_MAX, 0);

#[map]
static EVICTIONS: HashMap<u32, Eviction> = HashMap::with_max_entries(NESTED_MAX, 0);

#[map]
static USER_QUEUES: HashMap<u32, UserQueue> = HashMap::with_max_entries(NESTED_MAX, 0);

#[map]
static SUSPENSIONS: HashMap<u32, Suspension> = HashMap::with_max_entries(SUSPENSIONS_MAX, 0);

#[map]
static RELEASING: HashMap<u32, Releasing> = HashMap::with_max_entries(256, 0);

/// One kind of call: where the running thread's call is kept.
pub(crate) trait Call: Copy + 'static {
    /// The trouble that a full map is counted as.
    const FULL: Trouble;

    fn map() -> &'static HashMap<u32, Self>;
}

/// A call that can expire.
pub(crate) trait Expires: Call {
    /// The probe of its return, and what a missed one is counted as.
    const RETURN: ProbeId;
    const MISSED: Trouble;
}

macro_rules! calls {
    ($($call:ident in $map:ident: $full:ident, $missed:ident of $return:ident;)*) => {
        $(impl Call for $call {
            const FULL: Trouble = Trouble::$full;

            #[inline(always)]
            fn map() -> &'static HashMap<u32, Self> {
                &$map
            }
        }

        impl Expires for $call {
            const RETURN: ProbeId = ProbeId::$return;
            const MISSED: Trouble = Trouble::$missed;
        })*
    };
}

calls! {
    Update in UPDATES: NestedFull, NestedReturnMissed of QueueUpdateReturn;
    Eviction in EVICTIONS: NestedFull, NestedReturnMissed of EvictGpuReturn;
    UserQueue in USER_QUEUES: NestedFull, NestedReturnMissed of UserQueueReturn;
    Suspension in SUSPENSIONS: NestedFull, NestedReturnMissed of SuspensionReturn;
    Releasing in RELEASING: ReleasingFull, NestedReturnMissed of WqReleaseReturn;
}

#[inline(always)]
fn tid() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

/// The running thread's call, if it is in one. Only this thread writes its slot.
#[inline(always)]
pub(crate) fn current<T: Call>() -> Option<*mut T> {
    T::map().get_ptr_mut(tid())
}

/// Stores that the running thread is in a call; a full map is counted.
#[inline(always)]
pub(crate) fn enter<T: Call>(probe: ProbeId, call: &T) {
    if T::map().insert(tid(), call, u64::from(BPF_ANY)).is_err() {
        losses::trouble(probe, T::FULL);
    }
}

/// Removes and returns the running thread's call. It is always removed at the return: a stale one would pass
/// its start to a later call whose entry was missed.
#[inline(always)]
pub(crate) fn leave<T: Call>() -> Option<T> {
    let tid = tid();
    // SAFETY: a value of the map, copied before it is removed; only this thread writes it.
    let call = unsafe { *T::map().get_ptr(tid)? };
    // It existed a moment ago, and only this thread removes its own slot.
    let _ = T::map().remove(tid);
    Some(call)
}

/// A thread's call, for the daemon.
#[inline(always)]
pub(crate) fn call_of<T: Call>(tid: u32) -> Option<*const T> {
    T::map().get_ptr(tid)
}

/// Removes a call whose return was missed, for the daemon.
#[inline(always)]
pub(crate) fn expire<T: Expires>(tid: u32) {
    if T::map().remove(tid).is_ok() {
        losses::trouble(T::RETURN, T::MISSED);
    }
}

/// The running thread's last MQD write outside of `kfd_ioctl`.
#[inline(always)]
pub(crate) fn mqd() -> Option<&'static Mqd> {
    // SAFETY: a value of the map, which only this thread writes.
    unsafe { MQDS.get(tid()) }
}

#[inline(always)]
pub(crate) fn set_mqd(probe: ProbeId, write: &Mqd) {
    if MQDS.insert(tid(), write, u64::from(BPF_ANY)).is_err() {
        losses::trouble(probe, Trouble::NestedFull);
    }
}

/// It is over.
#[inline(always)]
pub(crate) fn end_mqd() {
    // There may be none.
    let _ = MQDS.remove(tid());
}

/// The running thread's change of a GPU's list of queues.
#[inline(always)]
pub(crate) fn schedule() -> Option<&'static mut Schedule> {
    // SAFETY: a value of the map, which only this thread writes.
    current::<Schedule>().map(|schedule| unsafe { &mut *schedule })
}

/// Removes one that did not end in a new list, for the daemon.
#[inline(always)]
pub(crate) fn remove_schedule(tid: u32) {
    // It may have ended meanwhile.
    let _ = SCHEDULES.remove(tid);
}

/// The queue that the running thread adds to the firmware scheduler, or removes from it.
#[inline(always)]
pub(crate) fn mes() -> Option<&'static mut MesCall> {
    // SAFETY: a value of the map, which only this thread writes.
    current::<MesCall>().map(|call| unsafe { &mut *call })
}

/// Removes a leftover one, for the daemon.
#[inline(always)]
pub(crate) fn remove_mes(tid: u32) {
    // SAFETY: a value of the map, which is only read.
    let requested = MES_CALLS.get_ptr(tid).is_some_and(|call| unsafe { (*call).called_ns } != 0);
    if MES_CALLS.remove(tid).is_ok() && requested {
        losses::trouble(ProbeId::MesCallReturn, Trouble::NestedReturnMissed);
    }
}

/// Stores that a hang that the running thread finds is one of this `struct device_queue_manager`.
#[inline(always)]
pub(crate) fn set_hang_scope(probe: ProbeId, dqm: u64) {
    if HANG_SCOPES.insert(tid(), &dqm, u64::from(BPF_ANY)).is_err() {
        losses::trouble(probe, Trouble::NestedFull);
    }
}

/// Removes and returns the `struct device_queue_manager` that the running thread would find hanging.
#[inline(always)]
pub(crate) fn take_hang_scope() -> Option<u64> {
    let tid = tid();
    // SAFETY: a value of the map, copied before it is removed; only this thread writes it.
    let dqm = unsafe { *HANG_SCOPES.get(tid)? };
    // It existed a moment ago, and only this thread or a full map removes it.
    let _ = HANG_SCOPES.remove(tid);
    Some(dqm)
}
