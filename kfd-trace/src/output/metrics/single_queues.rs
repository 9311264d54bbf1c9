//! Series of single queues, if requested: limited, and for live queues only.

use super::activity::OfQueues;
use super::driver::gpu_label;
use super::driver::identity;
use super::family::{Family, number};
use super::scrape::Scrape;
use super::table as t;
use crate::state::{Process, Queue};

pub(super) fn families(scrape: &Scrape<'_>) -> Vec<Family> {
    let Some(most) = scrape.detail.queues else { return Vec::new() };
    if !scrape.sees_queues() && scrape.sysfs.is_none() {
        return Vec::new();
    }
    let (shown, dropped) = choose(scrape, most);
    let mut info = Family::new(&t::QUEUE_INFO);
    let mut created = Family::new(&t::QUEUE_CREATED);
    let (mut priority, mut share) = (Family::new(&t::QUEUE_PRIORITY), Family::new(&t::QUEUE_SHARE));
    let (mut active, mut evicted) = (Family::new(&t::QUEUE_ACTIVE), Family::new(&t::QUEUE_EVICTED));
    let mut activity = OfQueues::new();
    for (process, queue) in shown {
        let facts = &queue.facts;
        let [pid, id, comm] = identity(process);
        let (gpu, queue_id) = (gpu_label(facts.gpu_id), queue.queue_id.to_string());
        let labels = [&*pid, &id, &comm, &gpu, &queue_id];
        let engine = facts.sdma_engine_id.map_or_else(String::new, |engine| engine.to_string());
        activity.queue(&labels, queue);
        let all_labels = [&labels[..], &[queue.label().type_name(), &engine]].concat();
        info.set(&all_labels, 1.0);
        let set = |family: &mut Family, value: Option<f64>| {
            if let Some(value) = value {
                family.set(&labels, value);
            }
        };
        set(&mut created, queue.born_ns.map(|born_ns| unix_seconds(born_ns, scrape.wall_minus_mono_ns)));
        set(&mut priority, facts.priority.map(f64::from));
        set(&mut share, facts.percent.map(|percent| f64::from(percent) / 100.0));
        set(&mut active, facts.active.map(|active| number(active.into())));
        set(&mut evicted, facts.evicted.map(|evicted| number(evicted.into())));
    }
    let dropped = Family::single(&t::QUEUES_DROPPED, number(dropped));
    let mut all = vec![dropped, info, created, priority, share, active, evicted];
    all.extend(activity.families());
    all
}

/// The queues known for the longest time: once shown, a queue stays until its end.
fn choose<'a>(scrape: &Scrape<'a>, most: usize) -> (Vec<(&'a Process, &'a Queue)>, u64) {
    let mut all: Vec<_> = scrape.source().queues().collect();
    all.sort_by_key(|(process, queue)| (queue.born_ns.or(queue.adopted_ns), process.key, queue.queue_id));
    let dropped = all.len().saturating_sub(most);
    all.truncate(most);
    (all, u64::try_from(dropped).unwrap_or(u64::MAX))
}

/// Rounded to the millisecond: the offset of the two clocks is read at each scrape, and varies by
/// nanoseconds.
fn unix_seconds(mono_ns: u64, wall_minus_mono_ns: i64) -> f64 {
    let ms = mono_ns.saturating_add_signed(wall_minus_mono_ns) / 1_000_000;
    number(ms) / 1e3
}
