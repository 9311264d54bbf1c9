//! One live queue.

use super::ApiView;
use crate::model::incident::MqdOp;
use crate::output::activity::ActivityFields;
use crate::output::controls::{ControlFields, Controls};
use crate::output::names;
use crate::output::queue_fields::QueueFields;
use crate::state::{Debugger, Process, Queue, Sources};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct QueueRow<'a> {
    pid: Option<u32>,
    ns_pid: Option<u32>,
    comm: Option<&'a str>,
    kfd_process: Option<String>,
    context_id: Option<u32>,
    gpu: Option<String>,
    gpu_id: Option<u32>,
    node: Option<u32>,
    pci: Option<&'a str>,
    #[serde(flatten)]
    facts: QueueFields,
    of_runtime: Option<bool>,
    #[serde(flatten)]
    controls: ControlFields,
    active: Option<bool>,
    evicted: Option<bool>,
    suspended: Option<bool>,
    suspended_by: Option<SuspendedBy<'a>>,
    suspended_ns: Option<u64>,
    suspensions: Option<u64>,
    evictions: u64,
    evicted_ns: u64,
    updates: u64,
    mqd_writes: MqdWriteCounts,
    activity: Option<ActivityFields>,
    origin: &'static str,
    born_mono_ns: Option<u64>,
    age_ns: Option<u64>,
    resynced: bool,
    unlisted: bool,
    #[serde(serialize_with = "names::sources")]
    sources: Sources,
}

/// The debugger.
#[derive(Serialize)]
struct SuspendedBy<'a> {
    pid: u32,
    comm: Option<&'a str>,
}

impl<'a> From<&'a Debugger> for SuspendedBy<'a> {
    fn from(by: &'a Debugger) -> Self {
        SuspendedBy { pid: by.pid, comm: by.comm.as_deref() }
    }
}

#[derive(Serialize)]
struct MqdWriteCounts {
    init: u64,
    update: u64,
    restore: u64,
}

pub(super) fn row<'a>(process: &'a Process, queue: &'a Queue, view: &ApiView<'a>) -> QueueRow<'a> {
    let facts = &queue.facts;
    let gpu = facts.gpu_id.and_then(|id| view.topology.gpu(id));
    let writes = |op| queue.mqd_writes.of(op);
    QueueRow {
        pid: process.tgid,
        ns_pid: process.ns_tgid,
        comm: process.comm.as_deref(),
        kfd_process: process.id().map(|id| id.0.to_string()),
        context_id: process.context_id,
        gpu: gpu.map(crate::attribute::Gpu::label),
        gpu_id: facts.gpu_id,
        node: gpu.map(|gpu| gpu.node),
        pci: gpu.and_then(|gpu| gpu.pci.as_deref()),
        facts: facts.into(),
        of_runtime: process.is_of_runtime(queue),
        controls: Controls::of(queue, view.now_ns).fields(Some(facts), view.topology),
        active: facts.active,
        evicted: facts.evicted,
        suspended: facts.suspended,
        suspended_by: queue.suspended().by.as_ref().map(SuspendedBy::from),
        suspended_ns: queue.suspended().since_ns.map(|since| view.now_ns.saturating_sub(since)),
        suspensions: queue.suspensions(),
        evictions: queue.evictions.count,
        evicted_ns: queue.evictions.evicted_ns(view.now_ns),
        updates: queue.updates,
        mqd_writes: MqdWriteCounts {
            init: writes(MqdOp::Init),
            update: writes(MqdOp::Update),
            restore: writes(MqdOp::Restore),
        },
        activity: ActivityFields::of(facts, &queue.activity),
        origin: names::origin(facts.origin),
        born_mono_ns: queue.born_ns,
        age_ns: queue.age_ns(view.now_ns),
        resynced: queue.resynced_ns.is_some(),
        unlisted: queue.unlisted,
        sources: queue.sources,
    }
}
