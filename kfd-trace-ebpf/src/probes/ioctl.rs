//! Ioctls. Traces: `kfd_ioctl` (entry), every handler (entry, where arguments are requested; return). Out:
//! the sums of `stats`, a record per call where requested, and the failed end of a DESTROY_QUEUE.

use crate::kernel::{self, read};
use crate::processes::{self, Met};
use crate::words::zero;
use crate::{counters, emit, filter, in_flight, losses, nested, stats};
use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_ktime_get_ns};
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::mem::MaybeUninit;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::{Caller, NO_CELL, Seat, Slot, at_return, busy, cell_of};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::ARGS_LEN;
use kfd_trace_common::process::{Entry, generation};
use kfd_trace_common::record::{Ioctl, QueueDestroy, outcome};
use kfd_trace_common::rules;
use kfd_trace_common::rules::records;

/// Which calls get a record each: `records`.
#[unsafe(no_mangle)]
static RECORD_IOCTLS: Global<u32> = Global::new(records::NONE);

/// One past the last command of this kernel's driver.
#[unsafe(no_mangle)]
static IOCTL_END: Global<u32> = Global::new(0);

/// The same for the range that only ROCm's driver has; 0 when it has none.
#[unsafe(no_mangle)]
static IOCTL_ROCM_END: Global<u32> = Global::new(0);

/// `long kfd_ioctl(struct file *filep, unsigned int cmd, unsigned long arg)`. Only runs that count no call are counted as hits
/// here: the others are the sum of the calls.
#[kprobe]
pub(crate) fn ioctl(ctx: ProbeContext) -> u32 {
    let (Some(file), Some(cmd)) = (ctx.arg::<u64>(0), ctx.arg::<u32>(1)) else { return 0 };
    match in_flight::seat() {
        Some(seat) => enter(seat, file, cmd),
        None => enter_without_seat(file, cmd),
    }
    0
}

/// The common case: a thread calls the same process as last time, with a command it has called before.
#[inline(always)]
fn enter(seat: &mut Seat, file: u64, cmd: u32) {
    let caller = &mut seat.caller;
    // A call that is still under way is the leftover of one whose handler's return was not seen.
    if caller.busy == busy::IN_CALL {
        no_return_seen(&mut caller.slot);
    }
    if caller.file != file || caller.generation != processes::generation() {
        meet(caller, file);
        return enter_for_the_first_time(seat, file, cmd);
    }
    let admitted = caller.admitted;
    if let Some(sum) = stats::place_of(seat, cmd).filter(|sum| sum.awaited & admitted != 0) {
        sum.stat.entered += 1;
        let caller = &mut seat.caller;
        begin(&mut caller.slot, cmd);
        caller.cell = cell_of(rules::nr(cmd)) as u32;
        caller.busy = busy::IN_CALL;
    } else {
        enter_for_the_first_time(seat, file, cmd);
    }
}

/// The uncommon cases: the process was looked up just now, the command was not called before or has no place
/// in the slot, the return is not awaited, or the process is not selected.
#[inline(never)]
fn enter_for_the_first_time(seat: &mut Seat, file: u64, cmd: u32) {
    if seat.caller.wanted == 0 {
        seat.caller.busy = busy::UNWANTED;
        counters::hit(ProbeId::Ioctl);
        return;
    }
    seat.caller.busy = busy::NO;
    begin(&mut seat.caller.slot, cmd);
    let (process, admitted) = (seat.caller.slot.process, seat.caller.admitted != 0);
    let nr = rules::nr(cmd);
    seat.caller.cell = match stats::take_place(seat, cmd) {
        Some(sum) => {
            sum.stat.entered += 1;
            cell_of(nr) as u32
        }
        None => {
            stats::entered(process, cmd);
            NO_CELL
        }
    };
    if !is_awaited(&mut seat.caller.slot, admitted, file) {
        return;
    }
    seat.caller.busy = busy::IN_CALL;
    in_flight::stay(seat);
    if nr == rules::CREATE_PROCESS {
        file_changes(&mut seat.caller.slot);
    }
    // The permission for the one is checked each time; the other has work left at its return.
    if nr != rules::CRIU
        && nr != rules::CREATE_PROCESS
        && let Some(sum) = stats::place_of(seat, cmd)
    {
        sum.awaited = 1;
    }
}

#[inline(never)]
fn enter_without_seat(file: u64, cmd: u32) {
    if let Some(mut stale) = nested::leave::<Slot>() {
        no_return_seen(&mut stale);
    }
    let mut caller = MaybeUninit::uninit();
    // SAFETY: `Caller::NONE` is all zeros.
    unsafe { zero(caller.as_mut_ptr()) };
    // SAFETY: as above.
    let caller: &mut Caller = unsafe { caller.assume_init_mut() };
    meet(caller, file);
    if caller.wanted == 0 {
        counters::hit(ProbeId::Ioctl);
        return;
    }
    begin(&mut caller.slot, cmd);
    stats::entered(caller.slot.process, cmd);
    let own = caller.admitted != 0;
    if is_awaited(&mut caller.slot, own, file) {
        if rules::nr(cmd) == rules::CREATE_PROCESS {
            file_changes(&mut caller.slot);
        }
        caller.slot.caller_tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        nested::enter(ProbeId::Ioctl, &caller.slot);
    }
}

#[inline(always)]
fn begin(slot: &mut Slot, cmd: u32) {
    // SAFETY: no arguments.
    slot.entered_ns = unsafe { bpf_ktime_get_ns() };
    slot.cmd = cmd;
}

/// The file belongs to another process when the call returns: until then, its process must not be cached. If
/// only the return did this and was missed, the old process would stay cached until something else changes.
#[inline(always)]
fn file_changes(slot: &mut Slot) {
    slot.at_return |= at_return::FILE_CHANGES;
    processes::changing();
}

/// Whether a handler's return is to be awaited; if not, the end of the call is reported here. `own`: a thread
/// of the process calls.
#[inline(always)]
fn is_awaited(slot: &mut Slot, own: bool, file: u64) -> bool {
    let nr = rules::nr(slot.cmd);
    if let Some(errno) = refusal(own, nr, file) {
        stats::refused(slot.process, slot.cmd, errno);
        record(slot, -(errno as i32), 0, outcome::REFUSED);
        return false;
    }
    if nr == rules::WAIT_EVENTS {
        record(slot, 0, 0, outcome::NOT_MEASURED);
        return false;
    }
    true
}

/// Looks up the process of a file, and caches it if that is allowed.
#[inline(never)]
fn meet(caller: &mut Caller, file: u64) {
    (caller.file, caller.wanted, caller.admitted) = (0, 0, 0);
    let now = processes::generation();
    let process: u64 = read(file, &kernel::FILE_PRIVATE_DATA).unwrap_or(0);
    if process == 0 {
        losses::trouble(ProbeId::Ioctl, Trouble::ProcessUnreadable);
        return;
    }
    let Some(entry) = processes::known(ProbeId::Ioctl, process, Met::Own) else { return };
    // SAFETY: no arguments.
    let current = unsafe { bpf_get_current_task() };
    caller.slot.process = entry.id;
    caller.slot.tgid = entry.tgid;
    caller.wanted = entry.wanted;
    caller.admitted = u32::from(entry.wanted != 0 && is_owner(&entry, current));
    caller.generation = now;
    if generation::remembers(now) {
        caller.file = file;
    }
}

/// The errno of a call that `kfd_ioctl` refuses before any handler, in the order of its checks. `own`: a thread of the
/// process calls.
#[inline(always)]
fn refusal(own: bool, nr: u32, file: u64) -> Option<u32> {
    if rules::unknown(nr, IOCTL_END.load(), IOCTL_ROCM_END.load()) {
        return Some(rules::ENOTTY);
    }
    if nr == rules::CRIU {
        return criu_refusal(own, file);
    }
    (!own).then_some(rules::EBADF)
}

#[inline(always)]
fn criu_refusal(own: bool, file: u64) -> Option<u32> {
    // SAFETY: no arguments.
    let current = unsafe { bpf_get_current_task() };
    if !own && !is_tracer(file, current) {
        return Some(rules::EBADF);
    }
    (!may_criu(current)).then_some(rules::EACCES)
}

/// `process->lead_thread == current->group_leader`. Without the driver's BTF the leader is not known: the
/// call is treated as admitted, and ends as "no return seen" if it was not.
#[inline(always)]
fn is_owner(entry: &Entry, current: u64) -> bool {
    match read::<u64>(current, &kernel::TASK_GROUP_LEADER) {
        Some(leader) if entry.leader != 0 => leader == entry.leader,
        _ => true,
    }
}

/// `ptrace_parent(process->lead_thread) == current`
#[inline(always)]
fn is_tracer(file: u64, current: u64) -> bool {
    let process = read::<u64>(file, &kernel::FILE_PRIVATE_DATA).unwrap_or(0);
    let leader = read::<u64>(process, &kernel::KFD_PROCESS_LEAD_THREAD).unwrap_or(0);
    let traced = read::<u32>(leader, &kernel::TASK_PTRACE).unwrap_or(0) != 0;
    traced && read::<u64>(leader, &kernel::TASK_PARENT) == Some(current)
}

/// `capable(CAP_CHECKPOINT_RESTORE) || capable(CAP_SYS_ADMIN)`: both check the initial user namespace.
#[inline(always)]
fn may_criu(current: u64) -> bool {
    let may = || {
        let cred: u64 = read(current, &kernel::TASK_CRED)?;
        let caps: u64 = read(cred, &kernel::CRED_CAP_EFFECTIVE)?;
        let level: u32 = read(read::<u64>(cred, &kernel::CRED_USER_NS)?, &kernel::USER_NS_LEVEL)?;
        Some(level == 0 && caps & rules::CRIU_CAPS != 0)
    };
    // Unreadable: the call is treated as admitted, and ends as "no return seen" if it was not.
    may().unwrap_or_else(|| {
        losses::trouble(ProbeId::Ioctl, Trouble::CredUnreadable);
        true
    })
}

/// Every handler: `int handler(struct file *filep, struct kfd_process *p, void *data)`; `data` is the kernel's
/// copy of the arguments.
#[kprobe]
pub(crate) fn ioctl_handler(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::IoctlHandler);
    if let (Some(slot), Some(data)) = (in_flight::current(), ctx.arg::<u64>(2)) {
        slot.data = data;
    }
    0
}

/// Return of every handler but WAIT_EVENTS. Hits as in `ioctl`.
#[kretprobe]
pub(crate) fn ioctl_return(ctx: RetProbeContext) -> u32 {
    let result = ctx.ret::<u64>() as i32;
    match in_flight::own_seat() {
        Some(seat) if seat.caller.busy == busy::IN_CALL => {
            seat.caller.busy = busy::NO;
            let latency_ns = since(&seat.caller.slot);
            let latency_ns = stats::returned_in(seat, result, latency_ns);
            leave(&mut seat.caller.slot, result, latency_ns);
        }
        Some(seat) if seat.caller.busy == busy::UNWANTED => {
            seat.caller.busy = busy::NO;
            counters::hit(ProbeId::IoctlReturn);
        }
        Some(_) => return_without_entry(),
        None => leave_without_seat(result),
    }
    0
}

#[inline(never)]
fn leave_without_seat(result: i32) {
    match nested::leave::<Slot>() {
        Some(mut slot) => {
            let latency_ns = stats::possible(since(&slot));
            stats::returned(slot.process, slot.cmd, result, latency_ns);
            leave(&mut slot, result, latency_ns);
        }
        None => return_without_entry(),
    }
}

/// Nanoseconds since the entry.
#[inline(always)]
fn since(slot: &Slot) -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_ktime_get_ns() }.wrapping_sub(slot.entered_ns)
}

#[inline(always)]
fn return_without_entry() {
    counters::hit(ProbeId::IoctlReturn);
    if filter::wanted((bpf_get_current_pid_tgid() >> 32) as u32) {
        losses::trouble(ProbeId::IoctlReturn, Trouble::ReturnWithoutEntry);
        // It may have been CREATE_PROCESS's.
        processes::changed();
    }
}

#[inline(always)]
fn leave(slot: &mut Slot, result: i32, latency_ns: u64) {
    if slot.at_return != 0 {
        leave_at_last(slot, result);
        slot.at_return = 0;
    }
    record(slot, result, latency_ns, outcome::RETURNED);
}

/// Remaining work at the return of a few calls.
#[inline(never)]
fn leave_at_last(slot: &Slot, result: i32) {
    if slot.at_return & at_return::FILE_CHANGES != 0 {
        processes::changed();
    }
    let deleted = slot.at_return & at_return::QUEUE_DELETED != 0;
    if deleted && result < 0 && !rules::destroyed_anyway(result.unsigned_abs()) {
        destroy_failed(slot, result);
    }
}

#[inline(never)]
fn no_return_seen(slot: &mut Slot) {
    stats::no_return_seen(slot.process, slot.cmd);
    record(slot, 0, 0, outcome::NO_RETURN_SEEN);
    if slot.at_return & at_return::FILE_CHANGES != 0 {
        processes::changed();
    }
    slot.at_return = 0;
}

#[inline(always)]
fn destroy_failed(slot: &Slot, result: i32) {
    let (probe, kind) = (ProbeId::IoctlReturn, Kind::QueueDestroyFailed);
    emit::emit_in(probe, kind, slot, slot.cmd, |record: &mut QueueDestroy| {
        record.queue_id = slot.deleted_queue;
        record.gpu_id = slot.deleted_gpu;
        record.result = result;
    });
}

/// Sends the record of a call, if requested; its arguments are dropped.
#[inline(always)]
fn record(slot: &mut Slot, result: i32, latency_ns: u64, outcome: u32) {
    match RECORD_IOCTLS.load() {
        records::NONE => return,
        records::QUEUES if !rules::changes_queue(rules::nr(slot.cmd)) => return,
        _ => {}
    }
    // The return probe reports calls that returned, the entry probe all others.
    let probe = if outcome == outcome::RETURNED { ProbeId::IoctlReturn } else { ProbeId::Ioctl };
    emit::emit_in(probe, Kind::Ioctl, &*slot, slot.cmd, |record: &mut Ioctl| {
        record.entered_ns = slot.entered_ns;
        record.latency_ns = latency_ns;
        record.cmd = slot.cmd;
        record.result = result;
        record.outcome = outcome;
        record.args_len = args(slot, outcome, &mut record.args);
    });
    slot.data = 0;
}

/// Copies the arguments. The handler's copy is at least as large as user space announced, and exists until
/// `kfd_ioctl` returns: it is valid at a handler's return, but not later.
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
        losses::trouble(ProbeId::IoctlReturn, Trouble::ArgsUnreadable);
        return 0;
    }
    len
}
