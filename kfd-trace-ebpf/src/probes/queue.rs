//! Creation and end of a queue. Traces: `kfd_procfs_add_queue`, `kfd_procfs_del_queue`. Out: one record each.
//!
//! Both are called for ioctl, CRIU restore and process exit alike, in the thread that does it; the owner is
//! `q->process`. Within DESTROY_QUEUE the process itself runs, and has not freed its queue's memory yet: the
//! memory at its pointers is read a last time. On 6.1 the deletion is seen before the destruction is tried,
//! hence the note in the slot.

use crate::kernel::{self, read};
use crate::probes::{device, mqd};
use crate::processes::{self, Met};
use crate::{counters, emit, in_flight, losses};
use aya_ebpf::Global;
use aya_ebpf::macros::kprobe;
use aya_ebpf::programs::ProbeContext;
use kfd_trace_common::aql;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::at_return;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::PROPERTIES_LEN;
use kfd_trace_common::process::Entry;
use kfd_trace_common::record::{QueueCreate, QueueDestroy, pointers};
use kfd_trace_common::rules;

/// `sizeof(struct queue_properties)` on this kernel, at most [`PROPERTIES_LEN`].
#[unsafe(no_mangle)]
static PROPERTIES_BYTES: Global<u32> = Global::new(0);

/// 1: read the memory at a queue's pointers.
#[unsafe(no_mangle)]
static READ_POINTERS: Global<u32> = Global::new(0);

/// `int kfd_procfs_add_queue(struct queue *q)`: after a successful creation.
#[kprobe]
pub(crate) fn queue_add(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::QueueAdd;
    counters::hit(ID);
    let Some(queue) = ctx.arg::<u64>(0) else { return 0 };
    mqd::settle();
    if let Some(entry) = owner(ID, queue) {
        note!(&ctx, "queue_add: tgid {}", entry.tgid);
        record_create(ID, queue, &entry);
    }
    0
}

/// `void kfd_procfs_del_queue(struct queue *q)`: NULL for a kernel queue.
#[kprobe]
pub(crate) fn queue_del(ctx: ProbeContext) -> u32 {
    const ID: ProbeId = ProbeId::QueueDel;
    counters::hit(ID);
    let queue = ctx.arg::<u64>(0).unwrap_or(0);
    if queue == 0 {
        return 0;
    }
    let Some(entry) = owner(ID, queue) else { return 0 };
    let Some(queue_id) = read::<u32>(queue, &kernel::QUEUE_ID) else {
        losses::trouble(ID, Trouble::QueueUnreadable);
        return 0;
    };
    note!(&ctx, "queue_del: tgid {} queue {}", entry.tgid, queue_id);
    let gpu_id = gpu_id(ID, queue);
    let call = in_flight::current().filter(|call| rules::nr(call.cmd) == rules::DESTROY_QUEUE);
    let own = call.is_some();
    if let Some(call) = call {
        call.at_return |= at_return::QUEUE_DELETED;
        call.deleted_queue = queue_id;
        call.deleted_gpu = gpu_id;
    }
    emit::emit(ID, Kind::QueueDestroy, &entry, |record: &mut QueueDestroy| {
        record.queue_id = queue_id;
        record.gpu_id = gpu_id;
        if own && READ_POINTERS.load() != 0 {
            record.pointers = read_pointers(queue, record);
        }
    });
    0
}

/// The process of a queue, if it is selected.
#[inline(always)]
pub(super) fn owner(probe: ProbeId, queue: u64) -> Option<Entry> {
    let Some(process) = read::<u64>(queue, &kernel::QUEUE_PROCESS) else {
        losses::trouble(probe, Trouble::QueueUnreadable);
        return None;
    };
    processes::wanted(probe, process, Met::Anywhere)
}

/// KFD's gpu_id, 0 where it cannot be read.
#[inline(always)]
pub(super) fn gpu_id(probe: ProbeId, queue: u64) -> u32 {
    device::gpu_id(probe, read(queue, &kernel::QUEUE_DEVICE).unwrap_or(0))
}

#[inline(always)]
fn record_create(probe: ProbeId, queue: u64, entry: &Entry) {
    emit::emit(probe, Kind::QueueCreate, entry, |record: &mut QueueCreate| {
        record.gpu_id = gpu_id(probe, queue);
        record.properties_len = properties(queue, &mut record.properties).unwrap_or_else(|| {
            losses::trouble(probe, Trouble::QueueUnreadable);
            0
        });
    });
}

/// One contiguous read; the daemon knows this kernel's layout.
#[inline(always)]
pub(super) fn properties(queue: u64, out: &mut [u8; PROPERTIES_LEN]) -> Option<u32> {
    let len = PROPERTIES_BYTES.load();
    if len == 0 {
        return None;
    }
    let out = out.get_mut(..len as usize)?;
    kernel::read_bytes(queue + kernel::offset(&kernel::QUEUE_PROPERTIES)?, out)?;
    Some(len)
}

/// Reads the memory of the running process; the daemon interprets it.
#[inline(always)]
fn read_pointers(queue: u64, record: &mut QueueDestroy) -> u32 {
    let pointers_read = (read(queue, &kernel::QUEUE_WRITE_PTR), read(queue, &kernel::QUEUE_READ_PTR));
    let (Some(write), Some(read)) = pointers_read else { return pointers::NOT_READ };
    let (what, done) = match aql::head(write, read) {
        Some(head) => (pointers::HEAD, kernel::read_user(head, &mut record.memory)),
        None => (pointers::WORDS, words(write, read, &mut record.memory)),
    };
    if done.is_some() { what } else { pointers::UNREADABLE }
}

#[inline(always)]
fn words(write: u64, read: u64, out: &mut [u8; aql::HEAD_LEN]) -> Option<()> {
    // In this order the value of the read pointer is never ahead.
    kernel::read_user(read, out.get_mut(8..16)?)?;
    kernel::read_user(write, out.get_mut(..8)?)
}
