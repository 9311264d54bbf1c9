//! Sample events for the tests of state and outputs.

use super::{State, StateLimits};
use crate::events::tables::{ErrorRow, InFlightRow, IoctlRow};
use crate::model::event::{Body, Event, Origin, ProcessId, ProcessSeen, QueueFacts, QueueType};
use kfd_trace_common::stat::{IoctlStat, bucket_of};

pub(crate) fn state() -> State {
    State::new(StateLimits { processes: 8, ended_processes: 2, linger_ns: 1_000, ended_queues: 4 })
}

/// An event in the owner's own thread, outside an ioctl.
pub(crate) fn event(mono_ns: u64, process: u64, tgid: u32, body: Body) -> Event {
    Event {
        mono_ns,
        process: Some(ProcessId(process)),
        tgid: Some(tgid),
        tid: tgid + 1,
        task_tgid: tgid,
        cpu: 0,
        in_ioctl: None,
        body,
    }
}

pub(crate) fn seen(standing: bool) -> Body {
    Body::ProcessSeen(ProcessSeen {
        standing,
        start_boottime_ns: Some(1_000_000_000),
        ns_tgid: Some(7),
        uid: Some(1000),
        comm: Some("train".into()),
        cgroup_leaf: Some("job.scope".into()),
        context_id: None,
    })
}

pub(crate) fn facts(queue_id: u32) -> QueueFacts {
    QueueFacts {
        queue_id: Some(queue_id),
        gpu_id: Some(58270),
        queue_type: Some(QueueType::ComputeAql),
        ring_address: Some(0x7fad_66c0_0000),
        ring_size: Some(1 << 20),
        write_pointer_address: Some(0x7faf_945b_8038),
        read_pointer_address: Some(0x7faf_945b_8080),
        doorbell_offset: Some(16),
        priority: Some(7),
        percent: Some(100),
        sdma_engine_id: None,
        active: Some(true),
        evicted: Some(false),
        suspended: Some(false),
        origin: Origin::Ioctl,
    }
}

pub(crate) fn create(queue_id: u32) -> Body {
    Body::QueueCreate(facts(queue_id))
}

pub(crate) fn destroy(queue_id: u32) -> Body {
    Body::QueueDestroy { queue_id, gpu_id: Some(58270), last: None }
}

/// `calls` calls that each returned after `latency_ns`.
pub(crate) fn ioctl_row(process: u64, cmd: u32, calls: u64, latency_ns: u64) -> IoctlRow {
    let mut stat =
        IoctlStat { entered: calls, returned: calls, latency_ns: calls * latency_ns, ..IoctlStat::ZERO };
    stat.buckets[bucket_of(latency_ns)] = calls;
    IoctlRow { process: ProcessId(process), cmd, stat }
}

/// A call that has not returned.
pub(crate) fn open_call(process: u64, cmd: u32, tid: u32, entered_ns: u64) -> InFlightRow {
    InFlightRow { process: ProcessId(process), tgid: 4321, caller_tgid: 4321, tid, cmd, entered_ns }
}

pub(crate) fn error_row(process: u64, cmd: u32, errno: i32, count: u64) -> ErrorRow {
    ErrorRow { process: ProcessId(process), cmd, errno, count }
}
