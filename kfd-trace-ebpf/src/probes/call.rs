//! Records of calls. In: a call that has returned, or has ended otherwise. Out: its record, with its arguments, and of calls
//! that map memory the GPUs.
//!
//! The driver copies the arguments from its caller's memory, works on the copy, and copies it back. At a handler's return
//! its copy has both what was passed and what resulted. At the return of `kfd_ioctl` the copy is gone: what was passed is
//! kept at the handler's entry, since another thread may change it in the caller's memory meanwhile; what resulted was
//! copied to the caller's memory just before.

use crate::in_flight::Args;
use crate::{emit, in_flight, kernel, losses};
use aya_ebpf::Global;
use aya_ebpf::programs::ProbeContext;
use core::hint::black_box;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::{OpenCall, at_return};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::{ARGS_LEN, IOCTL_NUMBERS, MAP_GPUS};
use kfd_trace_common::record::{Ioctl, MapIoctl, outcome};
use kfd_trace_common::rules;
use kfd_trace_common::rules::records;

/// Which calls get a record each: `records`.
#[unsafe(no_mangle)]
static RECORD_IOCTLS: Global<u32> = Global::new(records::NONE);

/// 1: the return of `kfd_ioctl` itself is probed; 0: those of the handlers.
#[unsafe(no_mangle)]
static WHOLE_CALLS: Global<u32> = Global::new(0);

/// By number of the command: which words of its arguments the driver writes.
#[unsafe(no_mangle)]
static RESULT_WORDS: [u32; IOCTL_NUMBERS as usize] = [0; IOCTL_NUMBERS as usize];

/// The return of `kfd_ioctl` itself is probed.
#[inline(always)]
pub(super) fn is_whole() -> bool {
    WHOLE_CALLS.load() != 0
}

/// At a handler's entry, whose third parameter is its copy of the arguments.
#[inline(always)]
pub(super) fn keep_arguments(probe: ProbeId, ctx: &ProbeContext) {
    let (Some(call), Some(copy)) = (in_flight::current(), ctx.arg::<u64>(2)) else { return };
    // CREATE_PROCESS (7.2) has no arguments, and its handler no copy of them.
    if recorded(call.cmd) == 0 {
        return;
    }
    if !is_whole() {
        call.data = copy;
    } else if keep(call.cmd, copy).is_some() {
        call.at_return |= at_return::ARGS_KEPT;
    } else {
        losses::trouble(probe, Trouble::ArgsUnreadable);
    }
}

#[inline(always)]
fn keep(cmd: u32, copy: u64) -> Option<()> {
    let kept = in_flight::args(true)?;
    // SAFETY: a value of a map, which only this thread uses.
    let kept = unsafe { &mut *kept };
    kernel::read_bytes(copy, kept.get_mut(..recorded(cmd) as usize)?)
}

/// Bytes of its arguments that a call's record has. The handler's copy is at least as large as user space announced.
#[inline(always)]
fn recorded(cmd: u32) -> u32 {
    ((cmd >> 16) & 0x3fff).min(ARGS_LEN as u32)
}

/// The record of a call is requested: all are, or all that change queues.
#[inline(always)]
fn is_recorded(call: &OpenCall) -> bool {
    match RECORD_IOCTLS.load() {
        records::NONE => false,
        records::QUEUES => rules::changes_queue(rules::nr(call.cmd)),
        _ => true,
    }
}

/// Sends the record of a call that has returned, if it is requested; its arguments are dropped.
#[inline(always)]
pub(super) fn record(call: &mut OpenCall, result: i32, latency_ns: u64) {
    if is_recorded(call) {
        send(call, result, latency_ns);
    }
}

/// Sends the record of a call whose return is not awaited, or was not seen, if it is requested.
#[inline(always)]
pub(super) fn record_end(call: &OpenCall, result: i32, outcome: u32) {
    if is_recorded(call) {
        send_end(call, result, outcome);
    }
}

#[inline(always)]
pub(super) fn send(call: &mut OpenCall, result: i32, latency_ns: u64) {
    let probe = ProbeId::IoctlReturn;
    if rules::maps_memory(rules::nr(call.cmd)) {
        send_with_gpus(call, result, latency_ns);
    } else {
        emit::emit_in(probe, Kind::Ioctl, &*call, call.cmd, |record: &mut Ioctl| {
            fill(record, call, result, latency_ns);
        });
    }
    if !is_whole() {
        call.data = 0;
    }
}

// Not inlined: a stack has 512 bytes for all functions that are in progress.
#[inline(never)]
pub(super) fn send_end(call: &OpenCall, result: i32, outcome: u32) {
    emit::emit_in(ProbeId::Ioctl, Kind::Ioctl, call, call.cmd, |record: &mut Ioctl| {
        record.entered_ns = call.entered_ns;
        record.cmd = call.cmd;
        record.result = result;
        record.outcome = outcome;
    });
}

#[inline(always)]
fn fill(record: &mut Ioctl, call: &OpenCall, result: i32, latency_ns: u64) {
    record.entered_ns = call.entered_ns;
    record.latency_ns = latency_ns;
    record.cmd = call.cmd;
    record.result = result;
    record.outcome = outcome::RETURNED;
    record.args_len = args(call, result, &mut record.args);
}

/// The same of a call that maps or unmaps memory, with its array of GPUs.
#[inline(never)]
fn send_with_gpus(call: &OpenCall, result: i32, latency_ns: u64) {
    let probe = ProbeId::IoctlReturn;
    emit::emit_in(probe, Kind::Ioctl, call, call.cmd, |record: &mut MapIoctl| {
        fill(&mut record.call, call, result, latency_ns);
        record.listed = match gpus(&record.call, &mut record.gpus) {
            Some(listed) => listed,
            None => {
                losses::trouble(probe, Trouble::ArgsUnreadable);
                0
            }
        };
    });
}

/// Reads the GPUs that a call names from its caller's memory, where the handler has read them. 0 where there are
/// more than fit, or where the handler did not get as far; `None` where they cannot be read.
#[inline(always)]
fn gpus(call: &Ioctl, out: &mut [u32; MAP_GPUS]) -> Option<u32> {
    let word = |at: usize| -> u32 {
        // SAFETY: four of the arguments' bytes, and their copy begins at a multiple of 8.
        unsafe { call.args.as_ptr().add(at).cast::<u32>().read() }
    };
    let (count, done) = (word(rules::MAP_COUNT_AT), word(rules::MAP_DONE_AT));
    let got_far = call.result != -(rules::EFAULT as i32) && done <= count;
    if call.args_len != rules::MAP_ARGS as u32 || !got_far || count == 0 || count > MAP_GPUS as u32 {
        return Some(0);
    }
    let from = u64::from(word(rules::MAP_ARRAY_AT)) | u64::from(word(rules::MAP_ARRAY_AT + 4)) << 32;
    // SAFETY: the bytes of the array, and any bytes are integers.
    let bytes = unsafe { &mut *out.as_mut_ptr().cast::<[u8; MAP_GPUS * 4]>() };
    // The check of `count` above is made on another register, of which the verifier learns nothing for this one: hidden
    // from the compiler, so that the slice's own check remains.
    let len = black_box((count * 4) as usize);
    kernel::read_user(from, bytes.get_mut(..len)?)?;
    Some(count)
}

/// Copies the arguments; returns how many bytes are known.
#[inline(always)]
fn args(call: &OpenCall, result: i32, out: &mut Args) -> u32 {
    let len = recorded(call.cmd);
    if len == 0 {
        return 0;
    }
    let done = if is_whole() {
        if call.at_return & at_return::ARGS_KEPT == 0 {
            return 0;
        }
        passed_and_resulted(call, result, out)
    } else {
        if call.data == 0 {
            return 0;
        }
        // It exists until `kfd_ioctl` returns: it is valid at a handler's return, but not later.
        out.get_mut(..len as usize).and_then(|out| kernel::read_bytes(call.data, out))
    };
    if done.is_none() {
        losses::trouble(ProbeId::IoctlReturn, Trouble::ArgsUnreadable);
        return 0;
    }
    len
}

/// What was passed, as the handler got it, and what resulted, as the caller gets it. Where the driver could not copy that
/// to the caller, there is only what was passed.
#[inline(always)]
fn passed_and_resulted(call: &OpenCall, result: i32, out: &mut Args) -> Option<()> {
    let kept = in_flight::args(false)?.cast::<u32>();
    let results = result_words(rules::nr(call.cmd));
    let delivered = results != 0 && result != -(rules::EFAULT as i32);
    if delivered {
        kernel::read_user(call.data, out.get_mut(..recorded(call.cmd) as usize)?)?;
    }
    let passed = if delivered { !results } else { u32::MAX };
    let out = out.as_mut_ptr().cast::<u32>();
    for word in 0..ARGS_LEN / size_of::<u32>() {
        if passed >> word & 1 != 0 {
            // SAFETY: one of the words of two arrays of this length, both aligned: they follow whole words.
            unsafe { out.add(word).write_volatile(kept.add(word).read_volatile()) };
        }
    }
    Some(())
}

#[inline(always)]
fn result_words(nr: u32) -> u32 {
    let words = (&raw const RESULT_WORDS).cast::<u32>();
    // SAFETY: `nr` is below the length of the array. Volatile, since the daemon sets it before the program is loaded.
    unsafe { words.add(nr as usize & (IOCTL_NUMBERS as usize - 1)).read_volatile() }
}
