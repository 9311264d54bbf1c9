//! Changes of a queue. Traces: `update_queue` (entry and return). Out: a record of the queue's state
//! afterwards.
//!
//! `update_queue` serves UPDATE_QUEUE, SET_CU_MASK and ALLOC_QUEUE_GWS alike; the properties are the new ones
//! before it is called, but whether the queue is active is decided inside.

use crate::kernel::{self, read};
use crate::probes::{mqd, queue};
use crate::{counters, emit, in_flight, losses, nested};
use aya_ebpf::macros::{kprobe, kretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::CU_MASK_LEN;
use kfd_trace_common::nested::Update;
use kfd_trace_common::record::QueueUpdate;
use kfd_trace_common::rules;

/// `int update_queue(struct device_queue_manager *dqm, struct queue *q, struct mqd_update_info *minfo)`; on 5.10
/// without the third.
#[kprobe]
pub(crate) fn queue_update(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::QueueUpdate;
    counters::hit(ID);
    mqd::settle(in_flight::current());
    if let Some(queue) = ctx.arg::<u64>(1) {
        if nested::current::<Update>().is_some() {
            losses::trouble(RETURN, Trouble::NestedReturnMissed);
        }
        nested::enter(ID, &Update { queue, minfo: ctx.arg(2).unwrap_or(0) });
    }
    0
}

/// Its return: queue and `minfo` still exist.
#[kretprobe]
pub(crate) fn queue_update_return(ctx: RetProbeContext) -> u32 {
    counters::hit(RETURN);
    match nested::leave::<Update>() {
        Some(update) => record(&update, ctx.ret::<u64>() as i32),
        None => losses::trouble(RETURN, Trouble::ReturnWithoutEntry),
    }
    0
}

const RETURN: ProbeId = ProbeId::QueueUpdateReturn;

#[inline(always)]
fn record(update: &Update, result: i32) {
    let call = in_flight::current();
    let Some((owner, gpu_id)) = queue::owner_and_gpu(RETURN, call.as_deref(), update.queue) else { return };
    emit::emit_in(
        RETURN,
        Kind::QueueUpdate,
        owner,
        queue::cmd(call.as_deref()),
        |record: &mut QueueUpdate| {
            record.gpu_id = gpu_id;
            record.result = result;
            record.cu_mask_bits = cu_mask(update, &mut record.cu_mask).unwrap_or(0);
            record.properties_len =
                queue::properties(update.queue, &mut record.properties).unwrap_or_else(|| {
                    losses::trouble(RETURN, Trouble::QueueUnreadable);
                    0
                });
        },
    );
}

/// The mask that is set, and its bits; the driver takes whole words of 32.
#[inline(always)]
fn cu_mask(update: &Update, out: &mut [u8; CU_MASK_LEN]) -> Option<u32> {
    let Update { queue, minfo } = *update;
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
