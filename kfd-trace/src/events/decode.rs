//! Decodes bytes of the ring buffer to events. Total: any bytes give an event or a named error.

use crate::model::event::{Body, Event, IoctlCall, Outcome, ProcessId, ProcessSeen};
use crate::model::incident::{
    CuMask, Eviction, FaultAccess, MqdOp, QueueUpdate, Trigger, UserQueueCall, UserQueueOp, VmFault,
};
use crate::model::layout::QueueLayout;
use crate::model::mes::{MesOp, MesQueue};
use crate::model::pointers::Memory;
use crate::model::runlist::{Callers, Preemption, Runlist};
use crate::model::suspension::{NamedQueue, QueueResult, Queues, Suspension};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::record::{
    self, Header, MASK_NOT_READ, RESULT_NOT_SEEN, Record, fault, mqd_op, outcome, oversubscribed,
    suspension as bit,
};
use kfd_trace_common::rules::{MAP_ARGS, PRIMARY_CONTEXT};
use thiserror::Error;

/// Why a record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("{0} bytes are too few for a record's header")]
    NoHeader(usize),
    #[error("record of version {0}, this program reads version {ours}", ours = record::VERSION)]
    Version(u16),
    #[error("unknown kind of record {0}")]
    Kind(u16),
    #[error("{name} record of {got} bytes, expected {want}", name = kind.name())]
    Size { kind: Kind, got: usize, want: usize },
    #[error("unknown outcome {0} of an ioctl")]
    Outcome(u32),
    #[error("unknown function {0} that wrote an MQD")]
    MqdOp(u32),
    #[error("unknown reading {0} of a queue's pointers")]
    Pointers(u32),
    #[error("unknown request {0} to the firmware scheduler MES")]
    MesOp(u32),
}

impl DecodeError {
    /// Every name that [`DecodeError::reason`] returns.
    pub const REASONS: [&str; 8] =
        ["no_header", "version", "kind", "size", "outcome", "mqd_op", "pointers", "mes_op"];

    /// Name in metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            DecodeError::NoHeader(_) => "no_header",
            DecodeError::Version(_) => "version",
            DecodeError::Kind(_) => "kind",
            DecodeError::Size { .. } => "size",
            DecodeError::Outcome(_) => "outcome",
            DecodeError::MqdOp(_) => "mqd_op",
            DecodeError::Pointers(_) => "pointers",
            DecodeError::MesOp(_) => "mes_op",
        }
    }
}

/// A record that could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct Undecodable {
    pub error: DecodeError,
    /// The probe whose program sent it; `None` if the record does not identify it.
    pub probe: Option<ProbeId>,
}

/// What is known of the kernel that makes the records.
#[derive(Clone, Debug, Default)]
pub struct Maker {
    pub layout: QueueLayout,
    pub callers: Callers,
}

impl From<QueueLayout> for Maker {
    fn from(layout: QueueLayout) -> Self {
        Maker { layout, ..Maker::default() }
    }
}

/// Decodes one record.
///
/// # Errors
/// [`Undecodable`] when the bytes are not a record of this version.
pub fn decode(bytes: &[u8], maker: &Maker) -> Result<Event, Undecodable> {
    event(bytes, maker).map_err(|error| Undecodable { error, probe: probe_of(bytes) })
}

/// The probe in the header of a record of this version.
fn probe_of(bytes: &[u8]) -> Option<ProbeId> {
    let header: Header = prefix(bytes).filter(|header| header.version == record::VERSION)?;
    ProbeId::from_raw(header.probe)
}

fn event(bytes: &[u8], maker: &Maker) -> Result<Event, DecodeError> {
    let layout = &maker.layout;
    let header: Header = prefix(bytes).ok_or(DecodeError::NoHeader(bytes.len()))?;
    if header.version != record::VERSION {
        return Err(DecodeError::Version(header.version));
    }
    let kind = Kind::from_raw(header.kind).ok_or(DecodeError::Kind(header.kind))?;
    let body = match kind {
        Kind::ProcessSeen => process_seen(&whole(kind, bytes)?),
        Kind::Open => {
            let open: record::Open = whole(kind, bytes)?;
            Body::Open { errno: errno(open.result), comm: text(&open.comm).unwrap_or_default() }
        }
        Kind::Close => whole::<record::Bare>(kind, bytes).map(|_| Body::Close)?,
        Kind::MmRelease => whole::<record::Bare>(kind, bytes).map(|_| Body::MmRelease)?,
        Kind::ProcessRelease => whole::<record::Bare>(kind, bytes).map(|_| Body::ProcessRelease)?,
        Kind::QueueCreate => {
            let create: record::QueueCreate = whole(kind, bytes)?;
            let properties = prefix_of(&create.properties, create.properties_len);
            Body::QueueCreate(layout.queue(properties, some(create.gpu_id), header.ioctl))
        }
        Kind::QueueDestroy => {
            let destroy: record::QueueDestroy = whole(kind, bytes)?;
            let (queue_id, gpu_id) = (destroy.queue_id, some(destroy.gpu_id));
            let last = Memory::parse(destroy.pointers, &destroy.memory).map_err(DecodeError::Pointers)?;
            Body::QueueDestroy { queue_id, gpu_id, last }
        }
        Kind::QueueDestroyFailed => {
            let destroy: record::QueueDestroy = whole(kind, bytes)?;
            let (queue_id, gpu_id) = (destroy.queue_id, some(destroy.gpu_id));
            Body::QueueDestroyFailed { queue_id, gpu_id, errno: errno(destroy.result) }
        }
        Kind::Ioctl if bytes.len() == size_of::<record::MapIoctl>() => map_ioctl(&whole(kind, bytes)?)?,
        Kind::Ioctl => Body::Ioctl(ioctl(&whole(kind, bytes)?)?),
        Kind::QueueUpdate => queue_update(&whole(kind, bytes)?, layout, header.ioctl),
        Kind::MqdWrite => mqd_write(&whole(kind, bytes)?)?,
        Kind::Evict => Body::Evict(eviction(&whole(kind, bytes)?)),
        Kind::Restore => Body::Restore(eviction(&whole(kind, bytes)?)),
        Kind::VmFault => vm_fault(&whole(kind, bytes)?),
        Kind::GpuResetBegin => Body::GpuResetBegin { gpu_id: gpu(kind, bytes)? },
        Kind::GpuResetEnd => Body::GpuResetEnd { gpu_id: gpu(kind, bytes)? },
        Kind::HwsHang => Body::HwsHang { gpu_id: gpu(kind, bytes)? },
        Kind::UserQueue => user_queue(&whole(kind, bytes)?),
        Kind::EvictFailed => Body::EvictFailed(eviction(&whole(kind, bytes)?)),
        Kind::Preempt => preempt(&whole(kind, bytes)?, &maker.callers),
        Kind::Runlist => runlist(&whole(kind, bytes)?, &maker.callers),
        Kind::QueuesSuspended => {
            let call: record::Suspension = whole(kind, bytes)?;
            let grace_period = Some(call.grace_period);
            Body::QueuesSuspended(Suspension { grace_period, ..suspension(&call) })
        }
        Kind::QueuesResumed => Body::QueuesResumed(suspension(&whole(kind, bytes)?)),
        Kind::MesQueue => mes_queue(&whole(kind, bytes)?, &maker.callers)?,
    };
    Ok(Event {
        mono_ns: header.mono_ns,
        process: (header.process != 0).then_some(ProcessId(header.process)),
        tgid: some(header.tgid),
        tid: header.tid,
        task_tgid: header.task_tgid,
        cpu: header.cpu,
        in_ioctl: some(header.ioctl),
        body,
    })
}

fn process_seen(seen: &record::ProcessSeen) -> Body {
    Body::ProcessSeen(ProcessSeen {
        standing: seen.standing != 0,
        start_boottime_ns: (seen.start_boottime_ns != 0).then_some(seen.start_boottime_ns),
        ns_tgid: some(seen.ns_tgid),
        uid: (seen.uid != u32::MAX).then_some(seen.uid),
        comm: text(&seen.comm),
        cgroup_leaf: text(&seen.cgroup),
        context_id: secondary(seen.context_id),
    })
}

/// `None` for a primary context, and for a driver without others.
#[must_use]
pub fn secondary(context_id: u32) -> Option<u32> {
    (context_id < PRIMARY_CONTEXT).then_some(context_id)
}

fn queue_update(update: &record::QueueUpdate, layout: &QueueLayout, ioctl: u32) -> Body {
    let properties = prefix_of(&update.properties, update.properties_len);
    let mask_unread = update.cu_mask_bits == MASK_NOT_READ;
    let mask = if mask_unread { &[] } else { prefix_of(&update.cu_mask, update.cu_mask_bits / 8) };
    Body::QueueUpdate(QueueUpdate {
        now: layout.queue(properties, some(update.gpu_id), ioctl),
        cu_mask: (!mask.is_empty()).then(|| CuMask::from_bytes(mask)),
        mask_unread,
        errno: (update.result != RESULT_NOT_SEEN).then(|| errno(update.result)),
    })
}

fn mqd_write(write: &record::MqdWrite) -> Result<Body, DecodeError> {
    let op = match write.op {
        mqd_op::INIT => MqdOp::Init,
        mqd_op::UPDATE => MqdOp::Update,
        mqd_op::RESTORE => MqdOp::Restore,
        other => return Err(DecodeError::MqdOp(other)),
    };
    Ok(Body::MqdWrite { queue_id: write.queue_id, gpu_id: some(write.gpu_id), op })
}

fn eviction(eviction: &record::Eviction) -> Eviction {
    Eviction {
        gpu_id: some(eviction.gpu_id),
        trigger: Trigger::from_raw(eviction.trigger),
        errno: errno(eviction.result),
        latency_ns: eviction.latency_ns,
    }
}

fn preempt(preempt: &record::Preempt, callers: &Callers) -> Body {
    Body::Preempt(Preemption {
        gpu_id: some(preempt.gpu_id),
        reason: callers.reason(preempt.caller, preempt.outer),
        latency_ns: preempt.latency_ns,
        errno: errno(preempt.result),
        oversubscribed: yes_or_no(preempt.oversubscribed),
    })
}

fn runlist(list: &record::Runlist, callers: &Callers) -> Body {
    let counted = |count: u32| (count != record::NOT_COUNTED).then_some(count);
    Body::Runlist(Runlist {
        gpu_id: some(list.gpu_id),
        reason: callers.reason(list.caller, list.outer),
        unmapped_ns: (list.unmapped_ns != u64::MAX).then_some(list.unmapped_ns),
        errno: errno(list.result),
        processes: counted(list.processes),
        queues: counted(list.queues),
        cp_queues: counted(list.cp_queues),
        oversubscribed: yes_or_no(list.oversubscribed),
    })
}

fn mes_queue(change: &record::MesQueue, callers: &Callers) -> Result<Body, DecodeError> {
    let op = match change.op {
        record::mes::ADD => MesOp::Add,
        record::mes::REMOVE => MesOp::Remove,
        other => return Err(DecodeError::MesOp(other)),
    };
    Ok(Body::MesQueue(MesQueue {
        queue_id: change.queue_id,
        gpu_id: some(change.gpu_id),
        op,
        reason: callers.reason(change.caller, 0),
        latency_ns: change.latency_ns,
        errno: errno(change.result),
    }))
}

fn suspension(call: &record::Suspension) -> Suspension {
    let count = u32::try_from(call.result).ok();
    let queues = if call.all != 0 { Queues::All } else { named_queues(call, count) };
    Suspension {
        queues,
        count,
        grace_period: None,
        errno: errno(call.result),
        latency_ns: call.latency_ns,
        by_comm: text(&call.comm),
    }
}

fn named_queues(call: &record::Suspension, count: Option<u32>) -> Queues {
    let listed = usize::try_from(call.listed).ok().and_then(|len| call.queues.get(..len)).unwrap_or(&[]);
    let mut listed: Vec<NamedQueue> = listed.iter().map(|word| named_queue(*word)).collect();
    let more = call.named.saturating_sub(u32::try_from(listed.len()).unwrap_or(u32::MAX));
    let ok = listed.iter().filter(|queue| queue.result == Some(QueueResult::Ok)).count();
    // A call that fails as a whole leaves the caller's array as it was, and so does one that cannot write to it: the
    // driver's count then tells.
    if count.is_none_or(|count| more == 0 && usize::try_from(count) != Ok(ok)) {
        listed.iter_mut().for_each(|queue| queue.result = None);
    }
    Queues::Named { listed, more }
}

fn named_queue(word: u32) -> NamedQueue {
    let result = match word {
        word if word & bit::ERROR != 0 && word & bit::INVALID == 0 => QueueResult::Error,
        word if word & bit::INVALID != 0 => QueueResult::Invalid,
        _ => QueueResult::Ok,
    };
    NamedQueue { queue_id: word & !(bit::ERROR | bit::INVALID), result: Some(result) }
}

fn yes_or_no(value: u32) -> Option<bool> {
    (value != oversubscribed::NOT_READ).then_some(value != oversubscribed::NO)
}

fn vm_fault(reported: &record::VmFault) -> Body {
    let has = |bit| reported.flags & bit != 0;
    let access = has(fault::REPORTED).then(|| FaultAccess {
        address: reported.address,
        not_present: has(fault::NOT_PRESENT),
        read_only: has(fault::READ_ONLY),
        no_execute: has(fault::NO_EXECUTE),
    });
    Body::VmFault(VmFault { gpu_id: some(reported.gpu_id), access })
}

fn gpu(kind: Kind, bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
    whole::<record::Gpu>(kind, bytes).map(|gpu| some(gpu.gpu_id))
}

fn user_queue(call: &record::UserQueue) -> Body {
    Body::UserQueue(UserQueueCall {
        op: match call.op {
            1 => Some(UserQueueOp::Create),
            2 => Some(UserQueueOp::Free),
            _ => None,
        },
        queue_id: call.queue_id,
        ip_type: call.ip_type,
        ring_address: call.ring_address,
        ring_size: call.ring_size,
        errno: errno(call.result),
        comm: text(&call.comm).unwrap_or_default(),
    })
}

/// The bytes that the record marks as valid.
fn prefix_of(bytes: &[u8], len: u32) -> &[u8] {
    usize::try_from(len).ok().and_then(|len| bytes.get(..len)).unwrap_or(bytes)
}

/// With the array of gpu_ids behind the arguments.
fn map_ioctl(record: &record::MapIoctl) -> Result<Body, DecodeError> {
    let mut call = ioctl(&record.call)?;
    let listed = usize::try_from(record.listed).ok().and_then(|listed| record.gpus.get(..listed));
    if call.args.len() == MAP_ARGS {
        call.args.extend(listed.unwrap_or_default().iter().flat_map(|gpu| gpu.to_le_bytes()));
    }
    Ok(Body::Ioctl(call))
}

fn ioctl(call: &record::Ioctl) -> Result<IoctlCall, DecodeError> {
    let outcome = match call.outcome {
        outcome::RETURNED => Outcome::Returned { result: call.result, latency_ns: call.latency_ns },
        outcome::REFUSED => Outcome::Refused { errno: errno(call.result) },
        outcome::NOT_MEASURED => Outcome::NotMeasured,
        outcome::NO_RETURN_SEEN => Outcome::NoReturnSeen,
        other => return Err(DecodeError::Outcome(other)),
    };
    let args = prefix_of(&call.args, call.args_len).to_vec();
    Ok(IoctlCall { cmd: call.cmd, entered_ns: call.entered_ns, outcome, args })
}

/// 0 means "not readable" in the records.
fn some(value: u32) -> Option<u32> {
    (value != 0).then_some(value)
}

/// Positive errno of a return value, 0 for success.
fn errno(result: i32) -> i32 {
    if result < 0 { result.saturating_neg() } else { 0 }
}

/// NUL-padded text; `None` when empty. Bytes that are not UTF-8 are replaced: names come from user space.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = bytes.get(..end)?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

fn whole<T: Record>(kind: Kind, bytes: &[u8]) -> Result<T, DecodeError> {
    let size = DecodeError::Size { kind, got: bytes.len(), want: size_of::<T>() };
    if bytes.len() != size_of::<T>() {
        return Err(size);
    }
    // SAFETY: as many bytes as `T` has, and any bytes are a `Record`.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

fn prefix(bytes: &[u8]) -> Option<Header> {
    let bytes = bytes.get(..size_of::<Header>())?;
    // SAFETY: as many bytes as a `Header` has, which consists of integers only.
    Some(unsafe { bytes.as_ptr().cast::<Header>().read_unaligned() })
}

#[cfg(test)]
mod tests;
