//! Calls inside the driver between entry and return, by thread: for results known only at the return, and for
//! calls that call each other. The only owner of `UPDATES`, `MQDS`, `EVICTIONS` and `USER_QUEUES`.

use crate::losses;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::{bindings::BPF_ANY, macros::map, maps::HashMap};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::limits::NESTED_MAX;
use kfd_trace_common::nested::{Eviction, Mqd, Update, UserQueue};

#[map]
static UPDATES: HashMap<u32, Update> = HashMap::with_max_entries(NESTED_MAX, 0);

#[map]
static MQDS: HashMap<u32, Mqd> = HashMap::with_max_entries(NESTED_MAX, 0);

#[map]
static EVICTIONS: HashMap<u32, Eviction> = HashMap::with_max_entries(NESTED_MAX, 0);

#[map]
static USER_QUEUES: HashMap<u32, UserQueue> = HashMap::with_max_entries(NESTED_MAX, 0);

/// One kind of call: where the running thread's call is kept.
pub(crate) trait Call: Copy + 'static {
    /// The trouble that a full map is counted as.
    const FULL: Trouble;

    fn map() -> &'static HashMap<u32, Self>;
}

macro_rules! calls {
    ($($call:ident in $map:ident;)*) => {
        $(impl Call for $call {
            const FULL: Trouble = Trouble::NestedFull;

            #[inline(always)]
            fn map() -> &'static HashMap<u32, Self> {
                &$map
            }
        })*
    };
}

calls! {
    Update in UPDATES;
    Mqd in MQDS;
    Eviction in EVICTIONS;
    UserQueue in USER_QUEUES;
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
