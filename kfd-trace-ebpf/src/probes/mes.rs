//! Queues that the driver adds to the firmware scheduler MES and removes from it (gfx11 and later). Traces:
//! `add_queue_mes` and `remove_queue_mes` (which queue, and why), `mes_v*_add_hw_queue` and `mes_v*_remove_hw_queue` (the
//! request to the firmware). Out: a record for each request, at its return.
//!
//! Of the second two a driver has one for each generation of GPUs. It also calls them for queues that do not pass KFD,
//! and does not call them where the scheduler is stopped or the GPU is being reset: the doorbell shows whether it is the
//! queue that the thread came for. Both are called under locks of the GPU, so few returns are awaited at once.

use crate::kernel::{self, read};
use crate::probes::queue;
use crate::probes::registers::return_address;
use crate::{counters, emit, in_flight, losses, nested};
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::nested::MesCall;
use kfd_trace_common::record::{MesQueue, mes};

/// `int add_queue_mes(struct device_queue_manager *dqm, struct queue *q, struct qcm_process_device *qpd)`
#[kprobe]
pub(crate) fn mes_add(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::MesAdd;
    counters::hit(ID);
    enter(ID, &ctx, mes::ADD);
    0
}

/// `int remove_queue_mes(dqm, q, qpd)`, without the last one where the compiler found that it is not used. Since 7.2
/// `remove_queue_mes_on_reset_option(dqm, q, qpd, bool is_for_reset, bool flush_mes_queue)`.
#[kprobe]
pub(crate) fn mes_remove(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::MesRemove;
    counters::hit(ID);
    enter(ID, &ctx, mes::REMOVE);
    0
}

#[inline(always)]
fn enter(probe: ProbeId, ctx: &ProbeContext, op: u32) {
    // The thread has left an earlier request without its return having been seen.
    if nested::mes().is_some_and(|call| call.called_ns != 0) {
        losses::trouble(ProbeId::MesCallReturn, Trouble::NestedReturnMissed);
    }
    let queue = ctx.arg(1).unwrap_or(0);
    nested::enter(probe, &MesCall { queue, caller: return_address(ctx), called_ns: 0, op, pad: 0 });
}

/// `int mes_v11_0_add_hw_queue(struct amdgpu_mes *mes, struct mes_add_queue_input *input)`, and the same to remove.
#[kprobe]
pub(crate) fn mes_call(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::MesCall;
    counters::hit(ID);
    let Some(call) = nested::mes() else { return 0 };
    if is_for(ID, call, ctx.arg(1).unwrap_or(0)) {
        // SAFETY: no arguments.
        call.called_ns = unsafe { bpf_ktime_get_ns() };
    } else {
        let _ = nested::leave::<MesCall>();
    }
    0
}

/// Whether the request is for the queue that the thread came for.
#[inline(always)]
fn is_for(probe: ProbeId, call: &MesCall, input: u64) -> bool {
    let field = if call.op == mes::ADD { &kernel::MES_ADD_DOORBELL } else { &kernel::MES_REMOVE_DOORBELL };
    let Some(named) = read::<u32>(input, field) else {
        losses::trouble(probe, Trouble::ArgsUnreadable);
        return false;
    };
    let Some(own) = read::<u32>(call.queue, &kernel::QUEUE_DOORBELL) else {
        losses::trouble(probe, Trouble::QueueUnreadable);
        return false;
    };
    named == own
}

/// The return of the same.
#[kretprobe]
pub(crate) fn mes_call_return(ctx: RetProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::MesCallReturn;
    counters::hit(ID);
    // Otherwise the thread is about to call it, in a call for something else.
    if nested::mes().is_none_or(|call| call.called_ns == 0) {
        return 0;
    }
    let Some(call) = nested::leave::<MesCall>() else { return 0 };
    let slot = in_flight::current();
    let cmd = queue::cmd(slot.as_deref());
    let Some((owner, gpu_id)) = queue::owner_and_gpu(ID, slot.as_deref(), call.queue) else { return 0 };
    let Some(queue_id) = read(call.queue, &kernel::QUEUE_ID) else {
        losses::trouble(ID, Trouble::QueueUnreadable);
        return 0;
    };
    emit::emit_in(ID, Kind::MesQueue, owner, cmd, |record: &mut MesQueue| {
        record.caller = call.caller;
        record.latency_ns = record.header.mono_ns.saturating_sub(call.called_ns);
        record.queue_id = queue_id;
        record.gpu_id = gpu_id;
        record.op = call.op;
        record.result = ctx.ret::<u64>() as i32;
    });
    0
}
