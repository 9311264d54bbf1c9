//! Faults, resets and hangs of GPUs. Traces: `kfd_signal_vm_fault_event`, `kfd_smi_event_update_gpu_reset`,
//! `kfd_hws_hang` or `kfd_process_hw_exception`, `reset_queues_on_hws_hang` and `amdgpu_amdkfd_gpu_reset`. Out: one
//! record for each fault, reset and hang; one about a whole GPU has no owner and is never filtered.
//!
//! In drivers without `kfd_process_hw_exception` (6.16 and later), `kfd_hws_hang` ends in a call of
//! `amdgpu_amdkfd_gpu_reset`, and nothing else calls that. It may be a function of its own in one place and inlined in
//! another. What a thread meets first reports the hang: the function `kfd_hws_hang`, or, where it is inlined, the call
//! in it. Which GPU that is about is known from the function that the thread entered before: `reset_queues_on_hws_hang`
//! (7.2 and 7.3), or, where that is inlined too (ROCm's 6.12.12), one that changes what the GPU runs.

use crate::kernel::{self, read, read_at};
use crate::probes::device::gpu_id;
use crate::processes::{self, Met, NO_OWNER};
use crate::{counters, emit, losses, nested};
use aya_ebpf::macros::kprobe;
use aya_ebpf::programs::ProbeContext;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::process::Entry;
use kfd_trace_common::record::{Gpu, VmFault, fault};

/// `void kfd_signal_vm_fault_event(dev, u32 pasid, struct kfd_vm_fault_info *info)`; the debugger (6.5) added
/// a fourth argument, `struct kfd_hsa_memory_exception_data *data`, and one of the two is passed; on 7.2,
/// where a process has a PASID per GPU, `(struct kfd_process_device *pdd, info, data)`.
#[kprobe]
pub(crate) fn vm_fault(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::VmFault;
    counters::hit(ID);
    let first: u64 = ctx.arg(0).unwrap_or(0);
    let has_data = kernel::offset(&kernel::KFD_PROCESS_EXCEPTION_STATUS).is_some();
    let given = |arg: Option<u64>, is: bool| if is { arg.unwrap_or(0) } else { 0 };
    if kernel::offset(&kernel::KFD_PROCESS_PASID).is_some() {
        if let Some(entry) = processes::wanted_by_pasid(ID, ctx.arg(1).unwrap_or(0)) {
            record_fault(ID, &entry, first, ctx.arg(2).unwrap_or(0), given(ctx.arg(3), has_data));
        }
        return 0;
    }
    match read::<u64>(first, &kernel::PDD_PROCESS) {
        Some(process) => {
            if let Some(entry) = processes::wanted(ID, process, Met::Anywhere) {
                let device = read(first, &kernel::PDD_DEV).unwrap_or(0);
                record_fault(ID, &entry, device, ctx.arg(1).unwrap_or(0), given(ctx.arg(2), has_data));
            }
        }
        None => losses::trouble(ID, Trouble::ProcessUnreadable),
    }
    0
}

#[inline(always)]
fn record_fault(probe: ProbeId, entry: &Entry, device: u64, info: u64, data: u64) {
    emit::emit(probe, Kind::VmFault, entry, |record: &mut VmFault| {
        record.gpu_id = gpu_id(probe, device);
        if data != 0 {
            from_data(data, record);
        } else if let Some(page) = read::<u64>(info, &kernel::FAULT_PAGE_ADDR) {
            record.address = page << 12;
            record.flags = fault::REPORTED
                | flag(read(info, &kernel::FAULT_PROT_VALID), fault::NOT_PRESENT)
                | flag(read(info, &kernel::FAULT_PROT_WRITE), fault::READ_ONLY)
                | flag(read(info, &kernel::FAULT_PROT_EXEC), fault::NO_EXECUTE);
        }
    });
}

/// `struct kfd_hsa_memory_exception_data` (uapi kfd_ioctl.h): four `__u32` of failure details, then the
/// address.
#[inline(always)]
fn from_data(data: u64, record: &mut VmFault) {
    let Some(failure) = read_at::<[u32; 4]>(data, 0) else { return };
    let Some(address) = read_at::<u64>(data, 16) else { return };
    let [not_present, read_only, no_execute, _imprecise] = failure;
    let bit = |failed: u32, bit: u32| if failed == 0 { 0 } else { bit };
    record.address = address;
    record.flags = fault::REPORTED
        | bit(not_present, fault::NOT_PRESENT)
        | bit(read_only, fault::READ_ONLY)
        | bit(no_execute, fault::NO_EXECUTE);
}

/// A C `bool`.
#[inline(always)]
fn flag(value: Option<u8>, bit: u32) -> u32 {
    if value.unwrap_or(0) == 0 { 0 } else { bit }
}

/// `void kfd_smi_event_update_gpu_reset(dev, bool post_reset, ...)`: called for each node before and after a
/// reset.
#[kprobe]
pub(crate) fn gpu_reset(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::GpuReset;
    counters::hit(ID);
    let after = ctx.arg::<u64>(1).unwrap_or(0) as u8 != 0;
    record_gpu(ID, if after { Kind::GpuResetEnd } else { Kind::GpuResetBegin }, ctx.arg(0).unwrap_or(0));
    0
}

/// `void kfd_hws_hang(struct device_queue_manager *dqm)`
#[kprobe]
pub(crate) fn hws_hang(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::HwsHang;
    counters::hit(ID);
    // What the thread entered before is about this hang, or about earlier queues whose reset succeeded: the request for
    // a reset of the GPU, which follows, is not another hang.
    let _ = nested::take_hang_scope();
    hang(ID, ctx.arg(0).unwrap_or(0));
    0
}

/// `void kfd_process_hw_exception(struct work_struct *work)`, the work of `struct device_queue_manager`: the
/// consequence of a hang, probed where `kfd_hws_hang` is inlined.
#[kprobe]
pub(crate) fn hw_exception(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::HwException;
    counters::hit(ID);
    let work: u64 = ctx.arg(0).unwrap_or(0);
    hang(ID, kernel::offset(&kernel::DQM_HW_EXCEPTION_WORK).map_or(0, |offset| work - offset));
    0
}

/// `int reset_queues_on_hws_hang(struct device_queue_manager *dqm, bool is_sdma)`, kfd_device_queue_manager.c: queues
/// were given up by firmware, and the driver resets them alone. Its return is not needed, and it may sleep.
#[kprobe]
pub(crate) fn hung_queues(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::HungQueues;
    counters::hit(ID);
    nested::set_hang_scope(ID, ctx.arg(0).unwrap_or(0));
    0
}

/// Functions of kfd_device_queue_manager.c that change what a GPU runs, and so can find it hanging. The first parameter
/// of each is its `struct device_queue_manager *dqm`. What a thread enters last is what it is in when a hang is found.
#[kprobe]
pub(crate) fn hang_scope(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::HangScope;
    counters::hit(ID);
    nested::set_hang_scope(ID, ctx.arg(0).unwrap_or(0));
    0
}

/// `void amdgpu_amdkfd_gpu_reset(struct amdgpu_device *adev)`, amdgpu_amdkfd.c: by an inlined `kfd_hws_hang`. The device
/// does not show which of its nodes hangs: what the thread entered before does.
#[kprobe]
pub(crate) fn reset_request(_ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::ResetRequest;
    counters::hit(ID);
    if let Some(dqm) = nested::take_hang_scope() {
        hang(ID, dqm);
    }
    0
}

#[inline(always)]
fn hang(probe: ProbeId, dqm: u64) {
    record_gpu(probe, Kind::HwsHang, read(dqm, &kernel::DQM_DEV).unwrap_or(0));
}

#[inline(always)]
fn record_gpu(probe: ProbeId, kind: Kind, device: u64) {
    emit::emit(probe, kind, NO_OWNER, |record: &mut Gpu| record.gpu_id = gpu_id(probe, device));
}
