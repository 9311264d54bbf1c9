//! GPUs: their identity, and how many queues their hardware holds.

use super::family::{Family, number};
use super::scrape::Scrape;
use super::table as t;
use crate::attribute::Pool;
use crate::output::budget::Budget;
use crate::output::names;

pub(super) fn families(scrape: &Scrape<'_>) -> Vec<Family> {
    let mut all = vec![info(scrape), slots(scrape)];
    if scrape.sees_queues() {
        all.push(used(scrape, scrape.snapshot));
    } else if let Some(sysfs) = scrape.sysfs {
        all.push(used(scrape, sysfs));
    }
    all
}

fn info(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::GPU_INFO);
    for gpu in &scrape.topology.gpus {
        let [id, index, node] = [gpu.gpu_id, gpu.index, gpu.node].map(|number| number.to_string());
        let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
        let labels = [
            id,
            index,
            node,
            or_empty(&gpu.pci),
            or_empty(&gpu.render_node()),
            or_empty(&gpu.gfx_name()),
            or_empty(&gpu.name),
            or_empty(&gpu.product_name),
            or_empty(&gpu.serial_number),
            or_empty(&gpu.unique_id.map(names::hex)),
            // As in AMD's Device Metrics Exporter: a chip that is not partitioned is its own first partition.
            gpu.partition.unwrap_or(0).to_string(),
        ];
        family.set(&labels.each_ref().map(String::as_str), 1.0);
    }
    family
}

fn slots(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::GPU_SLOTS);
    for gpu in &scrape.topology.gpus {
        let slots = gpu.slots();
        for pool in Pool::ALL {
            if let Some(count) = slots.of(*pool) {
                family.add(&[&gpu.gpu_id.to_string(), pool.name()], count.into());
            }
        }
    }
    family
}

fn used(scrape: &Scrape<'_>, snapshot: &crate::state::Snapshot) -> Family {
    let budget = Budget::of_snapshot(snapshot, scrape.topology);
    let mut family = Family::new(&t::GPU_SLOTS_USED);
    for gpu in &scrape.topology.gpus {
        for pool in Pool::ALL {
            if let Some(used) = budget.used(gpu, *pool) {
                family.set(&[&gpu.gpu_id.to_string(), pool.name()], number(used.into()));
            }
        }
    }
    family
}
