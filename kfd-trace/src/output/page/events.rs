//! One row per recent event, newest first.

use super::cells::{dash, seconds, show, text};
use crate::attribute::Topology;
use crate::model::event::QueueType;
use crate::model::incident::Trigger;
use crate::output::names;
use crate::state::{Entry, What};
use crate::text::clock::{self, span};
use crate::text::errno;
use std::sync::Arc;

pub(super) struct EventRow {
    /// RFC 3339, and the same to the second.
    pub(super) ts: String,
    pub(super) time: String,
    pub(super) event: &'static str,
    pub(super) gpu: String,
    pub(super) pid: String,
    pub(super) comm: String,
    pub(super) told: String,
}

pub(super) fn rows(entries: &[Arc<Entry>], topology: &Topology) -> Vec<EventRow> {
    entries.iter().rev().map(|entry| row(entry, topology)).collect()
}

fn row(entry: &Entry, topology: &Topology) -> EventRow {
    let ts = clock::rfc3339(entry.wall_ns).unwrap_or_default();
    let comm = entry.owner.as_ref().and_then(|owner| owner.comm.as_deref());
    EventRow {
        time: seconds(&ts),
        ts,
        event: entry.what.name(),
        gpu: entry.what.gpu_id().map_or_else(dash, |id| {
            topology.gpu(id).map_or_else(|| format!("gpu_id={id}"), |gpu| format!("gpu {}", gpu.index))
        }),
        pid: show(entry.pid()),
        comm: comm.map_or_else(dash, text),
        told: told(&entry.what, entry.mono_ns),
    }
}

fn told(what: &What, at_ns: u64) -> String {
    let kind = |kind: Option<QueueType>| kind.map(|kind| kind.name().to_owned());
    let after = |ns: Option<u64>| ns.map(|ns| format!("after {}", span(ns)));
    let parts: [Option<String>; 4] = match what {
        What::ProcessSeen { standing: true } => [Some("found standing".to_owned()), None, None, None],
        What::ProcessSeen { standing: false } | What::ProcessRelease => [None, None, None, None],
        What::QueueCreate(queue) => [
            queue.queue_id.map(|id| format!("queue {id}")),
            kind(queue.queue_type),
            Some(format!("origin {}", names::origin(queue.origin))),
            None,
        ],
        What::QueueDestroy(queue) => [
            Some(format!("queue {}", queue.queue_id)),
            kind(queue.queue_type),
            queue.cause.map(|cause| format!("cause {}", cause.name())),
            after(queue.born_ns.map(|born_ns| at_ns.saturating_sub(born_ns))),
        ],
        What::QueueDestroyFailed { queue_id, errno, .. } => {
            [Some(format!("queue {queue_id}")), failed(*errno), Some("it lives on".to_owned()), None]
        }
        What::UserQueue(call) => {
            let op = call.op.unwrap_or("another operation");
            [Some(format!("{op}: DRM user queue {}", call.queue_id)), failed(call.errno), None, None]
        }
        What::Evict(eviction) => {
            let trigger = eviction.trigger.map_or("not seen", Trigger::name);
            [Some(format!("trigger {trigger}")), failed(eviction.errno), None, None]
        }
        What::Restore { eviction, lasted_ns } => [after(*lasted_ns), failed(eviction.errno), None, None],
        What::VmFault(fault) => {
            let at = fault.access.map(|access| format!("at {}", names::hex(access.address)));
            [at, None, None, None]
        }
        What::ResetBegin(hit) | What::Hang(hit) => [Some(processes(hit.pids.len())), None, None, None],
        What::ResetEnd { hit, lasted_ns } => [after(*lasted_ns), Some(processes(hit.pids.len())), None, None],
        What::Driver { loads, .. } => [Some(format!("loading {loads}")), None, None, None],
    };
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn failed(errno: i32) -> Option<String> {
    (errno != 0).then(|| errno::name(errno))
}

fn processes(count: usize) -> String {
    format!("{} on it", super::cells::counted(count, "process", "processes"))
}
