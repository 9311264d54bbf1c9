//! Creation and end of a queue. Traces: `kfd_procfs_add_queue`, `kfd_procfs_del_queue`. Out: one record each.
//!
//! Both are called for ioctl, CRIU restore and process exit alike, in the thread that does it; the owner is
//! `q->process`. Within DESTROY_QUEUE the process itself runs, and has not freed its queue's memory yet: the
//! memory at its pointers is read a last time. On 6.1 the deletion is seen before the destruction is tried,
//! hence the note in the slot.

use crate::kernel::{self, read};
use crate::probes::{device, mqd};
use crate::processes::{self, Met, Owner};
use crate::{counters, emit, in_flight, losses};
use aya_ebpf::Global;
use aya_ebpf::macros::kprobe;
use aya_ebpf::programs::ProbeContext;
use kfd_trace_common::aql;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::in_flight::{OpenCall, at_return};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::PROPERTIES_LEN;
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
    let mut call = in_flight::current();
    // Most often the queue was written in this call.
    let written = call.as_deref().and_then(|call| mqd::written(call, queue));
    mqd::settle(call.as_deref_mut());
    let Some((owner, gpu_id)) = written.or_else(|| owner_and_gpu(ID, call.as_deref(), queue)) else {
        return 0;
    };
    note!(&ctx, "queue_add: tgid {}", owner.tgid);
    emit::emit_in(ID, Kind::QueueCreate, owner, cmd(call.as_deref()), |record: &mut QueueCreate| {
        record.gpu_id = gpu_id;
        record.properties_len = properties(queue, &mut record.properties).unwrap_or_else(|| {
            losses::trouble(ID, Trouble::QueueUnreadable);
            0
        });
    });
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
    let call = in_flight::current();
    let Some((owner, gpu_id)) = owner_and_gpu(ID, call.as_deref(), queue) else { return 0 };
    let (Some(queue_id), pointers) = id_and_pointers(queue) else {
        losses::trouble(ID, Trouble::QueueUnreadable);
        return 0;
    };
    note!(&ctx, "queue_del: tgid {} queue {}", owner.tgid, queue_id);
    let cmd = cmd(call.as_deref());
    let own = rules::nr(cmd) == rules::DESTROY_QUEUE;
    if let Some(call) = call.filter(|_| own) {
        call.at_return |= at_return::QUEUE_DELETED;
        call.deleted_queue = queue_id;
        call.deleted_gpu = gpu_id;
    }
    emit::emit_in(ID, Kind::QueueDestroy, owner, cmd, |record: &mut QueueDestroy| {
        record.queue_id = queue_id;
        record.gpu_id = gpu_id;
        if own && READ_POINTERS.load() != 0 {
            record.pointers = read_pointers(pointers, record);
        }
    });
    0
}

/// Addresses of a queue's `struct kfd_process` and of its GPU's structure, 0 if the latter cannot be read.
#[inline(always)]
pub(super) fn process_and_device(probe: ProbeId, queue: u64) -> Option<(u64, u64)> {
    let (process, device) = kernel::read_both(queue, &kernel::QUEUE_PROCESS, &kernel::QUEUE_DEVICE);
    if process.is_none() {
        losses::trouble(probe, Trouble::QueueUnreadable);
    }
    Some((process?, device.unwrap_or(0)))
}

/// The process at an address, if it is selected. `call`: the running thread's; most often it is for the same
/// process, which lives as long as the call.
#[inline(always)]
pub(super) fn owner(probe: ProbeId, call: Option<&OpenCall>, process: u64) -> Option<Owner> {
    match call {
        Some(call) if call.owner == process => Some(call.into()),
        _ => processes::wanted(probe, process, Met::Anywhere).map(|entry| Owner::from(&entry)),
    }
}

/// Owner and gpu_id of a queue whose process is selected; 0 for a gpu_id that cannot be read.
#[inline(always)]
pub(super) fn owner_and_gpu(probe: ProbeId, call: Option<&OpenCall>, queue: u64) -> Option<(Owner, u32)> {
    let (process, device) = process_and_device(probe, queue)?;
    Some((owner(probe, call, process)?, device::gpu_id(probe, device)))
}

/// Where a queue's read pointer and its write pointer are.
type Pointers = (Option<u64>, Option<u64>);

/// By one read where they lie as in Linux 5.10 to 7.3.
#[inline(always)]
fn id_and_pointers(queue: u64) -> (Option<u32>, Pointers) {
    let from_id = |field| kernel::distance(&kernel::QUEUE_ID, field);
    if (from_id(&kernel::QUEUE_READ_PTR), from_id(&kernel::QUEUE_WRITE_PTR)) == (Some(32), Some(40)) {
        return match read::<[u64; 6]>(queue, &kernel::QUEUE_ID) {
            Some([id, .., read, write]) => (Some(id as u32), (Some(read), Some(write))),
            None => (None, (None, None)),
        };
    }
    let pointers = kernel::read_both(queue, &kernel::QUEUE_READ_PTR, &kernel::QUEUE_WRITE_PTR);
    (read(queue, &kernel::QUEUE_ID), pointers)
}

/// Type and id of a queue: by one read where they lie as in Linux 5.10 to 7.3.
#[inline(always)]
pub(super) fn type_and_id(queue: u64) -> (Option<u32>, Option<u32>) {
    if kernel::distance(&kernel::QUEUE_TYPE, &kernel::QUEUE_ID) == Some(8) {
        let words = read::<[u32; 3]>(queue, &kernel::QUEUE_TYPE);
        return (words.map(|[kind, ..]| kind), words.map(|[.., id]| id));
    }
    (read(queue, &kernel::QUEUE_TYPE), read(queue, &kernel::QUEUE_ID))
}

#[inline(always)]
pub(super) fn cmd(call: Option<&OpenCall>) -> u32 {
    call.map_or(0, |call| call.cmd)
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
fn read_pointers((read, write): Pointers, record: &mut QueueDestroy) -> u32 {
    let (Some(read), Some(write)) = (read, write) else { return pointers::NOT_READ };
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
