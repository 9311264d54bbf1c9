//! MQD writes. Traces: every copy of `init_mqd*`, `update_mqd*` and `restore_mqd*` (entry). Out: one record
//! for each outermost call.
//!
//! These functions call each other: an init ends in an update, and from gfx 9.4.3 on either is repeated for
//! each XCC. All calls of one write are about the same queue and in the same thread, and those inside another
//! one are below it on the stack ([`Mqd::is_inside`]): no return is probed. A queue that is created or
//! restored is written once in a call, and each update begins with `update_queue`: there the last write has
//! ended ([`settle`]).

use crate::kernel;
use crate::probes::registers::stack_and_function;
use crate::probes::{device, queue};
use crate::processes::Owner;
use crate::{counters, emit, in_flight, losses, nested};
use aya_ebpf::Global;
use aya_ebpf::macros::kprobe;
use aya_ebpf::programs::ProbeContext;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::OpenCall;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::nested::Mqd;
use kfd_trace_common::offset::ABSENT;
use kfd_trace_common::record::{MqdWrite, mqd_op};

/// `KFD_QUEUE_TYPE_HIQ` and `KFD_QUEUE_TYPE_DIQ` of this kernel's `enum kfd_queue_type`; [`ABSENT`] if it has
/// none (no DIQ on 7.2).
#[unsafe(no_mangle)]
static TYPE_HIQ: Global<u32> = Global::new(ABSENT);
#[unsafe(no_mangle)]
static TYPE_DIQ: Global<u32> = Global::new(ABSENT);

/// `void init_mqd*(mm, void **mqd, struct kfd_mem_obj *, u64 *gart, struct queue_properties *q)`
#[kprobe]
pub(crate) fn mqd_init(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::MqdInit);
    enter(ProbeId::MqdInit, &ctx, 4, mqd_op::INIT);
    0
}

/// `void update_mqd*(mm, void *mqd, struct queue_properties *q, struct mqd_update_info *)`
#[kprobe]
pub(crate) fn mqd_update(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::MqdUpdate);
    enter(ProbeId::MqdUpdate, &ctx, 2, mqd_op::UPDATE);
    0
}

/// `void update_mqd_gpu_addr*(mm, void *mqd, struct kfd_mem_obj *, struct queue_properties *q)`: the MQD was
/// moved, by the resume from hibernation (7.3).
#[kprobe]
pub(crate) fn mqd_address(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::MqdAddress);
    enter(ProbeId::MqdAddress, &ctx, 3, mqd_op::UPDATE);
    0
}

/// `void restore_mqd*(mm, void **mqd, struct kfd_mem_obj *, u64 *gart, struct queue_properties *q, ...)`: by
/// CRIU.
#[kprobe]
pub(crate) fn mqd_restore(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::MqdRestore);
    enter(ProbeId::MqdRestore, &ctx, 4, mqd_op::RESTORE);
    0
}

/// No MQD write of the running thread is under way: the next one is not inside the last one. `call`: its own.
#[inline(always)]
pub(super) fn settle(call: Option<&mut OpenCall>) {
    match call {
        Some(call) => call.mqd.properties = 0,
        None => nested::end_mqd(),
    }
}

/// `argument`: which one is the address of the queue's properties.
#[inline(always)]
fn enter(probe: ProbeId, ctx: &ProbeContext, argument: usize, op: u32) {
    let (Some(properties), Some(offset)) = (ctx.arg(argument), kernel::offset(&kernel::QUEUE_PROPERTIES))
    else {
        return;
    };
    let (stack, function) = stack_and_function(ctx);
    let write = Mqd { properties, stack, function, ..Mqd::NONE };
    let mut call = in_flight::current();
    let inside = match &call {
        Some(call) => write.is_inside(&call.mqd),
        None => nested::mqd().is_some_and(|outer| write.is_inside(outer)),
    };
    if inside {
        return;
    }
    let queue = properties - offset;
    let (kind, queue_id) = queue::type_and_id(queue);
    if kind.is_some_and(is_the_drivers) {
        return;
    }
    match &mut call {
        Some(call) => call.mqd = write,
        None => nested::set_mqd(probe, &write),
    }
    record(probe, call, queue, queue_id, op);
}

/// Owner and gpu_id of a queue whose MQD was written in this call, if both are known from that.
#[inline(always)]
pub(super) fn written(call: &OpenCall, queue: u64) -> Option<(Owner, u32)> {
    let its =
        kernel::offset(&kernel::QUEUE_PROPERTIES).is_some_and(|offset| call.mqd.properties == queue + offset);
    (its && call.mqd.gpu_id != 0).then(|| (Owner::from(call), call.mqd.gpu_id))
}

/// The driver's own queue: HIQ or DIQ. Its `process` is meaningless: up to 6.12 `kq_initialize`
/// (kfd_kernel_queue.c) sets it to `kfd_get_process(current)`, which is an ERR_PTR in a kworker, and the
/// process that opened the device or created a queue where that woke the GPU up (`kgd2kfd_resume`,
/// `start_cpsch`, `pm_init`, `kernel_queue_init`). On 7.2 it is NULL.
#[inline(always)]
fn is_the_drivers(kind: u32) -> bool {
    kind != ABSENT && (kind == TYPE_HIQ.load() || kind == TYPE_DIQ.load())
}

#[inline(always)]
fn record(probe: ProbeId, call: Option<&mut OpenCall>, queue: u64, queue_id: Option<u32>, op: u32) {
    let Some((process, device)) = queue::process_and_device(probe, queue) else { return };
    // NULL or an ERR_PTR belongs to the driver's own queues only, whose type is not known then.
    if super::process::is_error(process) {
        return;
    }
    let Some(owner) = queue::owner(probe, call.as_deref(), process) else { return };
    let Some(queue_id) = queue_id else {
        losses::trouble(probe, Trouble::QueueUnreadable);
        return;
    };
    let (gpu_id, cmd) = (device::gpu_id(probe, device), queue::cmd(call.as_deref()));
    if let Some(call) = call.filter(|call| call.owner == process) {
        call.mqd.gpu_id = gpu_id;
    }
    emit::emit_in(probe, Kind::MqdWrite, owner, cmd, |record: &mut MqdWrite| {
        record.queue_id = queue_id;
        record.gpu_id = gpu_id;
        record.op = op;
    });
}
