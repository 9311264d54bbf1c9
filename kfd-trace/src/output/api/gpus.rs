//! One GPU, or one partition of one.

use super::ApiView;
use crate::attribute::Gpu;
use crate::output::budget::Budget;
use crate::output::names::{self, ByPool};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct GpuRow<'a> {
    gpu: String,
    index: u32,
    gpu_id: u32,
    node: u32,
    pci: Option<&'a str>,
    render: Option<String>,
    name: Option<&'a str>,
    gfx: Option<String>,
    unique_id: Option<String>,
    partition: Option<u32>,
    num_xcc: Option<u32>,
    slots: ByPool<Option<u32>>,
    /// Those for PCIe; their numbers come before those for xGMI.
    sdma_engines: Option<u32>,
    sdma_queues_per_engine: Option<u32>,
    /// Queues that take a slot.
    queues: ByPool<Option<u32>>,
    resets: u64,
    resetting: bool,
    unfinished_resets: u64,
    reset_ns: u64,
    hangs: u64,
    hung: bool,
    vm_faults: u64,
    /// Of processes.
    evictions: u64,
}

pub(super) fn rows<'a>(view: &ApiView<'a>) -> Vec<GpuRow<'a>> {
    let budget = Budget::of_snapshot(view.snapshot, view.topology);
    view.topology.gpus.iter().map(|gpu| row(gpu, &budget, view)).collect()
}

fn row<'a>(gpu: &'a Gpu, budget: &Budget, view: &ApiView<'a>) -> GpuRow<'a> {
    let seen = view.snapshot.gpus.get(&gpu.gpu_id).copied().unwrap_or_default();
    let slots = gpu.slots();
    GpuRow {
        gpu: gpu.label(),
        index: gpu.index,
        gpu_id: gpu.gpu_id,
        node: gpu.node,
        pci: gpu.pci.as_deref(),
        render: gpu.render_node(),
        name: gpu.name.as_deref(),
        gfx: gpu.gfx_name(),
        unique_id: gpu.unique_id.map(names::hex),
        partition: gpu.partition,
        num_xcc: gpu.num_xcc,
        slots: ByPool::each(|pool| slots.of(pool)),
        sdma_engines: gpu.num_sdma_engines,
        sdma_queues_per_engine: gpu.num_sdma_queues_per_engine,
        queues: ByPool::each(|pool| budget.used(gpu, pool)),
        resets: seen.resets,
        resetting: seen.resetting_since_ns.is_some(),
        unfinished_resets: seen.unfinished_resets,
        reset_ns: seen.reset_ns,
        hangs: seen.hangs,
        hung: seen.hung_since_ns.is_some(),
        vm_faults: seen.vm_faults,
        evictions: view.snapshot.totals.evictions_of(gpu.gpu_id),
    }
}
