//! MQD writes. Traces: every copy of `init_mqd*`, `update_mqd*` and `restore_mqd*` (entry and return). Out:
//! one record for each outermost call.
//!
//! These functions call each other: an init ends in an update, and from gfx 9.4.3 on either is repeated for
//! each XCC. All calls of one write are about the same queue and in the same thread, so the depth identifies
//! the outermost one.

use crate::kernel::{self, read};
use crate::probes::queue;
use crate::processes::{self, Met};
use crate::{counters, emit, losses, nested};
use aya_ebpf::Global;
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
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
    enter(ProbeId::MqdInit, ctx.arg(4), mqd_op::INIT);
    0
}

/// `void update_mqd*(mm, void *mqd, struct queue_properties *q, struct mqd_update_info *)`
#[kprobe]
pub(crate) fn mqd_update(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::MqdUpdate);
    enter(ProbeId::MqdUpdate, ctx.arg(2), mqd_op::UPDATE);
    0
}

/// `void update_mqd_gpu_addr*(mm, void *mqd, struct kfd_mem_obj *, struct queue_properties *q)`: the MQD was
/// moved, by the resume from hibernation (7.3).
#[kprobe]
pub(crate) fn mqd_address(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::MqdAddress);
    enter(ProbeId::MqdAddress, ctx.arg(3), mqd_op::UPDATE);
    0
}

/// `void restore_mqd*(mm, void **mqd, struct kfd_mem_obj *, u64 *gart, struct queue_properties *q, ...)`: by
/// CRIU.
#[kprobe]
pub(crate) fn mqd_restore(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::MqdRestore);
    enter(ProbeId::MqdRestore, ctx.arg(4), mqd_op::RESTORE);
    0
}

/// The return of any of them.
#[kretprobe]
pub(crate) fn mqd_return(_ctx: RetProbeContext) -> u32 {
    counters::hit(ProbeId::MqdReturn);
    match nested::current::<Mqd>() {
        Some(slot) => {
            // SAFETY: a value of the map, and only this thread writes it.
            let slot = unsafe { &mut *slot };
            slot.depth = slot.depth.saturating_sub(1);
            if slot.depth == 0 {
                let _ = nested::leave::<Mqd>();
            }
        }
        None => losses::trouble(ProbeId::MqdReturn, Trouble::ReturnWithoutEntry),
    }
    0
}

/// The thread is outside all MQD functions: an entry left over from a write has missed a return, and would
/// make the next write look nested.
#[inline(always)]
pub(super) fn settle() {
    if nested::leave::<Mqd>().is_some() {
        losses::trouble(ProbeId::MqdReturn, Trouble::MqdReturnMissed);
    }
}

#[inline(always)]
fn enter(probe: ProbeId, properties: Option<u64>, op: u32) {
    let Some(properties) = properties else { return };
    if let Some(slot) = nested::current::<Mqd>() {
        // SAFETY: a value of the map, and only this thread writes it.
        let slot = unsafe { &mut *slot };
        if slot.properties == properties {
            slot.depth += 1;
            return;
        }
        settle();
    }
    nested::enter(probe, &Mqd { properties, depth: 1 });
    let Some(offset) = kernel::offset(&kernel::QUEUE_PROPERTIES) else { return };
    record(probe, properties - offset, op);
}

/// The driver's own queue: HIQ or DIQ. Its `process` is meaningless: up to 6.12 `kq_initialize`
/// (kfd_kernel_queue.c) sets it to `kfd_get_process(current)`, which is an ERR_PTR in a kworker, and the
/// process that opened the device or created a queue where that woke the GPU up (`kgd2kfd_resume`,
/// `start_cpsch`, `pm_init`, `kernel_queue_init`). On 7.2 it is NULL.
#[inline(always)]
fn is_the_drivers(queue: u64) -> bool {
    let Some(kind) = read::<u32>(queue, &kernel::QUEUE_TYPE) else { return false };
    kind != ABSENT && (kind == TYPE_HIQ.load() || kind == TYPE_DIQ.load())
}

#[inline(always)]
fn record(probe: ProbeId, queue: u64, op: u32) {
    if is_the_drivers(queue) {
        return;
    }
    let Some(process) = read::<u64>(queue, &kernel::QUEUE_PROCESS) else {
        losses::trouble(probe, Trouble::QueueUnreadable);
        return;
    };
    // NULL or an ERR_PTR belongs to the driver's own queues only, whose type is not known then.
    if super::process::is_error(process) {
        return;
    }
    let Some(entry) = processes::wanted(probe, process, Met::Anywhere) else { return };
    let Some(queue_id) = read::<u32>(queue, &kernel::QUEUE_ID) else {
        losses::trouble(probe, Trouble::QueueUnreadable);
        return;
    };
    emit::emit(probe, Kind::MqdWrite, &entry, |record: &mut MqdWrite| {
        record.queue_id = queue_id;
        record.gpu_id = queue::gpu_id(probe, queue);
        record.op = op;
    });
}
