//! The rows of `ps` as one JSON object.

use super::{PsRow, PsView, SCHEMA, budget};
use crate::attribute::{Gpu, Pool, Topology};
use crate::output::activity::ActivityFields;
use crate::output::belongs::BelongsFields;
use crate::output::budget::Budget;
use crate::output::controls::ControlFields;
use crate::output::names::{self, ByPool};
use crate::output::queue_fields::QueueFields;
use crate::state::Sources;
use crate::text::escape;
use serde::Serialize;
use std::io::{self, Write};

/// Every field is always present; `null` is "not known".
#[derive(Debug, Serialize)]
struct JsonRow<'a> {
    pid: Option<u32>,
    ns_pid: Option<u32>,
    uid: Option<u32>,
    comm: Option<&'a str>,
    cmdline: Option<&'a str>,
    cgroup: Option<&'a str>,
    #[serde(flatten)]
    belongs: BelongsFields<'a>,
    kfd_process: Option<String>,
    context_id: Option<u32>,
    gpu: Option<String>,
    node: Option<u32>,
    pci: Option<&'a str>,
    gpu_id: Option<u32>,
    #[serde(flatten)]
    queue: QueueFields,
    of_runtime: Option<bool>,
    #[serde(flatten)]
    controls: ControlFields,
    active: Option<bool>,
    evicted: Option<bool>,
    suspended: Option<bool>,
    age_ns: Option<u64>,
    process_age_ns: Option<u64>,
    vram_bytes: Option<u64>,
    activity: Option<ActivityFields>,
    #[serde(serialize_with = "names::known_sources")]
    sources: Sources,
}

/// A GPU with its slot budget.
#[derive(Debug, Serialize)]
struct JsonGpu<'a> {
    gpu: String,
    index: u32,
    gpu_id: u32,
    node: u32,
    pci: Option<&'a str>,
    partition: Option<u32>,
    slots: ByPool<Option<u32>>,
    /// Queues that take a slot.
    queues: ByPool<Option<u32>>,
}

#[derive(Debug, Serialize)]
pub(super) struct PsDocument<'a> {
    schema: u32,
    ts: Option<String>,
    /// The sources that were available.
    #[serde(serialize_with = "names::known_sources")]
    asked: Sources,
    queues: Vec<JsonRow<'a>>,
    /// Processes without queues.
    processes: Vec<JsonRow<'a>>,
    gpus: Vec<JsonGpu<'a>>,
}

/// Writes one object: `queues`, the `processes` without queues, and the `gpus`.
///
/// # Errors
/// Those of `out`.
pub fn json(out: &mut impl Write, rows: &[PsRow], view: &PsView<'_>, ts: Option<String>) -> io::Result<()> {
    escape::json(&mut *out, &document(rows, view, ts))?;
    writeln!(out)
}

pub(super) fn document<'a>(rows: &'a [PsRow], view: &PsView<'a>, ts: Option<String>) -> PsDocument<'a> {
    let PsView { asked, topology, .. } = *view;
    let json_rows = |queues: bool| {
        let rows = rows.iter().filter(|row| row.queue_id().is_some() == queues);
        rows.map(|row| json_row(row, topology)).collect()
    };
    let (queues, processes) = (json_rows(true), json_rows(false));
    let budget = budget(rows, view);
    let gpus = topology.gpus.iter().map(|gpu| json_gpu(gpu, &budget)).collect();
    PsDocument { schema: SCHEMA, ts, asked, queues, processes, gpus }
}

fn json_gpu<'a>(gpu: &'a Gpu, budget: &Budget) -> JsonGpu<'a> {
    let slots = gpu.slots();
    JsonGpu {
        gpu: gpu.label(),
        index: gpu.index,
        gpu_id: gpu.gpu_id,
        node: gpu.node,
        pci: gpu.pci.as_deref(),
        partition: gpu.partition,
        slots: ByPool::each(|pool: Pool| slots.of(pool)),
        queues: ByPool::each(|pool| budget.used(gpu, pool)),
    }
}

fn json_row<'a>(row: &'a PsRow, topology: &'a Topology) -> JsonRow<'a> {
    let queue = row.queue.as_ref();
    let gpu = row.gpu_id().and_then(|id| topology.gpu(id));
    JsonRow {
        pid: row.pid,
        ns_pid: row.ns_pid,
        uid: row.uid,
        comm: row.comm.as_deref(),
        cmdline: row.details.cmdline.as_deref(),
        cgroup: row.details.cgroup.as_deref(),
        belongs: BelongsFields::from(&*row.details),
        kfd_process: row.process.map(|id| id.0.to_string()),
        context_id: row.context_id,
        gpu: gpu.map(Gpu::label),
        node: gpu.map(|gpu| gpu.node),
        pci: gpu.and_then(|gpu| gpu.pci.as_deref()),
        gpu_id: row.gpu_id(),
        queue: queue.map(QueueFields::from).unwrap_or_default(),
        of_runtime: row.of_runtime,
        controls: row.controls.fields(queue, topology),
        active: queue.and_then(|queue| queue.active),
        evicted: queue.and_then(|queue| queue.evicted),
        suspended: queue.and_then(|queue| queue.suspended),
        age_ns: row.age_ns,
        process_age_ns: row.process_age_ns,
        vram_bytes: row.vram_bytes(),
        activity: queue.zip(row.activity.as_ref()).and_then(|(queue, did)| ActivityFields::of(queue, did)),
        sources: row.sources,
    }
}
