//! One process, live or remembered. Its arguments are not shown: they may hold secrets.

use serde::Serialize;

use super::View;
use crate::events::life::Trigger;
use crate::output::belongs::BelongsFields;
use crate::state::{Evictions, Process};

#[derive(Serialize)]
pub(super) struct Row<'a> {
    pid: Option<u32>,
    ns_pid: Option<u32>,
    uid: Option<u32>,
    comm: Option<&'a str>,
    cgroup: Option<&'a str>,
    #[serde(flatten)]
    belongs: BelongsFields<'a>,
    kfd_process: Option<String>,
    context_id: Option<u32>,
    alive: bool,
    opens: u64,
    failed_opens: u64,
    closes: u64,
    queues: usize,
    vm_faults: u64,
    evicted: bool,
    evictions_total: u64,
    evicted_ns: u64,
    evictions: Vec<OnGpu>,
}

#[derive(Serialize)]
struct OnGpu {
    gpu_id: u32,
    evicted: bool,
    evictions: u64,
    evicted_ns: u64,
    last_trigger: Option<&'static str>,
}

pub(super) fn row<'a>(process: &'a Process, view: &View<'a>) -> Row<'a> {
    let details = &process.details;
    // What ended is not evicted any longer, though no restore came.
    let until_ns = process.released_ns.unwrap_or(view.now_ns);
    let alive = process.alive();
    let on_gpu = |(gpu_id, evictions): (&u32, &Evictions)| OnGpu {
        gpu_id: *gpu_id,
        evicted: alive && evictions.evicted,
        evictions: evictions.count,
        evicted_ns: evictions.evicted_ns(until_ns),
        last_trigger: evictions.trigger.map(Trigger::name),
    };
    Row {
        pid: process.tgid,
        ns_pid: process.ns_tgid,
        uid: process.uid,
        comm: process.comm.as_deref(),
        cgroup: details.cgroup.as_deref().or(process.cgroup_leaf.as_deref()),
        belongs: BelongsFields::from(details),
        kfd_process: process.id().map(|id| id.0.to_string()),
        context_id: process.context_id,
        alive,
        opens: process.opens,
        failed_opens: process.failed_opens,
        closes: process.closes,
        queues: process.queues.len(),
        vm_faults: process.vm_faults.values().sum(),
        evicted: alive && process.evicted.evicted,
        evictions_total: process.evicted.count,
        evicted_ns: process.evicted.evicted_ns(until_ns),
        evictions: process.evictions.iter().map(on_gpu).collect(),
    }
}
