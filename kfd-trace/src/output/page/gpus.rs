//! One row per GPU.

use crate::output::api::ApiView;
use crate::output::budget::{Budget, PoolUse};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct GpuRow {
    pub(super) label: String,
    pub(super) gpu_id: u32,
    pub(super) processes: usize,
    /// Each pool of slots: its name and its use.
    pub(super) slots: Vec<SlotCells>,
    pub(super) evicted: usize,
    pub(super) faults: u64,
    pub(super) resets: u64,
    pub(super) hangs: u64,
    /// What is wrong now, if anything.
    pub(super) trouble: Option<&'static str>,
}

pub(super) struct SlotCells {
    pub(super) pool: &'static str,
    pub(super) used: String,
    pub(super) slots: String,
    pub(super) over: bool,
}

pub(super) fn rows(view: &ApiView<'_>) -> Vec<GpuRow> {
    let budget = Budget::of_snapshot(view.snapshot, view.topology);
    let mut users: BTreeMap<u32, BTreeSet<_>> = BTreeMap::new();
    for (process, queue) in view.snapshot.queues() {
        if let Some(gpu_id) = queue.facts.gpu_id {
            users.entry(gpu_id).or_default().insert(process.key);
        }
    }
    let row = |gpu: &crate::attribute::Gpu| {
        let seen = view.snapshot.gpus.get(&gpu.gpu_id).copied().unwrap_or_default();
        let pool = |one: &PoolUse| {
            let [used, slots] = one.counts();
            SlotCells { pool: one.pool.words(), used, slots, over: one.oversubscribed() }
        };
        let evicted = |process: &&crate::state::Process| {
            process.evictions.get(&gpu.gpu_id).is_some_and(|evictions| evictions.evicted)
        };
        GpuRow {
            label: gpu.label(),
            gpu_id: gpu.gpu_id,
            processes: users.get(&gpu.gpu_id).map_or(0, BTreeSet::len),
            slots: budget.pools(gpu).iter().map(pool).collect(),
            evicted: view.snapshot.live().filter(evicted).count(),
            faults: seen.vm_faults,
            resets: seen.resets,
            hangs: seen.hangs,
            trouble: seen.trouble(),
        }
    };
    view.topology.gpus.iter().map(row).collect()
}
