//! Entries of hash maps, read and removed for the daemon. The only owner of `ENTRY`.
//!
//! Attached to nothing: the daemon runs it by BPF_PROG_TEST_RUN, one entry per run, and has `ENTRY` mapped
//! into its memory. A bpf(2) lookup or removal would keep kprobe programs from running on its CPU
//! (`bpf_disable_instrumentation`), and a thread that is preempted in one keeps them so until it runs again;
//! a program does not (`bpf_prog_test_run_raw_tp`).

use crate::{in_flight, nested, processes, stats, words};
use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::RawTracePointContext;
use kfd_trace_common::in_flight::OpenCall;
use kfd_trace_common::lookup::{table, verb};
use kfd_trace_common::nested::{Eviction, MesCall, Releasing, Schedule, Suspension, Update, UserQueue};
use kfd_trace_common::peek::Answer;
use kfd_trace_common::stat::{ErrorKey, IoctlKey};

#[map]
static ENTRY: Array<Answer> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Arguments: verb, table, key. The result is in the map: a raw tracepoint's program has no return value.
#[raw_tracepoint]
pub(crate) fn lookup(ctx: RawTracePointContext) -> i32 {
    let Some(answer) = ENTRY.get_ptr_mut(0) else { return 0 };
    // SAFETY: the one value of the map; the daemon runs this program from one thread at a time.
    let answer = unsafe { &mut *answer };
    answer.len = 0;
    let (verb, table, first, second): (u64, u64, u64, u64) = (ctx.arg(0), ctx.arg(1), ctx.arg(2), ctx.arg(3));
    match verb {
        verb::READ => read(answer, table, first, second),
        verb::REMOVE => remove(table, first, second),
        verb::REMEMBER => processes::remember(),
        verb::VOID => processes::changed(),
        verb::EXPIRE => expire(table, first as u32),
        _ => {}
    }
    0
}

#[inline(always)]
fn read(answer: &mut Answer, table: u64, first: u64, second: u64) {
    match table {
        table::IOCTL_STATS => copy(answer, stats::stat(&ioctl_key(first, second))),
        table::IOCTL_ERRORS => copy(answer, stats::errors(&error_key(first, second))),
        table::IN_FLIGHT => copy(answer, nested::call_of::<OpenCall>(first as u32)),
        table::PROCESSES => copy(answer, processes::entry(first)),
        table::PASIDS => copy(answer, processes::holder(first as u32)),
        table::UPDATES => copy(answer, nested::call_of::<Update>(first as u32)),
        table::EVICTIONS => copy(answer, nested::call_of::<Eviction>(first as u32)),
        table::USER_QUEUES => copy(answer, nested::call_of::<UserQueue>(first as u32)),
        table::RELEASING => copy(answer, nested::call_of::<Releasing>(first as u32)),
        table::SUSPENSIONS => copy(answer, nested::call_of::<Suspension>(first as u32)),
        table::SCHEDULES => copy(answer, nested::call_of::<Schedule>(first as u32)),
        table::MES_CALLS => copy(answer, nested::call_of::<MesCall>(first as u32)),
        _ => {}
    }
}

#[inline(always)]
fn remove(table: u64, first: u64, second: u64) {
    match table {
        table::IOCTL_STATS => stats::remove(&ioctl_key(first, second)),
        table::IOCTL_ERRORS => stats::remove_errors(&error_key(first, second)),
        table::IN_FLIGHT => in_flight::remove_call(first as u32),
        table::CLAIMS => in_flight::remove_claim(first as u32),
        table::PROCESSES => processes::remove_entry(first),
        table::PASIDS => processes::remove_holder(first as u32),
        _ => {}
    }
}

#[inline(always)]
fn expire(table: u64, tid: u32) {
    match table {
        table::UPDATES => nested::expire::<Update>(tid),
        table::EVICTIONS => nested::expire::<Eviction>(tid),
        table::USER_QUEUES => nested::expire::<UserQueue>(tid),
        table::RELEASING => nested::expire::<Releasing>(tid),
        table::SUSPENSIONS => nested::expire::<Suspension>(tid),
        table::SCHEDULES => nested::remove_schedule(tid),
        table::MES_CALLS => nested::remove_mes(tid),
        _ => {}
    }
}

#[inline(always)]
fn ioctl_key(process: u64, cmd: u64) -> IoctlKey {
    IoctlKey { process, cmd: cmd as u32, pad: 0 }
}

#[inline(always)]
fn error_key(process: u64, cmd: u64) -> ErrorKey {
    ErrorKey { process, cmd: cmd as u32, errno: (cmd >> 32) as u32 }
}

/// Copies a value of a map, which programs may be writing.
#[inline(always)]
fn copy<T: Copy>(answer: &mut Answer, value: Option<*const T>) {
    const { assert!(size_of::<T>() <= size_of::<[u8; kfd_trace_common::limits::PEEK_LEN]>()) };
    let Some(value) = value else { return };
    // SAFETY: a value of a map, and space for it with the same alignment.
    unsafe { words::copy(value, answer.bytes.as_mut_ptr().cast::<T>()) };
    answer.len = size_of::<T>() as u64;
}
