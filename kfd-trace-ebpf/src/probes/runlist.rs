//! What the GPUs run, and its interruptions. Traces, with the hardware scheduler: `execute_queues_cpsch`,
//! `unmap_queues_cpsch` and `process_termination_cpsch` (who changes it, and why), `pm_send_unmap_queue`,
//! `pm_release_ib` and `amdkfd_fence_wait_timeout` (a preemption), `pm_send_runlist` (the new list). Out: a record
//! for each preemption, and for each list. Where `unmap_queues_cpsch` is inlined (ROCm's 6.0.5), the functions that lead
//! to it stand in for it.
//!
//! A change takes the queues of all processes off the GPU, waits for that, and submits a new list. It is made by
//! one thread, which holds the lock of the GPU's `struct device_queue_manager` throughout. Its reason is the caller
//! of `unmap_queues_cpsch`, or of `execute_queues_cpsch` where that is no part of its callers. When the GPU runs the
//! new list is not visible: the driver does not wait for it.

use crate::kernel::{self, read};
use crate::probes::device::gpu_id;
use crate::probes::eviction::process_of;
use crate::probes::registers::{return_address, stack_and_function};
use crate::processes::{self, Met, NO_OWNER, Owner};
use crate::{counters, emit, in_flight, losses, nested};
use aya_ebpf::Global;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::nested::{Eviction, Schedule};
use kfd_trace_common::record::{NOT_COUNTED, Preempt, Runlist, oversubscribed};

/// `int process_termination_cpsch(struct device_queue_manager *dqm, struct qcm_process_device *qpd)`: in a kworker on
/// some kernels.
#[kprobe]
pub(crate) fn runlist_process_end(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::RunlistProcessEnd;
    counters::hit(ID);
    let ending = ctx.arg(1).and_then(process_of).unwrap_or(0);
    nested::enter(ID, &Schedule { dqm: dqm(&ctx), caller: inside(&ctx), ending, ..Schedule::NONE });
    0
}

/// Functions that change what a GPU runs, `(struct device_queue_manager *dqm, ...)`: only where
/// `unmap_queues_cpsch` is not.
#[kprobe]
pub(crate) fn runlist_change(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::RunlistChange;
    counters::hit(ID);
    unfinished(ID, nested::schedule().map_or(0, |last| last.sent_ns));
    nested::enter(ID, &Schedule { dqm: dqm(&ctx), caller: inside(&ctx), ..Schedule::NONE });
    0
}

/// `int execute_queues_cpsch(dqm, filter, ...)`
#[kprobe]
pub(crate) fn runlist_execute(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::RunlistExecute;
    counters::hit(ID);
    let (ending, sent_ns) = nested::schedule().map_or((0, 0), |last| (last.ending, last.sent_ns));
    let outer = return_address(&ctx);
    let (dqm, caller) = (dqm(&ctx), inside(&ctx));
    nested::enter(ID, &Schedule { dqm, caller, outer, ending, sent_ns, ..Schedule::NONE });
    0
}

/// `int unmap_queues_cpsch(dqm, ...)`
#[kprobe]
pub(crate) fn runlist_unmap(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::RunlistUnmap;
    counters::hit(ID);
    let before = nested::schedule().map_or((0, 0, 0), |last| (last.outer, last.ending, last.sent_ns));
    let (outer, ending, sent_ns) = before;
    unfinished(ID, sent_ns);
    let schedule = Schedule { dqm: dqm(&ctx), caller: return_address(&ctx), outer, ending, ..Schedule::NONE };
    nested::enter(ID, &schedule);
    0
}

/// The GPU that all of these are called for.
#[inline(always)]
fn dqm(ctx: &ProbeContext) -> u64 {
    ctx.arg(0).unwrap_or(0)
}

/// As the return address of a call that this function makes.
#[inline(always)]
fn inside(ctx: &ProbeContext) -> u64 {
    stack_and_function(ctx).1 + 1
}

/// Counts a preemption that failed otherwise than by its wait: the packet was not sent, or a queue was given up.
#[inline(always)]
fn unfinished(probe: ProbeId, sent_ns: u64) {
    if sent_ns != 0 {
        losses::trouble(probe, Trouble::NestedReturnMissed);
    }
}

/// The process for which the running thread works: the one that is evicted or restored, else the one that ends, else
/// the one that called. `ending` is that of the thread's last end of a process, which may not have come this far: a
/// GPU that is being reset is left alone.
#[inline(always)]
fn causing_process(ending: u64) -> u64 {
    if let Some(call) = nested::current::<Eviction>() {
        // SAFETY: a value of the map, and only this thread writes it.
        let qpd = unsafe { (*call).qpd };
        if qpd != 0 {
            return process_of(qpd).unwrap_or(0);
        }
    }
    if ending != 0 && processes::is_ending(ending) { ending } else { in_flight::owner() }
}

/// `int pm_send_unmap_queue(pm, ...)`
#[kprobe]
pub(crate) fn preempt_begin(_ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::PreemptBegin;
    counters::hit(ID);
    match nested::schedule() {
        Some(schedule) => schedule.sent_ns = now(),
        None => losses::trouble(ID, Trouble::ReturnWithoutEntry),
    }
    0
}

/// The return of `int amdkfd_fence_wait_timeout(...)`: the queues are off, or that was not confirmed in time.
#[kretprobe]
pub(crate) fn preempt_waited(ctx: RetProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::PreemptWaited;
    counters::hit(ID);
    let result = ctx.ret::<u64>() as i32;
    if result < 0
        && let Some(schedule) = nested::schedule()
        && schedule.sent_ns != 0
    {
        preempted(ID, schedule, result);
    }
    0
}

/// `void pm_release_ib(pm)`: the list that ran is not needed any more. Also called where none ran.
#[kprobe]
pub(crate) fn preempt_end(_ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::PreemptEnd;
    counters::hit(ID);
    if let Some(schedule) = nested::schedule()
        && schedule.sent_ns != 0
    {
        preempted(ID, schedule, 0);
        schedule.released_ns = now();
    }
    0
}

#[inline(always)]
fn preempted(probe: ProbeId, schedule: &mut Schedule, result: i32) {
    let (dqm, sent_ns) = (schedule.dqm, schedule.sent_ns);
    let owner = owner(probe, schedule);
    emit::emit(probe, Kind::Preempt, owner, |record: &mut Preempt| {
        (record.caller, record.outer) = (schedule.caller, schedule.outer);
        record.latency_ns = record.header.mono_ns.saturating_sub(sent_ns);
        record.gpu_id = gpu_id(probe, read(dqm, &kernel::DQM_DEV).unwrap_or(0));
        record.result = result;
        record.oversubscribed = is_oversubscribed(dqm);
    });
    schedule.sent_ns = 0;
}

/// The return of `int pm_send_runlist(pm, queues)`: the list is submitted, or could not be made.
#[kretprobe]
pub(crate) fn runlist_sent(ctx: RetProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::RunlistSent;
    counters::hit(ID);
    let result = ctx.ret::<u64>() as i32;
    let Some(schedule) = nested::leave::<Schedule>() else {
        losses::trouble(ID, Trouble::ReturnWithoutEntry);
        return 0;
    };
    emit::emit(ID, Kind::Runlist, owner(ID, &schedule), |record: &mut Runlist| {
        (record.caller, record.outer) = (schedule.caller, schedule.outer);
        record.unmapped_ns = match schedule.released_ns {
            0 => u64::MAX,
            released_ns => record.header.mono_ns.saturating_sub(released_ns),
        };
        record.gpu_id = gpu_id(ID, read(schedule.dqm, &kernel::DQM_DEV).unwrap_or(0));
        record.result = result;
        record.processes = count(schedule.dqm, &kernel::DQM_PROCESSES);
        record.queues = count(schedule.dqm, &kernel::DQM_ACTIVE_QUEUES);
        record.cp_queues = count(schedule.dqm, &kernel::DQM_ACTIVE_CP_QUEUES);
        record.oversubscribed = is_oversubscribed(schedule.dqm);
    });
    0
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn owner(probe: ProbeId, schedule: &Schedule) -> Owner {
    let process = causing_process(schedule.ending);
    if process == 0 {
        return NO_OWNER;
    }
    processes::known(probe, process, Met::Anywhere).map_or(NO_OWNER, |entry| Owner::from(&entry))
}

#[inline(always)]
fn count(dqm: u64, field: &Global<u32>) -> u32 {
    read(dqm, field).unwrap_or(NOT_COUNTED)
}

/// Of the last list that was made: set while it is made.
#[inline(always)]
fn is_oversubscribed(dqm: u64) -> u32 {
    match read::<u8>(dqm, &kernel::DQM_OVERSUBSCRIBED) {
        Some(0) => oversubscribed::NO,
        Some(_) => oversubscribed::YES,
        None => oversubscribed::NOT_READ,
    }
}
