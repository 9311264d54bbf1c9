//! Evictions and restores. Traces: `evict_process_queues_*` and `restore_process_queues_*` (entry and
//! return), and their callers with a reason: `kfd_process_evict_queues`, and `kfd_process_vm_fault`,
//! `kfd_dqm_evict_pasid` or `kfd_evict_process_device`. Out: a record for each real transition of a process on
//! a GPU, and for each `kfd_process_evict_queues` that fails.
//!
//! Evictions are counted (`qpd->evicted`), so only a change from or to 0 does anything: it is read at both
//! ends, and once more after the record. Calls for one process come from several threads at once, and the
//! driver's lock lies inside of them: a call that overlaps with another one is counted, and the daemon then
//! compares with the driver's state. Pairs that undo each other in between go unnoticed.
//!
//! All GPUs of a process are evicted together, except after a fault. Where it has no VM it has no queue
//! either, and nothing happens: that is not reported. If it gets a VM before the restore, its queues there
//! start evicted, so that this restore is reported alone.

use crate::kernel::{self, read};
use crate::probes::device;
use crate::processes::{self, Met};
use crate::{counters, emit, losses, nested};
use aya_ebpf::Global;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::hint::black_box;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::eviction::{Call, Outcome};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::nested::Eviction as Slot;
use kfd_trace_common::process::Entry;
use kfd_trace_common::record::{Eviction, trigger};

/// Number of parameters of `kfd_process_evict_queues`.
#[unsafe(no_mangle)]
static EVICT_PARAMETERS: Global<u32> = Global::new(0);

/// `int kfd_process_evict_queues(struct kfd_process *p, uint32_t trigger)`; ROCm's driver has `(p, bool force,
/// uint32_t trigger)`, Linux 5.10 `(p)`.
#[kprobe]
pub(crate) fn evict_process(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::EvictProcess);
    // Read before one is chosen: of a choice between reads the compiler makes a chosen offset, and the verifier
    // refuses the context at an offset that is not constant.
    let (second, third) = (black_box(ctx.arg(1)), black_box(ctx.arg(2)));
    let trigger = match EVICT_PARAMETERS.load() {
        2 => second,
        3 => third,
        _ => None,
    };
    begin(ProbeId::EvictProcess, ctx.arg(0).unwrap_or(0), trigger.unwrap_or(trigger::NOT_READ));
    0
}

/// `int kfd_dqm_evict_pasid(dqm, u32 pasid)`, on 5.10 `kfd_process_vm_fault` with the same, on 7.2
/// `int kfd_evict_process_device(struct kfd_process_device *pdd)`: after a fault.
#[kprobe]
pub(crate) fn evict_fault(_ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::EvictFault);
    begin(ProbeId::EvictFault, 0, trigger::FAULT);
    0
}

#[inline(always)]
fn begin(probe: ProbeId, process: u64, trigger: u32) {
    let call = Call::Evict as u32;
    // SAFETY: no arguments.
    let began_ns = unsafe { bpf_ktime_get_ns() };
    nested::enter(
        probe,
        &Slot { qpd: 0, entered_ns: 0, process, began_ns, before: 0, trigger, call, pad: 0 },
    );
}

/// The return of either: the thread, for example a kworker, may evict for another reason next.
#[kretprobe]
pub(crate) fn evict_return(ctx: RetProbeContext) -> u32 {
    counters::hit(ProbeId::EvictReturn);
    let result = ctx.ret::<u64>() as i32;
    match nested::leave::<Slot>() {
        Some(call) if call.process != 0 && result < 0 && result != -EIO => failed(&call, result),
        _ => {}
    }
    0
}

/// What `kfd_process_evict_queues` returns of a GPU that hangs or is being reset: its queues are evicted, and
/// nothing is rolled back.
const EIO: i32 = 5;

/// `kfd_process_evict_queues` failed and restored the GPUs before.
#[inline(always)]
fn failed(call: &Slot, result: i32) {
    let Some(entry) = processes::known(ProbeId::EvictReturn, call.process, Met::Anywhere) else { return };
    if entry.wanted == 0 {
        return;
    }
    emit::emit(ProbeId::EvictReturn, Kind::EvictFailed, &entry, |record: &mut Eviction| {
        record.latency_ns = record.header.mono_ns.saturating_sub(call.began_ns);
        record.trigger = call.trigger;
        record.result = result;
    });
}

/// `int evict_process_queues_*(struct device_queue_manager *dqm, struct qcm_process_device *qpd)`
#[kprobe]
pub(crate) fn evict_gpu(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::EvictGpu);
    enter(ProbeId::EvictGpu, ctx.arg(1), Call::Evict);
    0
}

/// `int restore_process_queues_*`, with the same arguments.
#[kprobe]
pub(crate) fn restore_gpu(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::RestoreGpu);
    enter(ProbeId::RestoreGpu, ctx.arg(1), Call::Restore);
    0
}

#[inline(always)]
fn enter(probe: ProbeId, qpd: Option<u64>, call: Call) {
    let Some(qpd) = qpd else { return };
    let Some(before) = read::<u32>(qpd, &kernel::QPD_EVICTED) else {
        losses::trouble(probe, Trouble::EvictionUnreadable);
        return;
    };
    let call = call as u32;
    // SAFETY: no arguments.
    let entered_ns = unsafe { bpf_ktime_get_ns() };
    match nested::current::<Slot>() {
        Some(slot) => {
            // SAFETY: a value of the map, and only this thread writes it.
            let slot = unsafe { &mut *slot };
            if slot.qpd != 0 {
                losses::trouble(RETURN, Trouble::NestedReturnMissed);
            }
            if slot.process != 0 && process_of(qpd) != Some(slot.process) {
                // Left over from an eviction of another process, whose return was missed.
                losses::trouble(ProbeId::EvictReturn, Trouble::NestedReturnMissed);
                (slot.process, slot.trigger) = (0, trigger::NONE);
            }
            (slot.qpd, slot.entered_ns, slot.before, slot.call) = (qpd, entered_ns, before, call);
        }
        None => {
            let (process, began_ns, trigger) = (0, 0, trigger::NONE);
            nested::enter(probe, &Slot { qpd, entered_ns, process, began_ns, before, trigger, call, pad: 0 });
        }
    }
}

/// The `struct kfd_process_device` around a `struct qcm_process_device`.
#[inline(always)]
fn pdd_of(qpd: u64) -> Option<u64> {
    kernel::offset(&kernel::PDD_QPD).map(|offset| qpd - offset)
}

/// The process of a `struct qcm_process_device`.
#[inline(always)]
pub(super) fn process_of(qpd: u64) -> Option<u64> {
    read(pdd_of(qpd)?, &kernel::PDD_PROCESS)
}

/// The return of either.
#[kretprobe]
pub(crate) fn evict_gpu_return(ctx: RetProbeContext) -> u32 {
    counters::hit(RETURN);
    let Some(slot) = nested::current::<Slot>() else {
        losses::trouble(RETURN, Trouble::ReturnWithoutEntry);
        return 0;
    };
    // SAFETY: a value of the map, and only this thread writes it.
    let slot = unsafe { &mut *slot };
    let call = *slot;
    slot.qpd = 0;
    if call.qpd == 0 {
        // Its entry was missed, or could not be read.
        losses::trouble(RETURN, Trouble::ReturnWithoutEntry);
        return 0;
    }
    if call.trigger == trigger::NONE {
        let _ = nested::leave::<Slot>();
    }
    send(&call, ctx.ret::<u64>() as i32);
    0
}

const RETURN: ProbeId = ProbeId::EvictGpuReturn;

#[inline(always)]
fn send(slot: &Slot, result: i32) {
    let Some(after) = read::<u32>(slot.qpd, &kernel::QPD_EVICTED) else {
        losses::trouble(RETURN, Trouble::EvictionUnreadable);
        return;
    };
    let (call, kind) = if slot.call == Call::Evict as u32 {
        (Call::Evict, Kind::Evict)
    } else {
        (Call::Restore, Kind::Restore)
    };
    let Outcome { transition, mut raced } = Outcome::of(call, slot.before, after);
    if !transition && !raced {
        return;
    }
    let Some(pdd) = pdd_of(slot.qpd) else { return };
    if !has_vm(pdd) {
        return;
    }
    let Some((entry, gpu_id)) = owner(pdd) else {
        losses::trouble(RETURN, Trouble::EvictionUnreadable);
        return;
    };
    if entry.wanted == 0 {
        return;
    }
    if transition {
        record(kind, slot, &entry, gpu_id, result);
        // If the record of the next transition was first, this shows its effect: records are in the order in
        // which they are reserved, and that one was reserved after its effect.
        raced |= read::<u32>(slot.qpd, &kernel::QPD_EVICTED) != Some(after);
    }
    if raced {
        losses::trouble(RETURN, Trouble::EvictionRaced);
    }
}

/// Whether the process has a GPU VM there (`kfd_process_device_init_vm` sets it, `kfd_bind_process_to_device`
/// requires it before a queue is created); true where this kernel does not show it.
#[inline(always)]
fn has_vm(pdd: u64) -> bool {
    read::<u64>(pdd, &kernel::PDD_DRM_PRIV) != Some(0)
}

/// The process of a `struct kfd_process_device`, and its GPU.
#[inline(always)]
fn owner(pdd: u64) -> Option<(Entry, u32)> {
    let entry = processes::known(RETURN, read(pdd, &kernel::PDD_PROCESS)?, Met::Anywhere)?;
    Some((entry, device::gpu_id(RETURN, read(pdd, &kernel::PDD_DEV).unwrap_or(0))))
}

#[inline(always)]
fn record(kind: Kind, call: &Slot, entry: &Entry, gpu_id: u32, result: i32) {
    emit::emit(RETURN, kind, entry, |record: &mut Eviction| {
        record.latency_ns = record.header.mono_ns.saturating_sub(call.entered_ns);
        record.gpu_id = gpu_id;
        record.trigger = if matches!(kind, Kind::Evict) { call.trigger } else { trigger::NONE };
        record.result = result;
    });
}
