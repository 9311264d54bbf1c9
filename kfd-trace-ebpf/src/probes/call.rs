//! Records of calls. In: a call that has returned, or has ended otherwise. Out: its record, with the kernel's copy of its
//! arguments, and of calls that map memory the GPUs.

use crate::{emit, kernel, losses};
use aya_ebpf::Global;
use core::hint::black_box;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::OpenCall;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::{ARGS_LEN, MAP_GPUS};
use kfd_trace_common::record::{Ioctl, MapIoctl, outcome};
use kfd_trace_common::rules;
use kfd_trace_common::rules::records;

/// Which calls get a record each: `records`.
#[unsafe(no_mangle)]
static RECORD_IOCTLS: Global<u32> = Global::new(records::NONE);

/// Sends the record of a call, if all are requested, or all that change queues; its arguments are dropped.
#[inline(always)]
pub(super) fn record(call: &mut OpenCall, result: i32, latency_ns: u64, outcome: u32) {
    match RECORD_IOCTLS.load() {
        records::NONE => return,
        records::QUEUES if !rules::changes_queue(rules::nr(call.cmd)) => return,
        _ => {}
    }
    send(call, result, latency_ns, outcome);
}

#[inline(always)]
pub(super) fn send(call: &mut OpenCall, result: i32, latency_ns: u64, outcome: u32) {
    // The return probe reports calls that returned, the entry probe all others.
    let probe = if outcome == outcome::RETURNED { ProbeId::IoctlReturn } else { ProbeId::Ioctl };
    if outcome == outcome::RETURNED && rules::maps_memory(rules::nr(call.cmd)) {
        send_with_gpus(call, result, latency_ns);
    } else {
        emit::emit_in(probe, Kind::Ioctl, &*call, call.cmd, |record: &mut Ioctl| {
            fill(record, call, result, latency_ns, outcome);
        });
    }
    call.data = 0;
}

#[inline(always)]
fn fill(record: &mut Ioctl, call: &OpenCall, result: i32, latency_ns: u64, outcome: u32) {
    record.entered_ns = call.entered_ns;
    record.latency_ns = latency_ns;
    record.cmd = call.cmd;
    record.result = result;
    record.outcome = outcome;
    record.args_len = args(call, outcome, &mut record.args);
}

/// The same of a call that maps or unmaps memory, with its array of GPUs.
#[inline(never)]
fn send_with_gpus(call: &OpenCall, result: i32, latency_ns: u64) {
    let probe = ProbeId::IoctlReturn;
    emit::emit_in(probe, Kind::Ioctl, call, call.cmd, |record: &mut MapIoctl| {
        fill(&mut record.call, call, result, latency_ns, outcome::RETURNED);
        record.listed = match gpus(&record.call, &mut record.gpus) {
            Some(listed) => listed,
            None => {
                losses::trouble(probe, Trouble::ArgsUnreadable);
                0
            }
        };
    });
}

/// Reads the GPUs that a call names from its caller's memory, where the handler read them just before. 0 where there are
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

/// Copies the arguments. The handler's copy is at least as large as user space announced, and exists until
/// `kfd_ioctl` returns: it is valid at a handler's return, but not later.
#[inline(always)]
fn args(call: &OpenCall, outcome: u32, out: &mut [u8; ARGS_LEN]) -> u32 {
    if call.data == 0 || outcome != outcome::RETURNED {
        return 0;
    }
    let len = ((call.cmd >> 16) & 0x3fff).min(ARGS_LEN as u32);
    let Some(out) = out.get_mut(..len as usize) else { return 0 };
    if out.is_empty() {
        return 0;
    }
    if kernel::read_bytes(call.data, out).is_none() {
        losses::trouble(ProbeId::IoctlReturn, Trouble::ArgsUnreadable);
        return 0;
    }
    len
}
