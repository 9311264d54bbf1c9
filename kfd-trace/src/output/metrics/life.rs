//! Events of queues between creation and end, and of their GPUs.

use super::driver::{gpu_label, known, labels};
use super::family::Family;
use super::scrape::Scrape;
use super::table as t;
use crate::model::incident::{MqdOp, Trigger};
use crate::model::verdict::{EVICTIONS, sees_hangs};
use crate::state::GpuState;
use crate::text::errno;
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;

/// The driver's triggers: their series exist on every GPU from the start.
const TRIGGERS: [Trigger; 7] = [
    Trigger::Svm,
    Trigger::Userptr,
    Trigger::Ttm,
    Trigger::Suspend,
    Trigger::CriuCheckpoint,
    Trigger::CriuRestore,
    Trigger::Fault,
];

pub(super) fn families(scrape: &Scrape<'_>) -> Vec<Family> {
    let mut all = vec![mqd_writes(scrape)];
    if scrape.sees(&[ProbeId::QueueUpdate, ProbeId::QueueUpdateReturn]) {
        all.extend(updates(scrape));
    }
    if scrape.sees(&EVICTIONS) {
        all.extend([evictions(scrape), restores(scrape), evicted_seconds(scrape), evicted_now(scrape)]);
    }
    if scrape.sees(&[ProbeId::VmFault]) {
        all.push(of_gpus(scrape, Family::new(&t::VM_FAULTS), |gpu| Count::Number(gpu.vm_faults)));
    }
    if scrape.sees(&[ProbeId::GpuReset]) {
        all.push(of_gpus(scrape, Family::new(&t::GPU_RESETS), |gpu| Count::Number(gpu.resets)));
        all.push(of_gpus(scrape, Family::new(&t::GPU_RESET_SECONDS), |gpu| Count::Ns(gpu.reset_ns)));
        let unfinished = Family::new(&t::GPU_RESETS_UNFINISHED);
        all.push(of_gpus(scrape, unfinished, |gpu| Count::Number(gpu.unfinished_resets)));
    }
    if sees_hangs(scrape.probes) {
        all.push(of_gpus(scrape, Family::new(&t::HWS_HANGS), |gpu| Count::Number(gpu.hangs)));
    }
    all
}

/// GPUs of the topology.
pub(super) fn gpus(scrape: &Scrape<'_>) -> impl Iterator<Item = String> {
    scrape.topology.gpus.iter().map(|gpu| gpu.gpu_id.to_string())
}

fn updates(scrape: &Scrape<'_>) -> [Family; 3] {
    let (mut all, mut failed) = (Family::new(&t::QUEUE_UPDATES), Family::new(&t::QUEUE_UPDATE_ERRORS));
    let mut unseen = Family::new(&t::QUEUE_UPDATES_NO_RETURN);
    for (gpu, kind) in known(scrape) {
        all.add(&[&gpu, kind], 0);
        unseen.add(&[&gpu, kind], 0);
    }
    for ((label, errno), count) in &scrape.snapshot.totals.queue_updates {
        let (gpu, kind) = labels(label);
        all.add(&[&gpu, kind], *count);
        match errno {
            Some(0) => {}
            Some(errno) => failed.add(&[&gpu, kind, &errno::name(*errno)], *count),
            None => unseen.add(&[&gpu, kind], *count),
        }
    }
    [all, failed, unseen]
}

/// Series of the functions that are probed.
fn mqd_writes(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::MQD_WRITES);
    let probe = |op| match op {
        MqdOp::Init => ProbeId::MqdInit,
        MqdOp::Update => ProbeId::MqdUpdate,
        MqdOp::Restore => ProbeId::MqdRestore,
    };
    let probed = |op| scrape.sees(&[probe(op)]);
    for op in MqdOp::ALL.iter().filter(|op| probed(**op)) {
        gpus(scrape).for_each(|gpu| family.add(&[&gpu, op.name()], 0));
    }
    for (gpu_id, writes) in &scrape.snapshot.totals.mqd_writes {
        for &op in MqdOp::ALL.iter().filter(|op| probed(**op) && writes.of(**op) > 0) {
            family.add(&[&gpu_label(*gpu_id), op.name()], writes.of(op));
        }
    }
    family
}

fn evictions(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::EVICTIONS);
    for gpu in gpus(scrape) {
        TRIGGERS.iter().for_each(|trigger| family.add(&[&gpu, trigger.name()], 0));
    }
    for ((gpu_id, trigger), count) in &scrape.snapshot.totals.evictions {
        let trigger = trigger.map_or("unknown", Trigger::name);
        family.add(&[&gpu_id.to_string(), trigger], *count);
    }
    family
}

fn restores(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::RESTORES);
    gpus(scrape).for_each(|gpu| family.add(&[&gpu], 0));
    for (gpu_id, count) in &scrape.snapshot.totals.restores {
        family.add(&[&gpu_id.to_string()], *count);
    }
    family
}

fn evicted_seconds(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::EVICTED_SECONDS);
    gpus(scrape).for_each(|gpu| family.add_ns(&[&gpu], 0));
    for (gpu_id, ns) in &scrape.snapshot.totals.evicted_ns {
        family.add_ns(&[&gpu_id.to_string()], *ns);
    }
    // They go over into the sums above when they end.
    for (gpu_id, evictions) in scrape.snapshot.live().flat_map(|process| &process.evictions) {
        if let Some(ns) = evictions.lasts_ns(scrape.now_ns) {
            family.add_ns(&[&gpu_id.to_string()], ns);
        }
    }
    family
}

fn evicted_now(scrape: &Scrape<'_>) -> Family {
    let mut family = Family::new(&t::EVICTED_PROCESSES);
    gpus(scrape).for_each(|gpu| family.add(&[&gpu], 0));
    for process in scrape.snapshot.live() {
        for (gpu_id, _) in process.evictions.iter().filter(|(_, evictions)| evictions.evicted) {
            family.add(&[&gpu_id.to_string()], 1);
        }
    }
    family
}

enum Count {
    Number(u64),
    Ns(u64),
}

/// One series per GPU of the topology, and per GPU that had events.
fn of_gpus(scrape: &Scrape<'_>, mut family: Family, of: impl Fn(&GpuState) -> Count) -> Family {
    let quiet = scrape.topology.gpus.iter().map(|gpu| (gpu.gpu_id, GpuState::default()));
    let mut all: BTreeMap<u32, GpuState> = quiet.collect();
    all.extend(&scrape.snapshot.gpus);
    for (gpu_id, state) in &all {
        match of(state) {
            Count::Number(count) => family.add(&[&gpu_id.to_string()], count),
            Count::Ns(ns) => family.add_ns(&[&gpu_id.to_string()], ns),
        }
    }
    family
}
