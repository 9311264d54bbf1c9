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
    queues.extend(slots.unnamed_sdma(&named.sdma, &named.ambiguous));
    let with_queues: BTreeSet<Option<u32>> = queues.iter().map(|queue| queue.pid).collect();
    let processes = mqds.iter().flat_map(|file| &file.processes).map(|process| process.tgid);
    HwReport {
        gpus: gpus(&queues, hqds, &slots, &gaps),
        faults: slots.faults(&queues),
        idle_processes: processes.filter(|pid| !with_queues.contains(&Some(*pid))).collect(),
        queues,
        unknown_queues: mqds.map_or(0, |file| file.unknown_queues),
        interval: None,
        mqds: mqds.map(|file| Source { strange: file.strange.clone(), missing: missing(file) }),
        hqds: hqds.map(|file| Source { strange: file.strange.clone(), missing: gaps.reasons.clone() }),
    }
}

/// In which way a dump of MQDs is not whole, or not understood.
fn missing(file: &MqdFile) -> Vec<String> {
    let reasons = [
        (file.cut, "mqds ends within a queue: further queues and processes are missing"),
        (!file.cut && file.processes.is_empty(), "mqds has no process: none uses KFD, or the copy is empty"),
        (
            file.queues.iter().any(|queue| !queue.damaged && queue.is_as_of_gfx7()),
            "mqds has MQDs of 128 dwords: of gfx7, whose layout is not known here, unless the copy ends there",
        ),
    ];
    reasons.iter().filter(|(is_so, _)| *is_so).map(|(_, reason)| (*reason).to_owned()).collect()
}

/// Slots that an MQD explains.
#[derive(Default)]
struct Named {
    compute: BTreeSet<usize>,
    sdma: BTreeSet<usize>,
    /// By GPU and ring, where it is not known which of the ring's slots it is.
    ambiguous: BTreeSet<(u32, u64)>,
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

/// A queue of which only the header is understood.
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
        let is_foreign = !queue.damaged && queue.is_as_of_gfx7();
        let state = if is_foreign { State::Unknown } else { State::Damaged };
        return QueueRow { state, ..damaged(queue) };
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
        Found::Ambiguous => {
            named.ambiguous.insert(key);
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
        (true, Found::None | Found::Ambiguous) => State::Unknown,
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
    let mut with_queues = BTreeMap::<u32, OfGpu>::new();
    for queue in queues {
        with_queues.entry(queue.gpu_id).or_default().count(queue);
    }
    let listed: BTreeSet<u32> = all.iter().map(|gpu| gpu.gpu_id).collect();
    let missing = hqds.is_some();
    let others = with_queues.keys().filter(|gpu_id| !listed.contains(gpu_id));
    all.extend(others.map(|gpu_id| Gpu {
        gpu_id: *gpu_id,
        compute_missing: missing,
        sdma_missing: missing,
        ..Gpu::default()
    }));
    let mut by_xcc = BTreeMap::<u32, BTreeMap<u32, usize>>::new();
    let mut with_sdma = BTreeSet::new();
    for slot in hqds.iter().flat_map(|file| &file.slots) {
        match slot.place {
            Place::Cp { .. } => *by_xcc.entry(slot.gpu_id).or_default().entry(slot.inst).or_default() += 1,
            Place::Sdma { .. } => _ = with_sdma.insert(slot.gpu_id),
            Place::Hiq { .. } => {}
        }
    }
    let active_sdma = slots.active_sdma();
    for gpu in &mut all {
        let counted = with_queues.get(&gpu.gpu_id).copied().unwrap_or_default();
        (gpu.compute_queues, gpu.sdma_queues) = (counted.compute, counted.sdma);
        let xccs = by_xcc.get(&gpu.gpu_id);
        gpu.active_hqds = xccs.map(|_| counted.active_hqds);
        let active_sdma = active_sdma.get(&gpu.gpu_id).copied().unwrap_or(0);
        gpu.active_sdma = with_sdma.contains(&gpu.gpu_id).then_some(active_sdma);
        gpu.xccs = xccs.map(BTreeMap::len);
        gpu.slots_each = xccs.and_then(|xccs| xccs.values().max().copied());
    }
    all
}

/// Queues of one GPU.
#[derive(Clone, Copy, Default)]
struct OfGpu {
    compute: usize,
    sdma: usize,
    active_hqds: usize,
}

impl OfGpu {
    fn count(&mut self, queue: &QueueRow) {
        match queue.kind {
            Some(MqdKind::Compute | MqdKind::Diq) => {
                self.compute += 1;
                self.active_hqds += queue.active_slots();
            }
            Some(MqdKind::Sdma) => self.sdma += 1,
            None => {}
        }
    }
}
