//! Decodes bytes of the ring buffer to events. Total: any bytes give an event or a named error.

use crate::model::event::{Body, Event, IoctlCall, Outcome, ProcessId, ProcessSeen};
use crate::model::incident::{
    CuMask, Eviction, FaultAccess, MqdOp, QueueUpdate, Trigger, UserQueueCall, VmFault,
};
use crate::model::layout::QueueLayout;
use crate::model::pointers::Memory;
use crate::model::runlist::{Callers, Preemption, Runlist};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::record::{self, Header, Record, fault, mqd_op, outcome, oversubscribed};
use kfd_trace_common::rules::PRIMARY_CONTEXT;
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
}

impl DecodeError {
    /// Every name that [`DecodeError::reason`] returns.
    pub const REASONS: [&str; 7] = ["no_header", "version", "kind", "size", "outcome", "mqd_op", "pointers"];

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
        Kind::Ioctl => ioctl(&whole(kind, bytes)?)?,
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
    let mask = prefix_of(&update.cu_mask, update.cu_mask_bits / 8);
    Body::QueueUpdate(QueueUpdate {
        now: layout.queue(properties, some(update.gpu_id), ioctl),
        cu_mask: (!mask.is_empty()).then(|| CuMask::from_bytes(mask)),
        errno: errno(update.result),
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
        // AMDGPU_USERQ_OP_CREATE and _FREE (include/uapi/drm/amdgpu_drm.h)
        op: match call.op {
            1 => Some("create"),
            2 => Some("free"),
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

fn ioctl(call: &record::Ioctl) -> Result<Body, DecodeError> {
    let outcome = match call.outcome {
        outcome::RETURNED => Outcome::Returned { result: call.result, latency_ns: call.latency_ns },
        outcome::REFUSED => Outcome::Refused { errno: errno(call.result) },
        outcome::NOT_MEASURED => Outcome::NotMeasured,
        outcome::NO_RETURN_SEEN => Outcome::NoReturnSeen,
        other => return Err(DecodeError::Outcome(other)),
    };
    let args = prefix_of(&call.args, call.args_len).to_vec();
    Ok(Body::Ioctl(IoctlCall { cmd: call.cmd, entered_ns: call.entered_ns, outcome, args }))
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
mod tests {
    use super::*;

    /// Bytes of a record as the BPF side would send it.
    fn bytes<T: Record>(kind: Kind, fill: impl FnOnce(&mut T)) -> Vec<u8> {
        let mut record = T::new_zeroed();
        fill(&mut record);
        let mut bytes = record.as_bytes().to_vec();
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &u32::try_from(size_of::<T>()).unwrap().to_le_bytes());
        put(4, &(kind as u16).to_le_bytes());
        put(6, &record::VERSION.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
        super::event(bytes, &Maker::default())
    }

    #[test]
    fn what_cannot_be_decoded_shows_the_probe_that_sent_it() {
        let sent_by = |probe, cut: usize| {
            let mut record = bytes(Kind::Open, |r: &mut record::Open| r.header.probe = probe);
            record.truncate(record.len() - cut);
            record
        };
        let probe = |bytes: &[u8]| super::decode(bytes, &Maker::default()).map_err(|record| record.probe);
        assert!(probe(&sent_by(ProbeId::Open as u32, 0)).is_ok());
        assert_eq!(probe(&sent_by(ProbeId::Open as u32, 1)).err(), Some(Some(ProbeId::Open)));
        assert_eq!(probe(&sent_by(9999, 1)).err(), Some(None), "no probe has this number");
        assert_eq!(probe(&sent_by(9999, 0)).err(), None, "all else is there");
        assert_eq!(probe(&[0; 20]).err(), Some(None), "no header");
        let mut other = sent_by(ProbeId::Open as u32, 0);
        other[6] = 99;
        assert_eq!(probe(&other).err(), Some(None), "of another version, whose header is not known");
    }

    #[test]
    fn the_end_of_a_queue_shows_what_stood_at_its_pointers() {
        let last = |pointers| {
            let record = bytes(Kind::QueueDestroy, |r: &mut record::QueueDestroy| {
                (r.queue_id, r.gpu_id, r.pointers) = (3, 58270, pointers);
                (r.memory[0], r.memory[8]) = (7, 6);
            });
            decode(&record).map(|event| event.body)
        };
        let of = |last| Ok(Body::QueueDestroy { queue_id: 3, gpu_id: Some(58270), last });
        assert_eq!(last(record::pointers::NOT_READ), of(None));
        assert_eq!(last(record::pointers::WORDS), of(Some(Memory::Words { write: 7, read: 6 })));
        assert_eq!(last(9), Err(DecodeError::Pointers(9)));
    }

    #[test]
    fn a_process_shows_only_what_was_readable() {
        let seen = bytes(Kind::ProcessSeen, |r: &mut record::ProcessSeen| {
            r.header.process = 7;
            r.uid = u32::MAX;
            r.comm[..4].copy_from_slice(b"gemm");
        });
        let event = decode(&seen).unwrap();
        assert_eq!(event.process, Some(ProcessId(7)));
        let Body::ProcessSeen(seen) = event.body else { panic!("{event:?}") };
        assert_eq!((seen.comm.as_deref(), seen.uid, seen.ns_tgid), (Some("gemm"), None, None));
        assert!(!seen.standing && seen.cgroup_leaf.is_none());
    }

    #[test]
    fn an_ioctl_keeps_what_was_not_measured_apart_from_success() {
        let call = |outcome, result| {
            let record =
                bytes(Kind::Ioctl, |r: &mut record::Ioctl| (r.outcome, r.result) = (outcome, result));
            match decode(&record)?.body {
                Body::Ioctl(call) => Ok(call.outcome.errno()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(call(outcome::RETURNED, 0), Ok(Some(0)));
        assert_eq!(call(outcome::RETURNED, -22), Ok(Some(22)));
        assert_eq!(call(outcome::REFUSED, -25), Ok(Some(25)));
        assert_eq!(call(outcome::NOT_MEASURED, 0), Ok(None));
        assert_eq!(call(9, 0), Err(DecodeError::Outcome(9)));
    }

    #[test]
    fn any_bytes_give_an_event_or_an_error() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33).to_le_bytes()[0]
        };
        let mut decoded = 0_usize;
        for kind in 0..=u16::try_from(Kind::ALL.len()).unwrap() {
            for size in 0..500_usize {
                let mut bytes: Vec<u8> = (0..size).map(|_| random()).collect();
                if let Some(head) = bytes.get_mut(4..8) {
                    head[..2].copy_from_slice(&kind.to_le_bytes());
                    head[2..].copy_from_slice(&record::VERSION.to_le_bytes());
                }
                decoded += usize::from(decode(&bytes).is_ok());
            }
        }
        assert!(decoded >= Kind::ALL.len() - 4, "only {decoded} of the sizes fitted a kind");
    }

    #[test]
    fn every_reason_is_listed() {
        let size = DecodeError::Size { kind: Kind::Open, got: 0, want: 0 };
        let errors = [DecodeError::NoHeader(0), DecodeError::Version(0), DecodeError::Kind(0), size];
        let others = [DecodeError::Outcome(0), DecodeError::MqdOp(0), DecodeError::Pointers(9)];
        let reasons = errors.iter().chain(&others).map(DecodeError::reason);
        assert_eq!(reasons.collect::<Vec<_>>(), DecodeError::REASONS);
    }

    #[test]
    fn another_version_or_size_is_named() {
        let mut bare = bytes(Kind::Close, |_: &mut record::Bare| ());
        assert!(decode(&bare).is_ok());
        assert_eq!(decode(&bare[..10]), Err(DecodeError::NoHeader(10)));
        bare.push(0);
        assert_eq!(decode(&bare), Err(DecodeError::Size { kind: Kind::Close, got: 49, want: 48 }));
        bare[6] = 9;
        assert_eq!(decode(&bare), Err(DecodeError::Version(9)));
    }
}
