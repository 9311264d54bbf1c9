//! Queues with their slots.
//!
//! In: both dumps. Out: a report. Pure.

use super::gaps::{Gap, Gaps};
use super::hqds::{HqdFile, Place};
use super::layout::{Generation, Registers, SdmaRegisters, cu_masks, sdma_place};
use super::mqds::{MqdFile, MqdKind, MqdQueue};
use super::progress::Pointers;
use super::report::{Gpu, HwReport, QueueRow, Slot, Source, State};
use super::slots::{Found, Slots, of_registers, of_sdma};
use std::collections::{BTreeMap, BTreeSet};

/// Joins what was read; `generation`: of a GPU, if known.
#[must_use]
pub fn report(
    mqds: Option<&MqdFile>,
    hqds: Option<&HqdFile>,
    generation: impl Fn(u32) -> Option<Generation>,
) -> HwReport {
    let slots = Slots::new(hqds);
    let gaps = hqds.map(|hqds| Gaps::new(hqds, mqds)).unwrap_or_default();
    let mut named = Named::default();
    let mut queues: Vec<QueueRow> = Vec::new();
    let rings = rings(mqds);
    for queue in mqds.iter().flat_map(|file| &file.queues) {
        let gap = gaps.of(queue.gpu_id);
        queues.push(match queue.kind {
            MqdKind::Sdma => sdma_row(queue, &slots, gap, &rings, &mut named),
            MqdKind::Compute | MqdKind::Diq => row(queue, &slots, gap, generation(queue.gpu_id), &mut named),
        });
    }
    slots.attach_by_ring(&mut queues, &mut named.compute);
    queues.extend(slots.unnamed(&named.compute));
    queues.extend(slots.unnamed_sdma(&named.sdma));
    let with_queues: BTreeSet<Option<u32>> = queues.iter().map(|queue| queue.pid).collect();
    let processes = mqds.iter().flat_map(|file| &file.processes).map(|process| process.tgid);
    let missing = mqds.and_then(|file| match file {
        MqdFile { cut: true, .. } => {
            Some("mqds ends within a queue: further queues and processes are missing")
        }
        MqdFile { processes, .. } if processes.is_empty() => {
            Some("mqds has no process: none uses KFD, or the copy is empty")
        }
        _ => None,
    });
    HwReport {
        gpus: gpus(&queues, hqds, &slots, &gaps),
        faults: slots.faults(&queues),
        idle_processes: processes.filter(|pid| !with_queues.contains(&Some(*pid))).collect(),
        queues,
        unknown_queues: mqds.map_or(0, |file| file.unknown_queues),
        interval: None,
        mqds: mqds.map(|file| Source {
            strange: file.strange.clone(),
            missing: missing.map(str::to_owned).into_iter().collect(),
        }),
        hqds: hqds.map(|file| Source { strange: file.strange.clone(), missing: gaps.reasons.clone() }),
    }
}

/// Slots that an MQD explains.
#[derive(Default)]
struct Named {
    compute: BTreeSet<usize>,
    sdma: BTreeSet<usize>,
}

/// SDMA queues of each GPU and ring: two processes may have a ring at the same address.
fn rings(mqds: Option<&MqdFile>) -> BTreeMap<(u32, u64), usize> {
    let mut rings = BTreeMap::new();
    for queue in mqds.iter().flat_map(|file| &file.queues).filter(|queue| queue.kind == MqdKind::Sdma) {
        if let Some(registers) = queue.dumps.first().and_then(|dump| SdmaRegisters::of(dump)) {
            *rings.entry((queue.gpu_id, registers.ring)).or_default() += 1;
        }
    }
    rings
}

/// A queue of which only its header is known.
fn damaged(queue: &MqdQueue) -> QueueRow {
    QueueRow { xccs: queue.dumps.len(), ..QueueRow::bare(queue.pid, queue.gpu_id, Some(queue.kind)) }
}

fn row(
    queue: &MqdQueue,
    slots: &Slots<'_>,
    gap: Gap,
    generation: Option<Generation>,
    named: &mut Named,
) -> QueueRow {
    let saved: Option<Vec<Registers>> = queue.dumps.iter().map(|dump| Registers::of_mqd(dump)).collect();
    let Some(saved) = saved.filter(|saved| !saved.is_empty() && !queue.damaged) else {
        return damaged(queue);
    };
    let found: Vec<Option<usize>> = saved.iter().map(|one| slots.of(queue.gpu_id, one)).collect();
    named.compute.extend(found.iter().flatten());
    // In a slot that is active the hardware's own value counts, else what was saved.
    let live: Vec<Option<Registers>> =
        found.iter().map(|found| found.and_then(|index| slots.active(index))).collect();
    let now: Vec<Registers> = saved.iter().zip(&live).map(|(saved, live)| live.unwrap_or(*saved)).collect();
    let pointers = now.iter().zip(&live).map(|(now, live)| Pointers::compute(now, live.is_some())).collect();
    let in_slots: Vec<Slot> = found.iter().flatten().map(|index| slots.slot(*index)).collect();
    let on = live.iter().flatten().count();
    let state = match (slots.read, on, in_slots.is_empty()) {
        (false, ..) => State::Saved { active: saved.iter().any(|one| one.active) },
        (true, 0, _) if gap.compute => State::Unknown,
        (true, 0, true) => State::NotMapped,
        (true, 0, false) => State::Stale,
        (true, on, _) => {
            let unread = if gap.compute { found.iter().filter(|found| found.is_none()).count() } else { 0 };
            State::Active { on, of: saved.len(), unread }
        }
    };
    // What was saved of a queue that no slot has may be another queue's VMID by now.
    let has_vmid = !slots.read || on > 0;
    let vmids: BTreeSet<u32> = now.iter().filter(|one| has_vmid && one.active).map(|one| one.vmid).collect();
    let masks =
        generation.map(|generation| queue.dumps.iter().map(|dump| cu_masks(dump, generation)).collect());
    QueueRow {
        kind: Some(queue.kind),
        state,
        xccs: saved.len(),
        slots: in_slots,
        vmid: if vmids.len() == 1 { vmids.first().copied() } else { None },
        pointers,
        cu_masks: masks.flatten().unwrap_or_default(),
        mqds: saved.iter().map(|one| one.mqd).collect(),
        ..of_registers(queue.pid, queue.gpu_id, &now[0])
    }
}

fn sdma_row(
    queue: &MqdQueue,
    slots: &Slots<'_>,
    gap: Gap,
    rings: &BTreeMap<(u32, u64), usize>,
    named: &mut Named,
) -> QueueRow {
    let dump = queue.dumps.first().map_or(&[][..], Vec::as_slice);
    let Some(saved) = SdmaRegisters::of(dump).filter(|_| !queue.damaged) else { return damaged(queue) };
    let key = (queue.gpu_id, saved.ring);
    let found = slots.of_ring(queue.gpu_id, saved.ring, dump, rings.get(&key).copied().unwrap_or(1));
    let slot = match &found {
        Found::One(index, slot) => {
            named.sdma.insert(*index);
            Some(*slot)
        }
        Found::Ambiguous(indexes) => {
            named.sdma.extend(indexes);
            None
        }
        Found::None => None,
    };
    let state = match (slots.read, found) {
        (false, _) => State::Saved { active: saved.enabled },
        (true, Found::One(_, slot)) => match slot.active {
            Some(true) => State::Active { on: 1, of: 1, unread: 0 },
            Some(false) if !gap.sdma => State::Stale,
            Some(false) | None => State::Unknown,
        },
        (true, Found::None) if !gap.sdma => State::NotMapped,
        (true, Found::None | Found::Ambiguous(_)) => State::Unknown,
    };
    let live = slot.filter(|slot| slot.active == Some(true)).map(|slot| slot.registers);
    QueueRow {
        state,
        slots: slot.map(|slot| slot.place()).into_iter().collect(),
        pointers: vec![Pointers::sdma(&live.unwrap_or(saved), live.is_some())],
        engine: sdma_place(dump),
        ..of_sdma(queue.pid, queue.gpu_id, &saved)
    }
}

/// In the order of the dump of slots, which is that of the topology; then those that it does not have, by gpu_id.
fn gpus(queues: &[QueueRow], hqds: Option<&HqdFile>, slots: &Slots<'_>, gaps: &Gaps) -> Vec<Gpu> {
    let in_file = hqds.iter().flat_map(|file| &file.gpus).copied();
    let mut all: Vec<Gpu> = in_file
        .map(|(gpu_id, stopped)| {
            let Gap { compute, sdma } = gaps.of(gpu_id);
            Gpu { gpu_id, stopped, compute_missing: compute, sdma_missing: sdma, ..Gpu::default() }
        })
        .collect();
    let others: BTreeSet<u32> = queues.iter().map(|queue| queue.gpu_id).collect();
    for gpu_id in others {
        if all.iter().all(|gpu| gpu.gpu_id != gpu_id) {
            let missing = hqds.is_some();
            all.push(Gpu { gpu_id, compute_missing: missing, sdma_missing: missing, ..Gpu::default() });
        }
    }
    for gpu in &mut all {
        let dumped = hqds.iter().flat_map(|file| &file.slots).filter(|slot| slot.gpu_id == gpu.gpu_id);
        let (mut by_xcc, mut sdma) = (BTreeMap::<u32, usize>::new(), 0);
        for slot in dumped {
            match slot.place {
                Place::Cp { .. } => *by_xcc.entry(slot.inst).or_default() += 1,
                Place::Sdma { .. } => sdma += 1,
                Place::Hiq { .. } => {}
            }
        }
        let of_gpu = || queues.iter().filter(|queue| queue.gpu_id == gpu.gpu_id);
        let compute = || of_gpu().filter(|queue| matches!(queue.kind, Some(MqdKind::Compute | MqdKind::Diq)));
        gpu.compute_queues = compute().count();
        gpu.sdma_queues = of_gpu().filter(|queue| queue.kind == Some(MqdKind::Sdma)).count();
        gpu.active_hqds = (!by_xcc.is_empty()).then(|| compute().map(QueueRow::active_slots).sum());
        gpu.active_sdma = (sdma > 0).then(|| slots.active_sdma(gpu.gpu_id));
        gpu.xccs = (!by_xcc.is_empty()).then_some(by_xcc.len());
        gpu.slots_each = by_xcc.values().max().copied();
    }
    all
}
