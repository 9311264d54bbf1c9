//! Series of single processes: limited, since PIDs are not.

use super::activity;
use super::driver::{by_label, gpu_label, identity};
use super::family::{Family, number};
use super::life::EVICTIONS;
use super::scrape::Scrape;
use super::table as t;
use crate::events::tables::Tables;
use crate::output::belongs::BelongsFields;
use crate::state::{IoctlTotals, Process, ProcessKey};
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeSet;

pub(super) fn families(scrape: &Scrape<'_>) -> Vec<Family> {
    let Some(most) = scrape.detail.processes else { return Vec::new() };
    let (shown, dropped) = choose(scrape, most);
    let mut all = vec![Family::single(&t::PROCESSES_DROPPED, number(dropped)), info(&shown)];
    all.extend(scrape.tables.map(|tables| ioctls(scrape, tables, &shown)));
    if scrape.sees_queues() || scrape.sysfs.is_some() {
        all.push(queues(&shown));
    }
    all.extend(activity::of_processes(scrape, &shown));
    if scrape.sees(&EVICTIONS) {
        all.extend(evictions(&shown, scrape.now_ns));
    }
    if scrape.sees(&[ProbeId::NotifierRelease]) {
        all.push(teardown(&shown, scrape.now_ns));
    }
    if scrape.sees(&[ProbeId::VmFault]) {
        all.push(vm_faults(&shown));
    }
    all
}

/// The oldest live processes, then the most recently ended. The choice does not change from scrape to scrape
/// while the processes stay the same.
fn choose<'a>(scrape: &Scrape<'a>, most: usize) -> (Vec<&'a Process>, u64) {
    let mut all: Vec<&Process> = scrape.source().processes.iter().collect();
    all.retain(|row| scrape.detail.shows(row, scrape.now_ns));
    all.sort_by_key(|row| match row.released_ns {
        None => (0, row.first_seen_ns, row.key),
        Some(released) => (1, u64::MAX - released, row.key),
    });
    let dropped = all.len().saturating_sub(most);
    all.truncate(most);
    (all, u64::try_from(dropped).unwrap_or(u64::MAX))
}

fn info(shown: &[&Process]) -> Family {
    let mut family = Family::new(&t::PROCESS_INFO);
    for process in shown {
        let [pid, id, comm] = identity(process);
        let [inner, uid] =
            [process.ns_tgid, process.uid].map(|id| id.map_or_else(String::new, |id| id.to_string()));
        let cgroup = process.cgroup().unwrap_or_default();
        let belongs = BelongsFields::from(&process.details).labels();
        let mut labels = vec![&*pid, &id, &comm, &inner, &uid, cgroup];
        labels.extend(belongs.iter().map(String::as_str));
        family.set(&labels, 1.0);
    }
    family
}

fn queues(shown: &[&Process]) -> Family {
    let mut family = Family::new(&t::PROCESS_QUEUES);
    for process in shown.iter().filter(|process| process.alive()) {
        let [pid, id, comm] = identity(process);
        for (label, count) in by_label(process.queues.values()) {
            family.add(&[&pid, &id, &comm, &gpu_label(label.gpu_id), label.type_name()], count);
        }
    }
    family
}

/// GPUs on which it has queues: their counters exist from 0.
fn own_gpus(process: &Process) -> impl Iterator<Item = String> {
    let gpus: BTreeSet<_> = process.queues.values().map(|queue| queue.facts.gpu_id).collect();
    gpus.into_iter().map(gpu_label)
}

fn evictions(shown: &[&Process], now_ns: u64) -> [Family; 2] {
    let (mut count, mut seconds) =
        (Family::new(&t::PROCESS_EVICTIONS), Family::new(&t::PROCESS_EVICTED_SECONDS));
    for process in shown {
        let [pid, id, comm] = identity(process);
        for gpu in own_gpus(process) {
            count.add(&[&pid, &id, &comm, &gpu], 0);
            seconds.add_ns(&[&pid, &id, &comm, &gpu], 0);
        }
        // An ended process is no longer evicted, even without a restore event.
        let until_ns = process.released_ns.unwrap_or(now_ns);
        for (gpu_id, evictions) in &process.evictions {
            let gpu = gpu_id.to_string();
            count.add(&[&pid, &id, &comm, &gpu], evictions.count);
            seconds.add_ns(&[&pid, &id, &comm, &gpu], evictions.evicted_ns(until_ns));
        }
    }
    [count, seconds]
}

/// For processes whose address space was released and whose release by the driver was not reported.
fn teardown(shown: &[&Process], now_ns: u64) -> Family {
    let mut family = Family::new(&t::PROCESS_TEARDOWN);
    for process in shown.iter().filter(|process| process.alive()) {
        if let Some(since_ns) = process.mm_released_ns {
            let [pid, id, comm] = identity(process);
            family.add_ns(&[&pid, &id, &comm], now_ns.saturating_sub(since_ns));
        }
    }
    family
}

fn vm_faults(shown: &[&Process]) -> Family {
    let mut family = Family::new(&t::PROCESS_VM_FAULTS);
    for process in shown {
        let [pid, id, comm] = identity(process);
        own_gpus(process).for_each(|gpu| family.add(&[&pid, &id, &comm, &gpu], 0));
        for (gpu_id, count) in &process.vm_faults {
            family.add(&[&pid, &id, &comm, &gpu_label(*gpu_id)], *count);
        }
    }
    family
}

fn ioctls(scrape: &Scrape<'_>, tables: &Tables, shown: &[&Process]) -> Family {
    let mut family = Family::new(&t::PROCESS_IOCTLS);
    let by_process = IoctlTotals::by_process(&tables.ioctls, &[]);
    let keys: BTreeSet<ProcessKey> = shown.iter().map(|row| row.key).collect();
    // A process known only from sysfs has no number: its calls are found by PID in the traced rows.
    let unnumbered = shown.iter().filter(|row| row.id().is_none());
    let tgids: BTreeSet<Option<u32>> = unnumbered.map(|row| row.tgid).collect();
    let is_shown = |row: &&Process| {
        keys.contains(&row.key) || tgids.contains(&row.tgid) && scrape.detail.shows(row, scrape.now_ns)
    };
    for process in scrape.snapshot.processes.iter().filter(is_shown) {
        let Some(sums) = process.id().and_then(|id| by_process.get(&id)) else { continue };
        let [pid, id, comm] = identity(process);
        for (nr, sum) in sums.iter() {
            family.add(&[&pid, &id, &comm, &scrape.named.name(u32::from(nr))], sum.stat.entered);
        }
    }
    family
}
