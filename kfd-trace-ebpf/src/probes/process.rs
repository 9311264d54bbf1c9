//! Life of a KFD process. Traces: `kfd_open` (return), `kfd_create_process` (return), `kfd_release`,
//! `kfd_process_notifier_release`, `kfd_process_wq_release`. Out: one record each.

use crate::kernel::{self, read};
use crate::processes::{self, Met, Owner};
use crate::{counters, emit, filter, losses, nested};
use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::nested::Releasing;
use kfd_trace_common::record::Open;

/// `struct kfd_process *kfd_create_process(...)`: called by every open, also where the process exists
/// already.
#[kretprobe]
pub(crate) fn create_process(ctx: RetProbeContext) -> u32 {
    counters::hit(ProbeId::CreateProcess);
    let process: u64 = ctx.ret();
    if !is_error(process) {
        processes::created(ProbeId::CreateProcess, process);
    }
    0
}

/// `ERR_PTR` or NULL.
#[inline(always)]
pub(super) fn is_error(pointer: u64) -> bool {
    pointer == 0 || pointer > u64::MAX - 4095
}

/// Return of `int kfd_open(struct inode *inode, struct file *filep)`
#[kretprobe]
pub(crate) fn open(ctx: RetProbeContext) -> u32 {
    counters::hit(ProbeId::Open);
    let result = ctx.ret::<u64>() as i32;
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    note!(&ctx, "open: tgid {} result {}", tgid, result);
    if filter::wants_caller(tgid) {
        // The process's number is not available here; its tgid is, and ProcessSeen was sent before.
        record_open(Owner { tgid, ..processes::NO_OWNER }, result);
    }
    0
}

#[inline(always)]
fn record_open(owner: Owner, result: i32) {
    emit::emit(ProbeId::Open, Kind::Open, owner, |record: &mut Open| {
        record.result = result;
        kernel::current_comm(&mut record.comm);
    });
}

/// `int kfd_release(struct inode *inode, struct file *filep)`
#[kprobe]
pub(crate) fn release(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::Release;
    counters::hit(ID);
    // The address of the file may soon be reused.
    processes::changed();
    let process = ctx.arg::<u64>(1).and_then(|file| read::<u64>(file, &kernel::FILE_PRIVATE_DATA));
    match process {
        Some(0) => {}
        Some(process) => bare(ID, process, Kind::Close),
        None => losses::trouble(ID, Trouble::ProcessUnreadable),
    }
    0
}

/// `void kfd_process_notifier_release(struct mmu_notifier *mn, struct mm_struct *mm)`
#[kprobe]
pub(crate) fn notifier_release(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::NotifierRelease;
    counters::hit(ID);
    match container(ctx.arg(0), &kernel::KFD_PROCESS_MMU_NOTIFIER) {
        Some(process) => {
            bare(ID, process, Kind::MmRelease);
            // Its threads are ending, or one continues in another program. If that was not the leader, it has
            // the leader's tid from now on, and does not own the descriptor.
            processes::changed();
        }
        None => losses::trouble(ID, Trouble::ProcessUnreadable),
    }
    0
}

/// `void kfd_process_wq_release(struct work_struct *work)`, in a kworker. On 6.1 and 6.12 the queues are
/// removed between its entry and its return.
#[kprobe]
pub(crate) fn wq_release(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::WqRelease;
    counters::hit(ID);
    if let Some(before) = nested::leave::<Releasing>() {
        // A kworker does one work after the other: that of before has returned, and its return was missed.
        losses::trouble(ProbeId::WqReleaseReturn, Trouble::NestedReturnMissed);
        released(ProbeId::WqReleaseReturn, &before);
    }
    match container(ctx.arg(0), &kernel::KFD_PROCESS_RELEASE_WORK) {
        Some(process) => {
            // A process that was never seen is registered now, so that its end is reported.
            let _ = processes::wanted(ID, process, Met::Anywhere);
            processes::releasing(process);
            nested::enter(ID, &Releasing { process });
        }
        None => losses::trouble(ID, Trouble::ProcessUnreadable),
    }
    0
}

/// Its return: the structure is freed.
#[kretprobe]
pub(crate) fn wq_release_return(_ctx: RetProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::WqReleaseReturn;
    counters::hit(ID);
    match nested::leave::<Releasing>() {
        Some(releasing) => released(ID, &releasing),
        None => losses::trouble(ID, Trouble::ReturnWithoutEntry),
    }
    0
}

#[inline(always)]
fn released(probe: ProbeId, releasing: &Releasing) {
    if let Some(entry) = processes::released(releasing.process) {
        processes::send_end(probe, &entry, Kind::ProcessRelease);
    }
}

#[inline(always)]
fn container(member: Option<u64>, field: &Global<u32>) -> Option<u64> {
    Some(member? - kernel::offset(field)?)
}

#[inline(always)]
fn bare(probe: ProbeId, process: u64, kind: Kind) {
    if let Some(entry) = processes::wanted(probe, process, Met::Anywhere) {
        processes::send_end(probe, &entry, kind);
    }
}
