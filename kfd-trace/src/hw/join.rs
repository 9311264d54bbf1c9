//! Queues with their slots.

use super::hqds::{Hqd, HqdFile, Place};
use super::layout::{Generation, Registers, SdmaRegisters, cu_masks, sdma_place};
use super::mqds::{MqdFile, MqdKind, MqdQueue};
use super::rows::Strange;
use std::collections::{BTreeMap, BTreeSet};

/// Whether the hardware has the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// On so many XCCs of all of them.
    Active { on: usize, of: usize },
    /// A slot still names it, and is not active.
    Stale,
    /// No slot names it.
    NotMapped,
    /// No slots were read: `active` is what was last saved to memory, which may be long ago.
    Saved { active: bool },
    /// The dump is too short, or its rows do not follow each other.
    Damaged,
}

/// A slot that names a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// XCC, by the driver's number.
    pub inst: u32,
    pub place: Place,
    pub active: bool,
}

/// One queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// `None`: what is in the slots is in no MQD.
    pub pid: Option<u32>,
    pub gpu_id: u32,
    /// `None`: the kernel's own queue to its scheduler.
    pub kind: Option<MqdKind>,
    pub state: State,
    pub ring: Option<u64>,
    pub ring_bytes: Option<u64>,
    /// XCCs by its MQDs.
    pub xccs: usize,
    pub slots: Vec<Slot>,
    /// `None`: it is on no hardware, or on several with different ones.
    pub vmid: Option<u32>,
    /// Dwords of a compute queue, bytes of an SDMA queue; in the order of the XCCs.
    pub rptr: Vec<u64>,
    pub wptr: Option<u64>,
    pub pipe_priority: Option<u32>,
    pub queue_priority: Option<u32>,
    pub doorbell_offset: Option<u32>,
    /// Of each XCC, by shader engine; empty without a generation.
    pub cu_masks: Vec<Vec<u32>>,
    /// SDMA: the driver's numbers.
    pub engine: Option<(u32, u32)>,
    /// Addresses of its MQDs.
    pub mqds: Vec<u64>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    pub gpu_id: u32,
    pub stopped: bool,
    pub compute_queues: usize,
    pub sdma_queues: usize,
    /// XCCs, and slots of compute queues on each; `None`: no slots were read.
    pub xccs: Option<usize>,
    pub slots_each: Option<usize>,
    /// Active slots, without the kernel's own.
    pub active_hqds: usize,
    pub active_sdma: usize,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HwReport {
    pub gpus: Vec<Gpu>,
    pub queues: Vec<QueueRow>,
    /// Processes without a queue.
    pub idle_processes: Vec<u32>,
    /// Queues whose type the driver does not know.
    pub unknown_queues: usize,
    pub mqds: Option<Strange>,
    pub hqds: Option<Strange>,
}

/// Joins what was read; `generation`: of a GPU, if known.
#[must_use]
pub fn report(
    mqds: Option<&MqdFile>,
    hqds: Option<&HqdFile>,
    generation: impl Fn(u32) -> Option<Generation>,
) -> HwReport {
    let slots = Slots::new(hqds);
    let mut named = BTreeSet::new();
    let mut queues: Vec<QueueRow> = Vec::new();
    for queue in mqds.iter().flat_map(|file| &file.queues) {
        queues.push(match queue.kind {
            MqdKind::Sdma => sdma_row(queue, &slots),
            MqdKind::Compute | MqdKind::Diq => row(queue, &slots, generation(queue.gpu_id), &mut named),
        });
    }
    slots.attach_by_ring(&mut queues, &mut named);
    queues.extend(slots.unnamed(&named));
    let with_queues: BTreeSet<Option<u32>> = queues.iter().map(|queue| queue.pid).collect();
    let processes = mqds.iter().flat_map(|file| &file.processes).map(|process| process.tgid);
    HwReport {
        gpus: gpus(&queues, hqds),
        idle_processes: processes.filter(|pid| !with_queues.contains(&Some(*pid))).collect(),
        queues,
        unknown_queues: mqds.map_or(0, |file| file.unknown_queues),
        mqds: mqds.map(|file| file.strange.clone()),
        hqds: hqds.map(|file| file.strange.clone()),
    }
}

/// Slots of compute queues and of SDMA engines, by what joins them.
struct Slots<'a> {
    read: bool,
    all: Vec<(&'a Hqd, Registers)>,
    by_mqd: BTreeMap<(u32, u64), Vec<usize>>,
    /// An SDMA slot names no MQD. `None`: several slots have that ring.
    sdma_by_ring: BTreeMap<(u32, u64), Option<(&'a Hqd, SdmaRegisters)>>,
}

impl<'a> Slots<'a> {
    fn new(hqds: Option<&'a HqdFile>) -> Self {
        let (mut all, mut sdma_by_ring) = (Vec::new(), BTreeMap::new());
        for slot in hqds.iter().flat_map(|file| &file.slots) {
            if matches!(slot.place, Place::Sdma { .. }) {
                let Some(registers) = SdmaRegisters::of(&slot.registers) else { continue };
                // Without a ring it is free.
                if registers.ring != 0 {
                    let one = sdma_by_ring.entry((slot.gpu_id, registers.ring));
                    one.and_modify(|one| *one = None).or_insert(Some((slot, registers)));
                }
            } else {
                all.extend(Registers::of_slot(&slot.registers).map(|registers| (slot, registers)));
            }
        }
        let mut by_mqd: BTreeMap<(u32, u64), Vec<usize>> = BTreeMap::new();
        for (index, (slot, registers)) in all.iter().enumerate() {
            // Without an MQD it was never used, or is the kernel's.
            if registers.mqd != 0 {
                by_mqd.entry((slot.gpu_id, registers.mqd)).or_default().push(index);
            }
        }
        Slots { read: hqds.is_some(), all, by_mqd, sdma_by_ring }
    }

    /// The slot that names this MQD: an active one, if there is one.
    fn of(&self, gpu_id: u32, mqd: u64) -> Option<usize> {
        let named = self.by_mqd.get(&(gpu_id, mqd))?;
        named.iter().copied().find(|index| self.all[*index].1.active).or_else(|| named.first().copied())
    }

    fn slot(&self, index: usize) -> Slot {
        let (slot, registers) = &self.all[index];
        Slot { inst: slot.inst, place: slot.place, active: registers.active }
    }

    /// Drivers that print one MQD of a queue on several XCCs: the others are the slots with its ring.
    fn attach_by_ring(&self, queues: &mut [QueueRow], named: &mut BTreeSet<usize>) {
        // `None`: several queues have that ring.
        let mut by_ring: BTreeMap<(u32, Option<u64>, Option<u32>), Option<usize>> = BTreeMap::new();
        for (at, queue) in queues.iter().enumerate().filter(|(_, queue)| queue.xccs == 1) {
            let one = by_ring.entry((queue.gpu_id, queue.ring, queue.vmid));
            one.and_modify(|one| *one = None).or_insert(Some(at));
        }
        for (index, (slot, registers)) in self.all.iter().enumerate() {
            if registers.active && !named.contains(&index) {
                let key = (slot.gpu_id, Some(registers.ring), Some(registers.vmid));
                let Some(Some(at)) = by_ring.get(&key) else { continue };
                queues[*at].slots.push(self.slot(index));
                queues[*at].rptr.push(registers.rptr.into());
                named.insert(index);
            }
        }
        for queue in queues {
            if let State::Active { .. } = queue.state {
                let on = queue.slots.iter().filter(|slot| slot.active).count();
                queue.state = State::Active { on, of: queue.xccs.max(on) };
            }
        }
    }

    /// Active slots that no MQD explains, as queues: those of one ring are one.
    fn unnamed(&self, named: &BTreeSet<usize>) -> Vec<QueueRow> {
        let mut by_ring: BTreeMap<(u32, u64, u32, bool), Vec<usize>> = BTreeMap::new();
        for (index, (slot, registers)) in self.all.iter().enumerate() {
            if registers.active && !named.contains(&index) {
                let kernels = matches!(slot.place, Place::Hiq { .. });
                by_ring
                    .entry((slot.gpu_id, registers.ring, registers.vmid, kernels))
                    .or_default()
                    .push(index);
            }
        }
        let row = |((gpu_id, _, vmid, kernels), indexes): ((u32, u64, u32, bool), Vec<usize>)| {
            let first = self.all[indexes[0]].1;
            QueueRow {
                kind: (!kernels).then_some(MqdKind::Compute),
                state: State::Active { on: indexes.len(), of: indexes.len() },
                xccs: indexes.len(),
                slots: indexes.iter().map(|index| self.slot(*index)).collect(),
                vmid: Some(vmid),
                rptr: indexes.iter().map(|index| self.all[*index].1.rptr.into()).collect(),
                mqds: indexes.iter().map(|index| self.all[*index].1.mqd).collect(),
                ..of_registers(None, gpu_id, first)
            }
        };
        by_ring.into_iter().map(row).collect()
    }
}

/// A queue of which only its header is known.
fn damaged(queue: &MqdQueue) -> QueueRow {
    QueueRow { xccs: queue.dumps.len(), ..bare(queue.pid, queue.gpu_id, Some(queue.kind)) }
}

fn bare(pid: Option<u32>, gpu_id: u32, kind: Option<MqdKind>) -> QueueRow {
    QueueRow {
        pid,
        gpu_id,
        kind,
        state: State::Damaged,
        ring: None,
        ring_bytes: None,
        xccs: 0,
        slots: vec![],
        vmid: None,
        rptr: vec![],
        wptr: None,
        pipe_priority: None,
        queue_priority: None,
        doorbell_offset: None,
        cu_masks: vec![],
        engine: None,
        mqds: vec![],
    }
}

/// What one set of registers says of a compute queue; its state and XCCs are the caller's.
fn of_registers(pid: Option<u32>, gpu_id: u32, registers: Registers) -> QueueRow {
    QueueRow {
        ring: Some(registers.ring),
        ring_bytes: registers.ring_bytes,
        wptr: Some(registers.wptr),
        pipe_priority: Some(registers.pipe_priority),
        queue_priority: Some(registers.queue_priority),
        doorbell_offset: Some(registers.doorbell),
        ..bare(pid, gpu_id, Some(MqdKind::Compute))
    }
}

fn row(
    queue: &MqdQueue,
    slots: &Slots<'_>,
    generation: Option<Generation>,
    named: &mut BTreeSet<usize>,
) -> QueueRow {
    let saved: Option<Vec<Registers>> = queue.dumps.iter().map(|dump| Registers::of_mqd(dump)).collect();
    let Some(saved) = saved.filter(|saved| !saved.is_empty() && !queue.damaged) else {
        return damaged(queue);
    };
    let found: Vec<Option<usize>> = saved.iter().map(|one| slots.of(queue.gpu_id, one.mqd)).collect();
    named.extend(found.iter().flatten());
    // In a slot that is active the hardware's own word counts, else what was saved.
    let now: Vec<Registers> = saved
        .iter()
        .zip(&found)
        .map(|(saved, found)| {
            let slot = found.map(|index| slots.all[index].1).filter(|registers| registers.active);
            slot.unwrap_or(*saved)
        })
        .collect();
    let in_slots: Vec<Slot> = found.iter().flatten().map(|index| slots.slot(*index)).collect();
    let on = in_slots.iter().filter(|slot| slot.active).count();
    let state = match (slots.read, on, in_slots.is_empty()) {
        (false, ..) => State::Saved { active: saved.iter().any(|one| one.active) },
        (true, 0, true) => State::NotMapped,
        (true, 0, false) => State::Stale,
        (true, on, _) => State::Active { on, of: saved.len() },
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
        rptr: now.iter().map(|one| one.rptr.into()).collect(),
        wptr: now.iter().map(|one| one.wptr).max(),
        cu_masks: masks.flatten().unwrap_or_default(),
        mqds: saved.iter().map(|one| one.mqd).collect(),
        ..of_registers(queue.pid, queue.gpu_id, now[0])
    }
}

fn sdma_row(queue: &MqdQueue, slots: &Slots<'_>) -> QueueRow {
    let dump = queue.dumps.first().map_or(&[][..], Vec::as_slice);
    let Some(saved) = SdmaRegisters::of(dump).filter(|_| !queue.damaged) else { return damaged(queue) };
    let slot = slots.sdma_by_ring.get(&(queue.gpu_id, saved.ring)).copied().flatten();
    let now = slot.map(|(_, registers)| registers).filter(|now| now.enabled).unwrap_or(saved);
    let state = match (slots.read, slot) {
        (false, _) => State::Saved { active: saved.enabled },
        (true, Some((_, registers))) if registers.enabled => State::Active { on: 1, of: 1 },
        (true, Some(_)) => State::Stale,
        (true, None) => State::NotMapped,
    };
    let place = |(slot, registers): (&Hqd, SdmaRegisters)| Slot {
        inst: slot.inst,
        place: slot.place,
        active: registers.enabled,
    };
    QueueRow {
        state,
        ring: Some(saved.ring),
        ring_bytes: Some(saved.ring_bytes),
        xccs: 1,
        slots: slot.map(place).into_iter().collect(),
        rptr: vec![now.rptr],
        wptr: Some(now.wptr),
        engine: sdma_place(dump),
        ..damaged(queue)
    }
}

fn gpus(queues: &[QueueRow], hqds: Option<&HqdFile>) -> Vec<Gpu> {
    let mut all: BTreeMap<u32, Gpu> = BTreeMap::new();
    for (gpu_id, stopped) in hqds.iter().flat_map(|file| &file.gpus) {
        all.insert(*gpu_id, Gpu { gpu_id: *gpu_id, stopped: *stopped, ..Gpu::default() });
    }
    for queue in queues {
        let gpu = all.entry(queue.gpu_id).or_insert_with(|| Gpu { gpu_id: queue.gpu_id, ..Gpu::default() });
        let active = queue.slots.iter().filter(|slot| slot.active).count();
        match queue.kind {
            Some(MqdKind::Sdma) => {
                gpu.sdma_queues += 1;
                gpu.active_sdma += active;
            }
            Some(_) => {
                gpu.compute_queues += 1;
                gpu.active_hqds += active;
            }
            None => {}
        }
    }
    for slot in hqds.iter().flat_map(|file| &file.slots) {
        let Some(gpu) = all.get_mut(&slot.gpu_id) else { continue };
        if let Place::Cp { .. } = slot.place {
            gpu.xccs = gpu.xccs.max(Some(slot.inst as usize + 1));
            gpu.slots_each = Some(gpu.slots_each.unwrap_or(0) + usize::from(slot.inst == 0));
        }
    }
    all.into_values().collect()
}
