//! What goes wrong on a GPU. Traces: `kfd_signal_vm_fault_event`, `kfd_smi_event_update_gpu_reset`, `kfd_hws_hang` or
//! `kfd_process_hw_exception`. Makes: a record each; one about a whole GPU has no owner and is never filtered.

use aya_ebpf::macros::kprobe;
use aya_ebpf::programs::ProbeContext;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::process::Entry;
use kfd_trace_common::record::{Gpu, VmFault, fault};

use crate::kernel::{self, read};
use crate::processes::{self, Met, NOBODY, Owner};
use crate::{counters, emit};

/// `void kfd_signal_vm_fault_event(dev, u32 pasid, struct kfd_vm_fault_info *info, ...)`; on 7.2, where a process has a
/// PASID per GPU, `(struct kfd_process_device *pdd, struct kfd_vm_fault_info *info, ...)`.
#[kprobe]
pub(crate) fn vm_fault(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::VmFault);
    let first: u64 = ctx.arg(0).unwrap_or(0);
    if kernel::offset(&kernel::KFD_PROCESS_PASID).is_some() {
        if let Some(entry) = processes::wanted_by_pasid(ctx.arg(1).unwrap_or(0)) {
            record_fault(&entry, first, ctx.arg(2).unwrap_or(0));
        }
        return 0;
    }
    match read::<u64>(first, &kernel::PDD_PROCESS) {
        Some(process) => {
            if let Some(entry) = processes::wanted(process, Met::Anywhere) {
                let device = read(first, &kernel::PDD_DEV).unwrap_or(0);
                record_fault(&entry, device, ctx.arg(1).unwrap_or(0));
            }
        }
        None => counters::trouble(Trouble::ProcessUnreadable),
    }
    0
}

#[inline(always)]
fn record_fault(entry: &Entry, device: u64, info: u64) {
    let owner = Owner { id: entry.id, tgid: entry.tgid };
    emit::emit(Kind::VmFault, |record: &mut VmFault| {
        record.header = emit::header::<VmFault>(Kind::VmFault, owner);
        record.gpu_id = gpu_id(device);
        if let Some(page) = read::<u64>(info, &kernel::FAULT_PAGE_ADDR) {
            record.page = page;
            record.flags = fault::TOLD
                | flag(read(info, &kernel::FAULT_PROT_VALID), fault::VALID)
                | flag(read(info, &kernel::FAULT_PROT_READ), fault::READ)
                | flag(read(info, &kernel::FAULT_PROT_WRITE), fault::WRITE)
                | flag(read(info, &kernel::FAULT_PROT_EXEC), fault::EXEC);
        }
    });
}

/// A C `bool`.
#[inline(always)]
fn flag(value: Option<u8>, bit: u32) -> u32 {
    if value.unwrap_or(0) == 0 { 0 } else { bit }
}

/// KFD's gpu_id of a `kfd_node` or `kfd_dev`; 0 where it cannot be read.
#[inline(always)]
fn gpu_id(device: u64) -> u32 {
    read(device, &kernel::DEVICE_ID).unwrap_or_else(|| {
        counters::trouble(Trouble::DeviceUnreadable);
        0
    })
}

/// `void kfd_smi_event_update_gpu_reset(dev, bool post_reset, ...)`: called for each node before and after a reset.
#[kprobe]
pub(crate) fn gpu_reset(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::GpuReset);
    let after = ctx.arg::<u64>(1).unwrap_or(0) as u8 != 0;
    record_gpu(if after { Kind::GpuResetEnd } else { Kind::GpuResetBegin }, ctx.arg(0).unwrap_or(0));
    0
}

/// `void kfd_hws_hang(struct device_queue_manager *dqm)`
#[kprobe]
pub(crate) fn hws_hang(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::HwsHang);
    hang(ctx.arg(0).unwrap_or(0));
    0
}

/// `void kfd_process_hw_exception(struct work_struct *work)`, the work of `struct device_queue_manager`: what a hang
/// leads to, probed where `kfd_hws_hang` is inlined.
#[kprobe]
pub(crate) fn hw_exception(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::HwException);
    let work: u64 = ctx.arg(0).unwrap_or(0);
    hang(kernel::offset(&kernel::DQM_HW_EXCEPTION_WORK).map_or(0, |offset| work - offset));
    0
}

#[inline(always)]
fn hang(dqm: u64) {
    record_gpu(Kind::HwsHang, read(dqm, &kernel::DQM_DEV).unwrap_or(0));
}

#[inline(always)]
fn record_gpu(kind: Kind, device: u64) {
    emit::emit(kind, |record: &mut Gpu| {
        record.header = emit::header::<Gpu>(kind, NOBODY);
        record.gpu_id = gpu_id(device);
    });
}
