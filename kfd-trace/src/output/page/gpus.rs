//! One row per GPU.

use super::cells::show;
use super::trends::{Line, Rates, Spark};
use super::view::Seen;
use crate::output::api::ApiView;
use crate::output::budget::{Budget, PoolUse};
use crate::output::load::Load;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct GpuRow {
    pub(super) label: String,
    pub(super) gpu_id: u32,
    pub(super) processes: String,
    /// Each pool of slots: its name and its use.
    pub(super) slots: Vec<SlotCells>,
    pub(super) rate: String,
    pub(super) spark: Option<Spark>,
    pub(super) backlog: String,
    pub(super) stalled: bool,
    pub(super) evicted: String,
    pub(super) faults: String,
    pub(super) resets: String,
    pub(super) hangs: String,
    /// What is wrong now, if anything.
    pub(super) trouble: Option<&'static str>,
}

pub(super) struct SlotCells {
    pub(super) pool: &'static str,
    pub(super) used: String,
    pub(super) slots: String,
    pub(super) over: bool,
}

pub(super) fn rows(rates: &Rates, seen: Seen, view: &ApiView<'_>) -> Vec<GpuRow> {
    let budget = Budget::of_snapshot(view.snapshot, view.topology);
    let mut users: BTreeMap<u32, (Load, BTreeSet<_>)> = BTreeMap::new();
    for (process, queue) in view.snapshot.queues() {
        if let Some(gpu_id) = queue.facts.gpu_id {
            let (load, processes) = users.entry(gpu_id).or_default();
            load.add(queue);
            processes.insert(process.key);
        }
    }
    let row = |gpu: &crate::attribute::Gpu| {
        let had = view.snapshot.gpus.get(&gpu.gpu_id).copied().unwrap_or_default();
        let pool = |one: &PoolUse| {
            let [used, slots] = one.counts();
            let used = if seen.queues { used } else { "?".to_owned() };
            SlotCells { pool: one.pool.words(), used, slots, over: one.oversubscribed() }
        };
        let evicted = |process: &&crate::state::Process| {
            process.evictions.get(&gpu.gpu_id).is_some_and(|evictions| evictions.evicted)
        };
        let (load, processes) = users
            .get(&gpu.gpu_id)
            .map_or_else(Default::default, |(load, processes)| (*load, processes.len()));
        GpuRow {
            label: gpu.label(),
            gpu_id: gpu.gpu_id,
            processes: show(Some(processes).filter(|count| *count > 0 || seen.queues)),
            slots: budget.pools(gpu).iter().map(pool).collect(),
            rate: show(load.rate()),
            spark: rates.spark(Line::Gpu(gpu.gpu_id), view.now_ns),
            backlog: show(load.backlog()),
            stalled: load.stalled > 0,
            evicted: show(seen.evictions.then(|| view.snapshot.live().filter(evicted).count())),
            faults: show(seen.faults.then_some(had.vm_faults)),
            resets: show(seen.resets.then_some(had.resets)),
            hangs: show(seen.hangs.then_some(had.hangs)),
            trouble: had.trouble(),
        }
    };
    view.topology.gpus.iter().map(row).collect()
}
