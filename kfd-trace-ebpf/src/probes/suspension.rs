//! Queues that a debugger suspends and resumes. Traces: `suspend_queues` and `resume_queues` (entry and return). Out: a
//! record of each call, with the result of each queue.
//!
//! Both wait for preemptions of GPUs, and the first for the wave state of the queues to be copied: seconds at most, on
//! behalf of a debugger, of which few run at once.

use crate::processes::{self, Met};
use crate::{counters, emit, kernel, losses, nested};
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::SUSPENSION_QUEUES;
use kfd_trace_common::nested::Suspension as Slot;
use kfd_trace_common::process::Entry;
use kfd_trace_common::record::Suspension;

/// `int suspend_queues(struct kfd_process *p, uint32_t num_queues, uint32_t grace_period, uint64_t
/// exception_clear_mask, uint32_t *usr_queue_id_array)`
#[kprobe]
pub(crate) fn suspend_queues(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::SuspendQueues;
    counters::hit(ID);
    let call = Slot {
        process: ctx.arg(0).unwrap_or(0),
        ids: ctx.arg(4).unwrap_or(0),
        entered_ns: now(),
        named: ctx.arg::<u64>(1).unwrap_or(0) as u32,
        grace_period: ctx.arg::<u64>(2).unwrap_or(0) as u32,
        resumes: 0,
        pad: 0,
    };
    enter(ID, &call);
    0
}

/// `int resume_queues(struct kfd_process *p, uint32_t num_queues, uint32_t *usr_queue_id_array)`: all queues without an
/// array.
#[kprobe]
pub(crate) fn resume_queues(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::ResumeQueues;
    counters::hit(ID);
    let call = Slot {
        process: ctx.arg(0).unwrap_or(0),
        ids: ctx.arg(2).unwrap_or(0),
        entered_ns: now(),
        named: ctx.arg::<u64>(1).unwrap_or(0) as u32,
        grace_period: 0,
        resumes: 1,
        pad: 0,
    };
    enter(ID, &call);
    0
}

#[inline(always)]
fn enter(probe: ProbeId, call: &Slot) {
    if nested::current::<Slot>().is_some() {
        losses::trouble(RETURN, Trouble::NestedReturnMissed);
    }
    nested::enter(probe, call);
}

/// The return of either: the driver has written the results into the caller's array.
#[kretprobe]
pub(crate) fn suspension_return(ctx: RetProbeContext) -> u32 {
    counters::hit(RETURN);
    let Some(call) = nested::leave::<Slot>() else {
        losses::trouble(RETURN, Trouble::ReturnWithoutEntry);
        return 0;
    };
    if let Some(entry) = processes::wanted(RETURN, call.process, Met::Anywhere) {
        record(&call, &entry, ctx.ret::<u64>() as i32);
    }
    0
}

const RETURN: ProbeId = ProbeId::SuspensionReturn;

#[inline(always)]
fn record(call: &Slot, entry: &Entry, result: i32) {
    let kind = if call.resumes != 0 { Kind::QueuesResumed } else { Kind::QueuesSuspended };
    emit::emit(RETURN, kind, entry, |record: &mut Suspension| {
        record.latency_ns = record.header.mono_ns.saturating_sub(call.entered_ns);
        record.result = result;
        record.grace_period = call.grace_period;
        record.all = u32::from(call.ids == 0);
        kernel::current_comm(&mut record.comm);
        if call.ids == 0 {
            return;
        }
        record.named = call.named;
        let listed = call.named.min(SUSPENSION_QUEUES as u32);
        match read_ids(call.ids, listed, &mut record.queues) {
            Some(()) => record.listed = listed,
            None => losses::trouble(RETURN, Trouble::ArgsUnreadable),
        }
    });
}

#[inline(always)]
fn read_ids(from: u64, count: u32, out: &mut [u32; SUSPENSION_QUEUES]) -> Option<()> {
    // SAFETY: the bytes of the array, and any bytes are integers.
    let bytes = unsafe { &mut *out.as_mut_ptr().cast::<[u8; SUSPENSION_QUEUES * 4]>() };
    kernel::read_user(from, bytes.get_mut(..(count * 4) as usize)?)
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_ktime_get_ns() }
}
