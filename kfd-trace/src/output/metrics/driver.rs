//! Processes, queues and opens on the whole machine.

use super::family::{Family, number};
use super::scrape::Scrape;
use super::table as t;
use crate::model::event::QueueType;
use crate::state::{Cause, Process, ProcessKey, Queue, QueueLabel};
use crate::text::errno;
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;

/// Types that user space can create: their series exist on every GPU from the start.
const CREATABLE: [QueueType; 5] =
    [QueueType::Compute, QueueType::ComputeAql, QueueType::Sdma, QueueType::SdmaXgmi, QueueType::SdmaByEngId];

pub(super) fn gpu_label(gpu_id: Option<u32>) -> String {
    gpu_id.map_or_else(|| "unknown".to_owned(), |id| id.to_string())
}

pub(super) fn families(scrape: &Scrape<'_>, own: &OwnQueues) -> Vec<Family> {
    let totals = &scrape.snapshot.totals;
    let mut all = Vec::new();
    if scrape.probes_queues() {
        all.push(revived(scrape));
    }
    if scrape.sees_queues() {
        all.extend([queues(scrape, own), created(scrape), destroyed(scrape)]);
    } else if scrape.sysfs.is_some() {
        all.push(queues(scrape, own));
    }
    if scrape.sees(&[ProbeId::CreateProcess]) {
        all.push(Family::single(&t::PROCESSES_CREATED, number(totals.processes_created)));
    }
    if scrape.sees(&[ProbeId::WqRelease, ProbeId::WqReleaseReturn]) {
        all.push(Family::single(&t::PROCESSES_ENDED, number(totals.processes_ended)));
        all.push(processes(scrape.snapshot));
    } else if let Some(sysfs) = scrape.sysfs {
        all.push(processes(sysfs));
    }
    if scrape.sees(&[ProbeId::Open]) {
        all.push(Family::single(&t::OPENS, number(totals.opens)));
        let mut errors = Family::new(&t::OPEN_ERRORS);
        for (number, count) in &totals.open_errors {
            errors.add(&[&errno::name(*number)], *count);
        }
        all.push(errors);
    }
    if scrape.sees(&[ProbeId::Release]) {
        all.push(Family::single(&t::CLOSES, number(totals.closes)));
    }
    all
}

fn processes(snapshot: &crate::state::Snapshot) -> Family {
    Family::single(&t::PROCESSES, number(u64::try_from(snapshot.live().count()).unwrap_or(u64::MAX)))
}

/// Every GPU with every type that can be created on it.
pub(super) fn known(scrape: &Scrape<'_>) -> impl Iterator<Item = (String, &'static str)> {
    let gpus: Vec<_> = scrape.topology.gpus.iter().map(|gpu| gpu.gpu_id.to_string()).collect();
    gpus.into_iter().flat_map(|gpu| CREATABLE.map(|kind| (gpu.clone(), kind.name())))
}

pub(super) fn labels(label: &QueueLabel) -> (String, &'static str) {
    (gpu_label(label.gpu_id), label.type_name())
}

/// Labels of a process that has queues on each GPU of a node.
const FEW: usize = 8;

/// Queue counts by label of each process that is a source of series: two families of a scrape need them.
pub(super) struct OwnQueues(BTreeMap<ProcessKey, Vec<(QueueLabel, u64)>>);

impl OwnQueues {
    pub(super) fn of(scrape: &Scrape<'_>) -> Self {
        let rows = scrape.source().processes.iter().filter(|process| !process.queues.is_empty());
        OwnQueues(rows.map(|process| (process.key, own_queues(process))).collect())
    }

    pub(super) fn get(&self, process: &Process) -> &[(QueueLabel, u64)] {
        self.0.get(&process.key).map_or(&[], Vec::as_slice)
    }
}

/// Queue counts of a process by label, of which it has few.
fn own_queues(process: &Process) -> Vec<(QueueLabel, u64)> {
    let mut all: Vec<(QueueLabel, u64)> = Vec::with_capacity(process.queues.len().min(FEW));
    for label in process.queues.values().map(Queue::label) {
        match all.iter_mut().find(|(known, _)| *known == label) {
            Some((_, count)) => *count += 1,
            None => all.push((label, 1)),
        }
    }
    all
}

fn queues(scrape: &Scrape<'_>, own: &OwnQueues) -> Family {
    let mut family = Family::new(&t::QUEUES);
    known(scrape).for_each(|(gpu, kind)| family.add(&[&gpu, kind], 0));
    // There are many queues and few labels, so only labels are formatted as text.
    let mut all: BTreeMap<QueueLabel, u64> = BTreeMap::new();
    for (label, count) in scrape.source().live().flat_map(|process| own.get(process)) {
        *all.entry(*label).or_default() += count;
    }
    for (label, count) in all {
        let (gpu, kind) = labels(&label);
        family.add(&[&gpu, kind], count);
    }
    family
}

fn created(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::QUEUES_CREATED);
    known(scrape).for_each(|(gpu, kind)| family.add(&[&gpu, kind], 0));
    for (label, count) in &scrape.snapshot.totals.queues_created {
        let (gpu, kind) = labels(label);
        family.add(&[&gpu, kind], *count);
    }
    family
}

fn destroyed(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::QUEUES_DESTROYED);
    for (gpu, kind) in known(scrape) {
        for cause in [Cause::Ioctl, Cause::ProcessDeath] {
            family.add(&[&gpu, kind, cause.name()], 0);
        }
    }
    for ((label, cause), count) in &scrape.snapshot.totals.queues_destroyed {
        let (gpu, kind) = labels(label);
        family.add(&[&gpu, kind, cause.name()], *count);
    }
    family
}

fn revived(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::DESTROYS_FAILED);
    known(scrape).for_each(|(gpu, kind)| family.add(&[&gpu, kind], 0));
    for (label, count) in &scrape.snapshot.totals.queues_revived {
        let (gpu, kind) = labels(label);
        family.add(&[&gpu, kind], *count);
    }
    family
}
