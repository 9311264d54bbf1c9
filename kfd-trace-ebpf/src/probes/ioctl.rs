//! Ioctls. Traces: `kfd_ioctl` (entry, and return where one has room for all callers that sleep), every handler (entry,
//! where arguments are requested; return, where `kfd_ioctl`'s is not probed). Out: the sums of `stats`, a record per call
//! where requested, and the failed end of a DESTROY_QUEUE.

use crate::kernel::{self, read};
use crate::probes::call::{is_whole, keep_arguments, record, record_end, send, send_end};
use crate::probes::update;
use crate::processes::{self, Met};
use crate::words::zero;
use crate::{counters, emit, filter, in_flight, losses, nested, refusal, stats};
use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_ktime_get_ns};
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use core::mem::MaybeUninit;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::{Caller, CallerSlot, NO_CELL, OpenCall, at_return, busy, cell_of};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::process::generation;
use kfd_trace_common::record::{QueueDestroy, RESULT_NOT_SEEN, outcome};
use kfd_trace_common::rules;

/// Calls that change the memory of a process get a record each.
#[unsafe(no_mangle)]
static RECORD_MEMORY: Global<u32> = Global::new(0);

/// `long kfd_ioctl(struct file *filep, unsigned int cmd, unsigned long arg)`. Only runs that count no call
/// are counted as hits here: the others are the sum of the calls.
#[kprobe]
pub(crate) fn ioctl(ctx: ProbeContext) -> u32 {
    let (Some(file), Some(cmd), Some(arg)) = (ctx.arg::<u64>(0), ctx.arg::<u32>(1), ctx.arg::<u64>(2)) else {
        return 0;
    };
    match in_flight::slot() {
        Some(slot) => enter(slot, file, cmd, arg),
        None => enter_without_slot(file, cmd, arg),
    }
    0
}

/// The common case: a thread calls the same process as last time, with a command it has called before.
#[inline(always)]
fn enter(slot: &mut CallerSlot, file: u64, cmd: u32, arg: u64) {
    let caller = &mut slot.caller;
    // A call that is still under way is the leftover of one whose return was not seen.
    if caller.busy == busy::IN_CALL {
        no_return_seen(&mut caller.call);
    }
    if caller.file != file || caller.generation != processes::generation() {
        meet(caller, file);
        return enter_for_the_first_time(slot, file, cmd, arg);
    }
    let admitted = caller.admitted;
    if let Some(sum) = stats::place_of(slot, cmd).filter(|sum| sum.awaited & admitted != 0) {
        sum.stat.entered += 1;
        let caller = &mut slot.caller;
        begin(&mut caller.call, cmd, arg);
        caller.cell = cell_of(rules::nr(cmd)) as u32;
        caller.busy = busy::IN_CALL;
    } else {
        enter_for_the_first_time(slot, file, cmd, arg);
    }
}

/// The uncommon cases: the process was looked up just now, the command was not called before or has no place
/// in the slot, the return is not awaited, or the process is not selected.
#[inline(never)]
fn enter_for_the_first_time(slot: &mut CallerSlot, file: u64, cmd: u32, arg: u64) {
    if slot.caller.wanted == 0 {
        slot.caller.busy = busy::UNWANTED;
        counters::hit(ProbeId::Ioctl);
        return;
    }
    slot.caller.busy = busy::NO;
    begin(&mut slot.caller.call, cmd, arg);
    let (process, admitted) = (slot.caller.call.process, slot.caller.admitted != 0);
    let nr = rules::nr(cmd);
    slot.caller.cell = match stats::take_place(slot, cmd) {
        Some(sum) => {
            sum.stat.entered += 1;
            cell_of(nr) as u32
        }
        None => {
            stats::entered(process, cmd);
            NO_CELL
        }
    };
    if !is_awaited(&mut slot.caller.call, admitted, file) {
        return;
    }
    slot.caller.busy = busy::IN_CALL;
    in_flight::stay(slot);
    if nr == rules::CREATE_PROCESS {
        file_changes(&mut slot.caller.call);
    }
    // The permission for the one is checked each time; the others have work left at their return.
    if nr != rules::CRIU
        && nr != rules::CREATE_PROCESS
        && (RECORD_MEMORY.load() == 0 || !rules::changes_memory(nr))
        && let Some(sum) = stats::place_of(slot, cmd)
    {
        sum.awaited = 1;
    }
}

#[inline(never)]
fn enter_without_slot(file: u64, cmd: u32, arg: u64) {
    if let Some(mut stale) = nested::leave::<OpenCall>() {
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
    begin(&mut caller.call, cmd, arg);
    stats::entered(caller.call.process, cmd);
    let own = caller.admitted != 0;
    if is_awaited(&mut caller.call, own, file) {
        if rules::nr(cmd) == rules::CREATE_PROCESS {
            file_changes(&mut caller.call);
        }
        caller.call.caller_tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
        nested::enter(ProbeId::Ioctl, &caller.call);
    }
}

#[inline(always)]
fn begin(call: &mut OpenCall, cmd: u32, arg: u64) {
    // SAFETY: no arguments.
    call.entered_ns = unsafe { bpf_ktime_get_ns() };
    call.cmd = cmd;
    if is_whole() {
        call.data = arg;
    }
    call.mqd.properties = 0;
}

/// The file belongs to another process when the call returns: until then, its process must not be cached. If
/// only the return did this and was missed, the old process would stay cached until something else changes.
#[inline(always)]
fn file_changes(call: &mut OpenCall) {
    call.at_return |= at_return::FILE_CHANGES;
    processes::changing();
}

/// Whether to wait for the return; if not, the end of the call is reported here. `own`: a thread of the process
/// calls.
#[inline(always)]
fn is_awaited(call: &mut OpenCall, own: bool, file: u64) -> bool {
    let nr = rules::nr(call.cmd);
    if !is_whole() && !gets_to_its_handler(call, nr, own, file) {
        return false;
    }
    if rules::changes_memory(nr) && RECORD_MEMORY.load() != 0 {
        call.at_return |= at_return::MEMORY_CHANGES;
    }
    true
}

/// The call gets to a handler whose return is probed.
#[inline(always)]
fn gets_to_its_handler(call: &mut OpenCall, nr: u32, own: bool, file: u64) -> bool {
    match refusal::of(own, nr, file) {
        refusal::NONE => {}
        // Only the caller receives its errno.
        refusal::UNKNOWN => {
            no_return_seen(call);
            return false;
        }
        errno => {
            stats::refused(call.process, call.cmd, errno);
            record_end(call, -(errno as i32), outcome::REFUSED);
            return false;
        }
    }
    if nr == rules::WAIT_EVENTS {
        record_end(call, 0, outcome::NOT_MEASURED);
        return false;
    }
    true
}

/// Looks up the process of a file, and caches it if that is allowed.
#[inline(never)]
fn meet(caller: &mut Caller, file: u64) {
    (caller.file, caller.wanted, caller.admitted, caller.call.owner) = (0, 0, 0, 0);
    let now = processes::generation();
    let process: u64 = read(file, &kernel::FILE_PRIVATE_DATA).unwrap_or(0);
    if process == 0 {
        losses::trouble(ProbeId::Ioctl, Trouble::ProcessUnreadable);
        return;
    }
    let Some(entry) = processes::known(ProbeId::Ioctl, process, Met::Own) else { return };
    // SAFETY: no arguments.
    let current = unsafe { bpf_get_current_task() };
    caller.call.process = entry.id;
    caller.call.owner = process;
    caller.call.tgid = entry.tgid;
    caller.wanted = entry.wanted;
    // Whom `kfd_ioctl` refuses shows at its return.
    caller.admitted = u32::from(entry.wanted != 0 && (is_whole() || refusal::is_owner(&entry, current)));
    caller.generation = now;
    if generation::remembers(now) {
        caller.file = file;
    }
}

/// Every handler: `int handler(struct file *filep, struct kfd_process *p, void *data)`; `data` is the
/// kernel's copy of the arguments.
#[kprobe]
pub(crate) fn ioctl_handler(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::IoctlHandler);
    keep_arguments(ProbeId::IoctlHandler, &ctx);
    0
}

/// Handlers that allocate, import, restore, map, unmap and free memory, with the same parameters.
#[kprobe]
pub(crate) fn memory_call(ctx: ProbeContext) -> u32 {
    counters::hit(ProbeId::MemoryCall);
    keep_arguments(ProbeId::MemoryCall, &ctx);
    0
}

/// Return of `kfd_ioctl`, which returns a `long`; or of every handler but WAIT_EVENTS, which returns an `int`. Hits as in
/// `ioctl`.
#[kretprobe]
pub(crate) fn ioctl_return(ctx: RetProbeContext) -> u32 {
    let result = ctx.ret::<u64>() as i32;
    match in_flight::own_slot() {
        Some(slot) if slot.caller.busy == busy::IN_CALL => {
            slot.caller.busy = busy::NO;
            let latency_ns = since(&slot.caller.call);
            let latency_ns = stats::returned_in(slot, result, latency_ns);
            leave(&mut slot.caller.call, result, latency_ns);
        }
        Some(slot) if slot.caller.busy == busy::UNWANTED => {
            slot.caller.busy = busy::NO;
            counters::hit(ProbeId::IoctlReturn);
        }
        Some(_) => return_without_entry(),
        None => leave_without_seat(result),
    }
    0
}

#[inline(never)]
fn leave_without_seat(result: i32) {
    match nested::leave::<OpenCall>() {
        Some(mut call) => {
            let latency_ns = stats::possible(since(&call));
            stats::returned(call.process, call.cmd, result, latency_ns);
            leave(&mut call, result, latency_ns);
        }
        None => return_without_entry(),
    }
}

/// Nanoseconds since the entry.
#[inline(always)]
fn since(call: &OpenCall) -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_ktime_get_ns() }.wrapping_sub(call.entered_ns)
}

#[inline(always)]
fn return_without_entry() {
    counters::hit(ProbeId::IoctlReturn);
    if filter::wants_caller((bpf_get_current_pid_tgid() >> 32) as u32) {
        losses::trouble(ProbeId::IoctlReturn, Trouble::ReturnWithoutEntry);
        // It may have been CREATE_PROCESS's.
        processes::changed();
    }
}

#[inline(always)]
fn leave(call: &mut OpenCall, result: i32, latency_ns: u64) {
    let unfinished = call.at_return != 0;
    if unfinished {
        leave_at_last(call, result, latency_ns);
    }
    record(call, result, latency_ns);
    if unfinished {
        call.at_return = 0;
    }
}

/// Remaining work at the return of a few calls.
#[inline(never)]
fn leave_at_last(call: &mut OpenCall, result: i32, latency_ns: u64) {
    if call.at_return & at_return::FILE_CHANGES != 0 {
        processes::changed();
    }
    if call.at_return & at_return::QUEUE_UPDATED != 0 {
        update::return_missed(call, result);
    }
    let deleted = call.at_return & at_return::QUEUE_DELETED != 0;
    if deleted && result < 0 && !rules::destroyed_anyway(result.unsigned_abs()) {
        destroy_failed(call, result);
    }
    if call.at_return & at_return::MEMORY_CHANGES != 0 {
        send(call, result, latency_ns);
    }
}

#[inline(never)]
fn no_return_seen(call: &mut OpenCall) {
    stats::no_return_seen(call.process, call.cmd);
    record_end(call, 0, outcome::NO_RETURN_SEEN);
    if call.at_return & at_return::FILE_CHANGES != 0 {
        processes::changed();
    }
    if call.at_return & at_return::QUEUE_UPDATED != 0 {
        update::return_missed(call, RESULT_NOT_SEEN);
    }
    if call.at_return & at_return::MEMORY_CHANGES != 0 {
        send_end(call, 0, outcome::NO_RETURN_SEEN);
    }
    call.at_return = 0;
}

#[inline(always)]
fn destroy_failed(call: &OpenCall, result: i32) {
    let (probe, kind) = (ProbeId::IoctlReturn, Kind::QueueDestroyFailed);
    emit::emit_in(probe, kind, call, call.cmd, |record: &mut QueueDestroy| {
        record.queue_id = call.deleted_queue;
        record.gpu_id = call.deleted_gpu;
        record.result = result;
    });
}
