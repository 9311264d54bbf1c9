//! Changes of a queue. Traces: `update_queue` (entry and return). Out: a record of the queue's state
//! afterwards.
//!
//! `update_queue` serves UPDATE_QUEUE, SET_CU_MASK and ALLOC_QUEUE_GWS alike; the properties are the new ones
//! before it is called, but whether the queue is active is decided inside.
//!
//! Callers wait inside of it for the lock of the GPU's scheduler, and its return is missed where more of them wait
//! than the kretprobe has room for. Then the update is reported at the return of its ioctl, with the result of that;
//! or at the thread's next ioctl, without a result.

use crate::kernel::{self, read};
use crate::probes::{device, mqd, queue};
use crate::{counters, emit, in_flight, losses, nested};
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::{OpenCall, at_return};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::CU_MASK_LEN;
use kfd_trace_common::nested::Update;
use kfd_trace_common::record::{MASK_NOT_READ, QueueUpdate, RESULT_NOT_SEEN};
use kfd_trace_common::rules;

/// `int update_queue(struct device_queue_manager *dqm, struct queue *q, struct mqd_update_info *minfo)`; on 5.10
/// without the third.
#[kprobe]
pub(crate) fn queue_update(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::QueueUpdate;
    counters::hit(ID);
    let mut call = in_flight::current();
    mqd::settle(call.as_deref_mut());
    if let Some(queue) = ctx.arg::<u64>(1) {
        if nested::current::<Update>().is_some() {
            losses::trouble(RETURN, Trouble::NestedReturnMissed);
        }
        if let Some(call) = call {
            call.at_return |= at_return::QUEUE_UPDATED;
        }
        let queue_id = read(queue, &kernel::QUEUE_ID).unwrap_or(0);
        nested::enter(ID, &Update { queue, minfo: ctx.arg(2).unwrap_or(0), queue_id, pad: 0 });
    }
    0
}

/// Its return: queue and `minfo` still exist.
#[kretprobe]
pub(crate) fn queue_update_return(ctx: RetProbeContext) -> u32 {
    counters::hit(RETURN);
    match nested::leave::<Update>() {
        Some(update) => {
            let mut call = in_flight::current();
            if let Some(call) = call.as_deref_mut() {
                call.at_return &= !at_return::QUEUE_UPDATED;
            }
            record(&update, call.as_deref(), ctx.ret::<u64>() as i32);
        }
        None => losses::trouble(RETURN, Trouble::ReturnWithoutEntry),
    }
    0
}

const RETURN: ProbeId = ProbeId::QueueUpdateReturn;

#[inline(always)]
fn record(update: &Update, call: Option<&OpenCall>, result: i32) {
    let Some((owner, gpu_id)) = queue::owner_and_gpu(RETURN, call, update.queue) else { return };
    emit::emit_in(RETURN, Kind::QueueUpdate, owner, queue::cmd(call), |record: &mut QueueUpdate| {
        record.gpu_id = gpu_id;
        record.result = result;
        record.cu_mask_bits = cu_mask(update, &mut record.cu_mask).unwrap_or(0);
        properties(update.queue, record);
    });
}

#[inline(always)]
fn properties(queue: u64, record: &mut QueueUpdate) {
    record.properties_len = queue::properties(queue, &mut record.properties).unwrap_or_else(|| {
        losses::trouble(RETURN, Trouble::QueueUnreadable);
        0
    });
}

/// The update of a call that is over, where its own return was missed. Another thread may have destroyed the queue
/// meanwhile, and another queue may be in its memory: it is read only if it is still the same queue. `result`: that of
/// the call, or [`RESULT_NOT_SEEN`].
#[inline(never)]
pub(super) fn return_missed(call: &OpenCall, result: i32) {
    let Some(update) = nested::leave::<Update>() else { return };
    let is_same = read::<u64>(update.queue, &kernel::QUEUE_PROCESS) == Some(call.owner)
        && read::<u32>(update.queue, &kernel::QUEUE_ID) == Some(update.queue_id);
    if result == RESULT_NOT_SEEN || !is_same {
        losses::trouble(RETURN, Trouble::NestedReturnMissed);
    }
    if !is_same {
        return;
    }
    let device = read(update.queue, &kernel::QUEUE_DEVICE).unwrap_or(0);
    let gpu_id = device::gpu_id(RETURN, device);
    emit::emit_in(RETURN, Kind::QueueUpdate, call, call.cmd, |record: &mut QueueUpdate| {
        record.gpu_id = gpu_id;
        record.result = result;
        // The caller's mask is freed with the call.
        let sets_mask = rules::nr(call.cmd) == rules::SET_CU_MASK;
        record.cu_mask_bits = if sets_mask { MASK_NOT_READ } else { 0 };
        properties(update.queue, record);
    });
}

/// The mask that is set, and its bits; the driver takes whole words of 32.
#[inline(always)]
fn cu_mask(update: &Update, out: &mut [u8; CU_MASK_LEN]) -> Option<u32> {
    let Update { queue, minfo, .. } = *update;
    let (bits, words): (u32, u64) = if kernel::offset(&kernel::QUEUE_CU_MASK_PTR).is_some() {
        if !sets_cu_mask() {
            return None;
        }
        (read(queue, &kernel::QUEUE_CU_MASK_COUNT)?, read(queue, &kernel::QUEUE_CU_MASK_PTR)?)
    } else {
        (read(minfo, &kernel::MINFO_CU_MASK_COUNT)?, read(minfo, &kernel::MINFO_CU_MASK_PTR)?)
    };
    if bits == 0 || words == 0 {
        return None;
    }
    let bits = bits.min(CU_MASK_LEN as u32 * 8);
    kernel::read_bytes(words, out.get_mut(..(bits / 8) as usize)?)?;
    Some(bits)
}

/// Whether the call under way is SET_CU_MASK. 5.10 keeps the mask with the queue: there each update has it.
#[inline(always)]
fn sets_cu_mask() -> bool {
    rules::nr(in_flight::current_cmd()) == rules::SET_CU_MASK
}
