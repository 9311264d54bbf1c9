//! One process, live or remembered. Its arguments are not shown: they may contain secrets.

use super::ApiView;
use super::who::Who;
use crate::model::incident::Trigger;
use crate::output::activity::{WorkFields, works};
use crate::output::memory::{self, Memory};
use crate::state::{Evictions, Process};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct ProcessRow<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    alive: bool,
    opens: u64,
    failed_opens: u64,
    closes: u64,
    queues: usize,
    vm_faults: u64,
    evicted: bool,
    evictions_total: u64,
    evicted_ns: u64,
    evictions: Vec<ProcessOnGpu>,
    activity: Vec<WorkFields>,
    memory: Memory,
}

#[derive(Serialize)]
struct ProcessOnGpu {
    gpu_id: u32,
    evicted: bool,
    evictions: u64,
    evicted_ns: u64,
    last_trigger: Option<&'static str>,
}

pub(super) fn row<'a>(process: &'a Process, view: &ApiView<'a>) -> ProcessRow<'a> {
    let on_gpu = |(gpu_id, evictions): (&u32, &Evictions)| ProcessOnGpu {
        gpu_id: *gpu_id,
        evicted: evictions.evicted,
        evictions: evictions.count,
        evicted_ns: evictions.evicted_ns(view.now_ns),
        last_trigger: evictions.trigger.map(Trigger::name),
    };
    ProcessRow {
        who: process.into(),
        alive: process.alive(),
        opens: process.opens,
        failed_opens: process.failed_opens,
        closes: process.closes,
        queues: process.queues.len(),
        vm_faults: process.vm_faults.values().sum(),
        evicted: process.evicted.evicted,
        evictions_total: process.evicted.count,
        evicted_ns: process.evicted.evicted_ns(view.now_ns),
        evictions: view.topology.in_order(&process.evictions).into_iter().map(on_gpu).collect(),
        activity: works(process, view.topology),
        memory: memory::of(process, view.topology),
    }
}
