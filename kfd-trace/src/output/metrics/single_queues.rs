//! Series of single queues, if requested: limited, and for live queues only.

use super::activity::OfQueues;
use super::driver::gpu_label;
use super::family::{Family, number};
use super::identity::grouped;
use super::sample::TextFamily;
use super::scrape::Scrape;
use super::series::{Ranked, Series};
use super::table as t;
use crate::state::{Process, Queue};

pub(super) fn families(scrape: &Scrape<'_>) -> (Vec<Family>, Vec<TextFamily>) {
    let Some(most) = scrape.detail.queues else { return (Vec::new(), Vec::new()) };
    if !scrape.sees_queues() && scrape.sysfs.is_none() {
        return (Vec::new(), Vec::new());
    }
    let (shown, dropped) = choose(scrape, most);
    let ids = Ranked::new(["gpu_id", "queue_id"], shown.iter().map(|(_, queue)| id(queue)), |(gpu, id)| {
        [gpu_label(*gpu), id.to_string()]
    });
    let kinds = shown.iter().map(|(process, queue)| described(process, queue));
    let kinds = Ranked::new(
        ["gpu_id", "queue_id", "queue_type", "sdma_engine_id", "of_runtime"],
        kinds,
        |(gpu, id, kind, engine, of_runtime)| {
            let engine = engine.map_or_else(String::new, |engine| engine.to_string());
            let of_runtime = of_runtime.map_or_else(String::new, |is| is.to_string());
            [gpu_label(*gpu), id.to_string(), (*kind).to_owned(), engine, of_runtime]
        },
    );
    let new = |metric| Series::new(metric, &ids);
    let mut info = Series::new(&t::QUEUE_INFO, &kinds);
    let mut created = new(&t::QUEUE_CREATED);
    let (mut priority, mut share) = (new(&t::QUEUE_PRIORITY), new(&t::QUEUE_SHARE));
    let (mut active, mut evicted) = (new(&t::QUEUE_ACTIVE), new(&t::QUEUE_EVICTED));
    let mut activity = OfQueues::new(&ids);
    for group in grouped(shown, |(process, _)| process) {
        for (process, queue) in group.items {
            let (facts, labels) = (&queue.facts, ids.rank(&id(queue)));
            activity.queue(labels, queue);
            info.set(kinds.rank(&described(process, queue)), 1.0);
            let set = |series: &mut Series<'_>, value: Option<f64>| {
                if let Some(value) = value {
                    series.set(labels, value);
                }
            };
            set(&mut created, queue.born_ns.map(|born_ns| unix_seconds(born_ns, scrape.wall_minus_mono_ns)));
            set(&mut priority, facts.priority.map(f64::from));
            set(&mut share, facts.percent.map(|percent| f64::from(percent) / 100.0));
            set(&mut active, facts.active.map(|active| number(active.into())));
            set(&mut evicted, facts.evicted.map(|evicted| number(evicted.into())));
        }
        let own = [&mut info, &mut created, &mut priority, &mut share, &mut active, &mut evicted];
        activity.all().chain(own).for_each(|series| series.end(group.labels.identity()));
    }
    let own = [info, created, priority, share, active, evicted].map(Series::family);
    let dropped = Family::single(&t::QUEUES_DROPPED, number(dropped));
    (vec![dropped], activity.families().chain(own).collect())
}

fn id(queue: &Queue) -> (Option<u32>, u32) {
    (queue.facts.gpu_id, queue.queue_id)
}

type Described = (Option<u32>, u32, &'static str, Option<u32>, Option<bool>);

fn described(process: &Process, queue: &Queue) -> Described {
    let (facts, of_runtime) = (&queue.facts, process.is_of_runtime(queue));
    (facts.gpu_id, queue.queue_id, queue.label().type_name(), facts.sdma_engine_id, of_runtime)
}

/// The queues known for the longest time, of processes that have series: once shown, a queue stays until its end.
fn choose<'a>(scrape: &Scrape<'a>, most: usize) -> (Vec<(&'a Process, &'a Queue)>, u64) {
    let mut all: Vec<_> = scrape.source().queues().collect();
    all.sort_by_key(|(process, queue)| (queue.born_ns.or(queue.adopted_ns), process.key, queue.queue_id));
    let queues = all.len();
    all.retain(|(process, _)| scrape.admits(process));
    all.truncate(most);
    let dropped = queues - all.len();
    (all, u64::try_from(dropped).unwrap_or(u64::MAX))
}

/// Rounded to the millisecond: the offset of the two clocks is read at each scrape, and varies by
/// nanoseconds.
fn unix_seconds(mono_ns: u64, wall_minus_mono_ns: i64) -> f64 {
    let ms = mono_ns.saturating_add_signed(wall_minus_mono_ns) / 1_000_000;
    number(ms) / 1e3
}
