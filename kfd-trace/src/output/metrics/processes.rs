//! Series of single processes: limited, since PIDs are not.

use super::activity;
use super::driver::{OwnQueues, gpu_label};
use super::family::{Family, number};
use super::identity::{Groups, Shown, grouped, own_gpus, values};
use super::memory;
use super::sample::TextFamily;
use super::scheduler::sees_preemptions;
use super::scrape::Scrape;
use super::series::{Ranked, Series};
use super::table as t;
use crate::events::tables::Tables;
use crate::model::event::ProcessId;
use crate::model::incident::Trigger;
use crate::model::ioctl;
use crate::model::verdict::EVICTIONS;
use crate::state::{Evictions, Preempts, Process, ProcessKey, QueueLabel};
use kfd_trace_common::counter::ProbeId;
use std::collections::{BTreeMap, BTreeSet};

/// What is written of processes, and how many processes are not shown.
pub(super) fn families(scrape: &Scrape<'_>, own: &OwnQueues) -> (Vec<Family>, Vec<TextFamily>) {
    let Some(most) = scrape.detail.processes else { return (Vec::new(), Vec::new()) };
    let (shown, dropped) = choose(scrape, most);
    let shown = shown.into_iter().map(|process| Shown { process, queues: own.get(process) });
    let groups = grouped(shown, |shown| shown.process);
    let gpus = gpus(&groups);
    let mut all = vec![info(&groups)];
    all.extend(scrape.tables.map(|tables| ioctls(scrape, tables, &groups)));
    if scrape.sees_queues() || scrape.sysfs.is_some() {
        all.push(queues(&groups));
    }
    all.extend(memory::families(scrape, &groups, &gpus));
    all.extend(activity::of_processes(scrape, &groups, &gpus));
    if scrape.sees(&EVICTIONS) {
        all.extend(evictions(&groups, &gpus, scrape.now_ns));
        all.push(running_evictions(&groups, scrape.now_ns));
    }
    if scrape.sees(&ProbeId::SUSPENSIONS) {
        all.push(suspended(&groups, &gpus));
    }
    if scrape.sees(&[ProbeId::NotifierRelease]) {
        all.push(teardown(&groups, scrape.now_ns));
    }
    if sees_preemptions(scrape) {
        all.extend(preemptions(&groups, &gpus));
    }
    if scrape.sees(&[ProbeId::VmFault]) {
        all.push(vm_faults(&groups, &gpus));
    }
    let mut left_out = vec![Family::single(&t::PROCESSES_DROPPED, number(dropped))];
    left_out.extend(
        scrape.admitted.map(|admitted| Family::single(&t::PROCESSES_OVER_BUDGET, number(admitted.refused))),
    );
    (left_out, all)
}

/// The first of the candidates that are admitted, and how many are left out.
fn choose<'a>(scrape: &Scrape<'a>, most: usize) -> (Vec<&'a Process>, u64) {
    let mut all = scrape.candidates();
    let candidates = all.len();
    all.retain(|row| scrape.admits(row));
    all.truncate(most);
    let dropped = candidates - all.len();
    (all, u64::try_from(dropped).unwrap_or(u64::MAX))
}

/// Labels of every GPU that the processes have something to do with.
fn gpus(groups: &Groups<'_>) -> Ranked<Option<u32>> {
    let all = groups.iter().flat_map(|group| &group.items).flat_map(|Shown { process, queues }| {
        let events = process.evictions.keys().map(|gpu_id| Some(*gpu_id));
        let queues = queues.iter().map(|(label, _)| label.gpu_id);
        let memory = process.memory.vram().iter().filter(|(_, bytes)| **bytes > 0);
        let events = events.chain(memory.map(|(gpu_id, _)| Some(*gpu_id)));
        let events = events.chain(process.preempts.keys().map(|gpu_id| Some(*gpu_id)));
        queues.chain(process.works.keys().copied()).chain(process.vm_faults.keys().copied()).chain(events)
    });
    Ranked::new(["gpu_id"], all, |gpu_id| [gpu_label(*gpu_id)])
}

fn info(groups: &Groups<'_>) -> TextFamily {
    let metric = &t::PROCESS_INFO;
    let mut series = String::new();
    for group in groups {
        let mut processes: Vec<_> = group.items.iter().map(|shown| shown.process).collect();
        if processes.len() > 1 {
            processes.sort_by_cached_key(|process| values(process));
            processes.dedup_by_key(|process| values(process));
        }
        for process in processes {
            let labels = super::identity::label_text(process).all();
            [metric.name, "{", labels, "} 1\n"].iter().for_each(|part| series.push_str(part));
        }
    }
    TextFamily { metric, series }
}

fn queues(groups: &Groups<'_>) -> TextFamily {
    let live = |shown: &&Shown<'_>| shown.process.alive();
    let all = groups.iter().flat_map(|group| &group.items).filter(live);
    let keys = all.flat_map(|shown| shown.queues.iter().map(|(label, _)| *label));
    let labels = Ranked::new(["gpu_id", "queue_type"], keys, |label: &QueueLabel| {
        [gpu_label(label.gpu_id), label.type_name().to_owned()]
    });
    let mut series = Series::new(&t::PROCESS_QUEUES, &labels);
    for group in groups {
        for (label, count) in group.items.iter().filter(live).flat_map(|shown| shown.queues) {
            series.add(labels.rank(label), *count);
        }
        series.end(group.labels.identity());
    }
    series.family()
}

fn evictions(groups: &Groups<'_>, gpus: &Ranked<Option<u32>>, now_ns: u64) -> [TextFamily; 2] {
    let mut count = Series::new(&t::PROCESS_EVICTIONS, gpus);
    let mut seconds = Series::new(&t::PROCESS_EVICTED_SECONDS, gpus);
    for group in groups {
        for Shown { process, queues } in &group.items {
            for gpu in own_gpus(queues, gpus) {
                count.add(gpu, 0);
                seconds.add_ns(gpu, 0);
            }
            for (gpu_id, evictions) in &process.evictions {
                let gpu = gpus.rank(&Some(*gpu_id));
                count.add(gpu, evictions.count);
                seconds.add_ns(gpu, evictions.evicted_ns(now_ns));
            }
        }
        [&mut count, &mut seconds].into_iter().for_each(|series| series.end(group.labels.identity()));
    }
    [count, seconds].map(Series::family)
}

/// A GPU and a trigger.
type From = (u32, &'static str);

/// Of contexts of the same labels the one that lasts longest.
fn running_evictions(groups: &Groups<'_>, now_ns: u64) -> TextFamily {
    let of = |shown: &Shown<'_>| -> Vec<(From, u64)> {
        let here = |(gpu_id, evictions): (&u32, &Evictions)| {
            let lasts_ns = evictions.lasts_ns(now_ns).filter(|_| shown.process.has_queue_on(*gpu_id))?;
            Some(((*gpu_id, evictions.trigger.map_or("unknown", Trigger::name)), lasts_ns))
        };
        shown.process.evictions.iter().filter_map(here).collect()
    };
    let all = groups.iter().flat_map(|group| &group.items).flat_map(of);
    let labels = Ranked::new(["gpu_id", "trigger"], all.map(|(from, _)| from), |(gpu_id, trigger): &From| {
        [gpu_id.to_string(), (*trigger).to_owned()]
    });
    let mut series = Series::new(&t::PROCESS_EVICTION, &labels);
    for group in groups {
        let mut longest: BTreeMap<From, u64> = BTreeMap::new();
        for (from, lasts_ns) in group.items.iter().flat_map(of) {
            let known = longest.entry(from).or_default();
            *known = lasts_ns.max(*known);
        }
        longest.iter().for_each(|(from, lasts_ns)| series.add_ns(labels.rank(from), *lasts_ns));
        series.end(group.labels.identity());
    }
    series.family()
}

fn suspended(groups: &Groups<'_>, gpus: &Ranked<Option<u32>>) -> TextFamily {
    let mut series = Series::new(&t::PROCESS_SUSPENDED, gpus);
    for group in groups {
        for process in group.items.iter().map(|shown| shown.process) {
            let queues = || process.queues.values();
            let touched: BTreeSet<_> = queues()
                .filter(|queue| queue.suspended().count > 0 || queue.facts.suspended == Some(true))
                .map(|queue| queue.facts.gpu_id)
                .collect();
            for gpu_id in touched {
                let mut here = queues().filter(|queue| queue.facts.gpu_id == gpu_id);
                let count = here.try_fold(0, |count, queue| Some(count + u64::from(queue.facts.suspended?)));
                count.into_iter().for_each(|count| series.add(gpus.rank(&gpu_id), count));
            }
        }
        series.end(group.labels.identity());
    }
    series.family()
}

fn preemptions(groups: &Groups<'_>, gpus: &Ranked<Option<u32>>) -> [TextFamily; 4] {
    let mut own = Series::new(&t::PROCESS_PREEMPTIONS, gpus);
    let mut own_seconds = Series::new(&t::PROCESS_PREEMPTION_SECONDS, gpus);
    let mut others = Series::new(&t::PROCESS_PREEMPTED, gpus);
    let mut others_seconds = Series::new(&t::PROCESS_PREEMPTED_SECONDS, gpus);
    for group in groups {
        for Shown { process, queues } in &group.items {
            let seen =
                process.preempts.iter().map(|(gpu_id, preempts)| (gpus.rank(&Some(*gpu_id)), *preempts));
            let none = own_gpus(queues, gpus).map(|gpu| (gpu, Preempts::default()));
            for (gpu, preempts) in none.chain(seen) {
                own.add(gpu, preempts.own.count);
                own_seconds.add_ns(gpu, preempts.own.ns);
                others.add(gpu, preempts.others.count);
                others_seconds.add_ns(gpu, preempts.others.ns);
            }
        }
        for series in [&mut own, &mut own_seconds, &mut others, &mut others_seconds] {
            series.end(group.labels.identity());
        }
    }
    [own, own_seconds, others, others_seconds].map(Series::family)
}

/// For processes whose address space was released and whose release by the driver was not reported.
fn teardown(groups: &Groups<'_>, now_ns: u64) -> TextFamily {
    let labels = Ranked::new([], [()], |()| []);
    let mut series = Series::new(&t::PROCESS_TEARDOWN, &labels);
    for group in groups {
        let live = group.items.iter().map(|shown| shown.process).filter(|process| process.alive());
        let since = live.filter_map(|process| process.mm_released_ns);
        since.for_each(|since_ns| series.add_ns(labels.rank(&()), now_ns.saturating_sub(since_ns)));
        series.end(group.labels.identity());
    }
    series.family()
}

fn vm_faults(groups: &Groups<'_>, gpus: &Ranked<Option<u32>>) -> TextFamily {
    let mut series = Series::new(&t::PROCESS_VM_FAULTS, gpus);
    for group in groups {
        for Shown { process, queues } in &group.items {
            own_gpus(queues, gpus).for_each(|gpu| series.add(gpu, 0));
            for (gpu_id, count) in &process.vm_faults {
                series.add(gpus.rank(gpu_id), *count);
            }
        }
        series.end(group.labels.identity());
    }
    series.family()
}

fn ioctls(scrape: &Scrape<'_>, tables: &Tables, groups: &Groups<'_>) -> TextFamily {
    let calls = calls(tables);
    let named = Ranked::new(["ioctl"], calls.iter().map(|(key, _)| nr(*key)), |nr| {
        [scrape.named.name(u32::from(*nr))]
    });
    let mut series = Series::new(&t::PROCESS_IOCTLS, &named);
    let add = |series: &mut Series<'_>, process: &Process| {
        let Some(id) = process.id() else { return };
        let (first, next) = (key(id, 0), key(id, u8::MAX));
        let begin = calls.partition_point(|(key, _)| *key < first);
        for (key, entered) in calls[begin..].iter().take_while(|(key, _)| *key <= next) {
            series.add(named.rank(&nr(*key)), *entered);
        }
    };
    let shown = || groups.iter().flat_map(|group| &group.items).map(|shown| shown.process);
    if std::ptr::eq(scrape.source(), scrape.snapshot) && shown().all(|process| process.id().is_some()) {
        for group in groups {
            group.items.iter().for_each(|shown| add(&mut series, shown.process));
            series.end(group.labels.identity());
        }
        return series.family();
    }
    // A process known only from sysfs has no number: its calls are found by PID in the traced rows.
    let keys: BTreeSet<ProcessKey> = shown().map(|row| row.key).collect();
    let tgids: BTreeSet<Option<u32>> = shown().filter(|row| row.id().is_none()).map(|row| row.tgid).collect();
    let is_shown = |row: &&Process| {
        keys.contains(&row.key) || tgids.contains(&row.tgid) && scrape.detail.shows(row, scrape.now_ns)
    };
    for group in grouped(scrape.snapshot.processes.iter().filter(is_shown), |process| process) {
        group.items.iter().for_each(|process| add(&mut series, process));
        series.end(group.labels.identity());
    }
    series.family()
}

/// Calls by process and number of the ioctl, of any size, in their order.
fn calls(tables: &Tables) -> Vec<(u128, u64)> {
    let rows = tables.ioctls.iter().map(|row| (key(row.process, ioctl::nr(row.cmd)), row.stat.entered));
    let mut all: Vec<_> = rows.collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    all.dedup_by(|(next, more), (key, entered)| {
        let same = next == key;
        if same {
            *entered += *more;
        }
        same
    });
    all
}

/// Process and ioctl as one number: there are thousands to sort.
fn key(id: ProcessId, nr: u8) -> u128 {
    u128::from(id.0) << u8::BITS | u128::from(nr)
}

fn nr(key: u128) -> u8 {
    key.to_le_bytes()[0]
}
