//! Ioctls. Traces: `kfd_ioctl` (entry), every handler (entry, where arguments are asked for; return). Makes:
//! the sums of `stats`, a record per call where asked for, and the failed end of a DESTROY_QUEUE.

use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_ktime_get_ns};
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::Slot;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::ARGS_LEN;
use kfd_trace_common::process::Entry;
use kfd_trace_common::record::{Ioctl, QueueDestroy, outcome};
use kfd_trace_common::rules;

use crate::kernel::{self, read};
use crate::processes::{self, Met};
use crate::{counters, emit, filter, nested, stats};

/// 1: a record for each call.
#[unsafe(no_mangle)]
static RECORD_IOCTLS: Global<u32> = Global::new(0);

/// 1: a record for each call that changes a queue, where queues themselves cannot be probed.
#[unsafe(no_mangle)]
static RECORD_QUEUE_IOCTLS: Global<u32> = Global::new(0);

/// One past the last command of this kernel's driver.
#[unsafe(no_mangle)]
static IOCTL_END: Global<u32> = Global::new(0);

/// The same for the range that only ROCm's driver has; 0 when it has none.
#[unsafe(no_mangle)]
static IOCTL_ROCM_END: Global<u32> = Global::new(0);

/// `long kfd_ioctl(struct file *filep, unsigned int cmd, unsigned long arg)`
#[kprobe]
pub(crate) fn ioctl(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::Ioctl);
    let _ = enter(&ctx);
    0
}

#[inline(always)]
fn enter(ctx: &ProbeContext) -> Option<()> {
    let (file, cmd): (u64, u32) = (ctx.arg(0)?, ctx.arg(1)?);
    // A slot of this thread is the leftover of a call whose handler's return was not seen.
    if let Some(stale) = nested::leave::<Slot>() {
        no_return_seen(&stale);
    }
    let Some(process) = read::<u64>(file, &kernel::FILE_PRIVATE_DATA) else {
        counters::trouble(Trouble::ProcessUnreadable);
        return None;
    };
    let entry = processes::wanted(process, Met::Own)?;
    let slot = Slot {
        // SAFETY: no arguments.
        entered_ns: unsafe { bpf_ktime_get_ns() },
        process: entry.id,
        data: 0,
        tgid: entry.tgid,
        cmd,
        deleted_queue: 0,
        deleted_gpu: 0,
    };
    stats::entered(slot.process, cmd);
    if let Some(errno) = refusal(&entry, rules::nr(cmd)) {
        stats::refused(slot.process, cmd, errno);
        record(&slot, -(errno as i32), 0, outcome::REFUSED);
    } else if rules::nr(cmd) == rules::WAIT_EVENTS {
        record(&slot, 0, 0, outcome::NOT_MEASURED);
    } else {
        nested::enter(&slot);
    }
    Some(())
}

/// The errno of a call that `kfd_ioctl` refuses before any handler, in the order of its checks.
#[inline(always)]
fn refusal(entry: &Entry, nr: u32) -> Option<u32> {
    if rules::unknown(nr, IOCTL_END.load(), IOCTL_ROCM_END.load()) {
        return Some(rules::ENOTTY);
    }
    // SAFETY: no arguments.
    let current = unsafe { bpf_get_current_task() };
    let admitted = is_owner(entry, current) || nr == rules::CRIU && is_tracer(entry, current);
    if !admitted {
        return Some(rules::EBADF);
    }
    (nr == rules::CRIU && !may_criu(current)).then_some(rules::EACCES)
}

/// `process->lead_thread == current->group_leader`. Without the driver's BTF the leader is not known: the call is
/// taken as admitted, and ends as "no return seen" if it was not.
#[inline(always)]
fn is_owner(entry: &Entry, current: u64) -> bool {
    match read::<u64>(current, &kernel::TASK_GROUP_LEADER) {
        Some(leader) if entry.leader != 0 => leader == entry.leader,
        _ => true,
    }
}

/// `ptrace_parent(process->lead_thread) == current`
#[inline(always)]
fn is_tracer(entry: &Entry, current: u64) -> bool {
    let traced = read::<u32>(entry.leader, &kernel::TASK_PTRACE).unwrap_or(0) != 0;
    traced && read::<u64>(entry.leader, &kernel::TASK_PARENT) == Some(current)
}

/// `capable(CAP_CHECKPOINT_RESTORE) || capable(CAP_SYS_ADMIN)`: both ask in the initial user namespace.
#[inline(always)]
fn may_criu(current: u64) -> bool {
    let may = || {
        let cred: u64 = read(current, &kernel::TASK_CRED)?;
        let caps: u64 = read(cred, &kernel::CRED_CAP_EFFECTIVE)?;
        let level: u32 = read(read::<u64>(cred, &kernel::CRED_USER_NS)?, &kernel::USER_NS_LEVEL)?;
        Some(level == 0 && caps & rules::CRIU_CAPS != 0)
    };
    // Unreadable: the call is taken as admitted, and ends as "no return seen" if it was not.
    may().unwrap_or_else(|| {
        counters::trouble(Trouble::CredUnreadable);
        true
    })
}

/// Every handler: `int handler(struct file *filep, struct kfd_process *p, void *data)`; `data` is the kernel's
/// copy of the arguments.
#[kprobe]
pub(crate) fn ioctl_handler(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::IoctlHandler);
    if let (Some(slot), Some(data)) = (nested::current::<Slot>(), ctx.arg::<u64>(2)) {
        // SAFETY: a value of the map, and only this thread writes it.
        unsafe { (*slot).data = data };
    }
    0
}

/// Return of every handler but WAIT_EVENTS.
#[kretprobe]
pub(crate) fn ioctl_return(ctx: RetProbeContext) -> u32 {
    counters::hit(ProbeId::IoctlReturn);
    match nested::leave::<Slot>() {
        Some(slot) => leave(&slot, ctx.ret::<u64>() as i32),
        // A process that is not asked for has no slot.
        None if filter::wanted((bpf_get_current_pid_tgid() >> 32) as u32) => {
            counters::trouble(Trouble::ReturnWithoutEntry);
        }
        None => {}
    }
    0
}

#[inline(always)]
fn leave(slot: &Slot, result: i32) {
    // SAFETY: no arguments.
    let latency_ns = unsafe { bpf_ktime_get_ns() }.saturating_sub(slot.entered_ns);
    stats::returned(slot.process, slot.cmd, result, latency_ns);
    if slot.deleted_queue != 0 && result < 0 && !rules::destroyed_anyway(result.unsigned_abs()) {
        destroy_failed(slot, result);
    }
    record(slot, result, latency_ns, outcome::RETURNED);
}

#[inline(always)]
fn no_return_seen(slot: &Slot) {
    stats::no_return_seen(slot.process, slot.cmd);
    record(slot, 0, 0, outcome::NO_RETURN_SEEN);
}

#[inline(always)]
fn destroy_failed(slot: &Slot, result: i32) {
    emit::emit(Kind::QueueDestroyFailed, |record: &mut QueueDestroy| {
        record.header = emit::header_in::<QueueDestroy>(Kind::QueueDestroyFailed, slot, slot.cmd);
        record.queue_id = slot.deleted_queue - 1;
        record.gpu_id = slot.deleted_gpu;
        record.result = result;
    });
}

#[inline(always)]
fn record(slot: &Slot, result: i32, latency_ns: u64, outcome: u32) {
    let queues = RECORD_QUEUE_IOCTLS.load() != 0 && rules::changes_queue(rules::nr(slot.cmd));
    if RECORD_IOCTLS.load() == 0 && !queues {
        return;
    }
    emit::emit(Kind::Ioctl, |record: &mut Ioctl| {
        record.header = emit::header_in::<Ioctl>(Kind::Ioctl, slot, slot.cmd);
        record.entered_ns = slot.entered_ns;
        record.latency_ns = latency_ns;
        record.cmd = slot.cmd;
        record.result = result;
        record.outcome = outcome;
        record.args_len = args(slot, outcome, &mut record.args);
    });
}

/// Copies the arguments. The handler's copy is at least as large as user space announced, and lives until
/// `kfd_ioctl` returns: at a handler's return it is there, later it is not.
#[inline(always)]
fn args(slot: &Slot, outcome: u32, out: &mut [u8; ARGS_LEN]) -> u32 {
    if slot.data == 0 || outcome != outcome::RETURNED {
        return 0;
    }
    let len = ((slot.cmd >> 16) & 0x3fff).min(ARGS_LEN as u32);
    let Some(out) = out.get_mut(..len as usize) else { return 0 };
    if out.is_empty() {
        return 0;
    }
    if kernel::read_bytes(slot.data, out).is_none() {
        counters::trouble(Trouble::ArgsUnreadable);
        return 0;
    }
    len
}
