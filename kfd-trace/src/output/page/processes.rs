//! One row per live process, and one per process that is evicted now.

use super::cells::{dash, show, since, text};
use crate::model::incident::Trigger;
use crate::output::api::ApiView;
use crate::output::belongs::BelongsFields;
use crate::output::memory;
use crate::state::{Evictions, Process};
use crate::text::clock::age;
use std::cmp::Reverse;

pub(super) struct ProcessCells {
    pub(super) pid: String,
    pub(super) comm: String,
    pub(super) ns_pid: String,
    pub(super) uid: String,
    pub(super) owner: String,
    pub(super) cgroup: String,
    pub(super) queues: usize,
    pub(super) vram: String,
    pub(super) evictions: u64,
    pub(super) evicted_for: String,
    pub(super) evicted: bool,
    pub(super) faults: u64,
    pub(super) since: String,
}

pub(super) struct EvictedRow {
    pub(super) pid: String,
    pub(super) comm: String,
    pub(super) gpu: String,
    pub(super) since: String,
    pub(super) trigger: &'static str,
    pub(super) evictions: u64,
}

/// Evicted processes first, then those with the most queues.
pub(super) fn rows(processes: &[&Process], view: &ApiView<'_>) -> Vec<ProcessCells> {
    let mut sorted = processes.to_vec();
    sorted.sort_by_key(|process| (!process.evicted.evicted, Reverse(process.queues.len()), process.tgid));
    sorted.into_iter().map(|process| row(process, view.now_ns)).collect()
}

fn row(process: &Process, now_ns: u64) -> ProcessCells {
    let evicted_ns = process.evicted.evicted_ns(now_ns);
    ProcessCells {
        pid: pid(process),
        comm: comm(process),
        ns_pid: show(process.ns_tgid),
        uid: show(process.uid),
        owner: BelongsFields::from(&process.details).owner().as_deref().map_or_else(dash, text),
        cgroup: process.cgroup().map_or_else(dash, text),
        queues: process.queues.len(),
        vram: memory::vram(process).map_or_else(dash, memory::size),
        evictions: process.evicted.count,
        evicted_for: if process.evicted.count > 0 { age(evicted_ns) } else { dash() },
        evicted: process.evicted.evicted,
        faults: process.vm_faults.values().sum(),
        since: since(process.created_ns, now_ns),
    }
}

/// The PID, with the number of a further context (7.2).
pub(super) fn pid(process: &Process) -> String {
    match (process.tgid, process.context_id) {
        (Some(pid), Some(context)) => format!("{pid} context {context}"),
        (pid, _) => show(pid),
    }
}

pub(super) fn comm(process: &Process) -> String {
    process.comm.as_deref().map_or_else(dash, text)
}

/// Longest first; those of unknown duration before them.
pub(super) fn evicted(processes: &[&Process], view: &ApiView<'_>) -> Vec<EvictedRow> {
    let all = processes.iter().flat_map(|process| {
        let now = process.evictions.iter().filter(|(_, evictions)| evictions.evicted);
        now.map(|(gpu_id, evictions)| (*process, *gpu_id, evictions))
    });
    let mut sorted: Vec<(&Process, u32, &Evictions)> = all.collect();
    sorted.sort_by_key(|(process, gpu_id, evictions)| (evictions.since_ns, process.tgid, *gpu_id));
    let row = |(process, gpu_id, evictions): (&Process, u32, &Evictions)| EvictedRow {
        pid: pid(process),
        comm: comm(process),
        gpu: view.topology.label(gpu_id).unwrap_or_else(|| format!("gpu_id={gpu_id}")),
        since: since(evictions.since_ns, view.now_ns),
        trigger: evictions.trigger.map_or("not seen", Trigger::name),
        evictions: evictions.count,
    };
    sorted.into_iter().map(row).collect()
}
