//! The slots of a dump, and which queue each one has.
//!
//! In: the dump of slots. Out: the slot of an MQD, of an SDMA queue's ring, and the active slots that no MQD explains. An
//! MQD's address and a ring's address are used again after a queue ended, and a slot keeps both: a slot has a queue only
//! where MQD and ring agree. Pure.

use super::hqds::{Hqd, HqdFile, Place};
use super::layout::{Registers, SdmaRegisters, SdmaSlot};
use super::mqds::MqdKind;
use super::progress::{Pointers, Unit};
use super::report::{Fault, QueueRow, Slot, State};
use std::collections::{BTreeMap, BTreeSet};

/// A slot of an SDMA engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sdma<'a> {
    slot: &'a Hqd,
    pub(super) registers: SdmaRegisters,
    /// `None`: it is not known where its registers are.
    pub(super) active: Option<bool>,
}

/// What a ring's slots are to an SDMA queue.
#[derive(Clone, Debug)]
pub(super) enum Found<'a> {
    One(usize, Sdma<'a>),
    None,
    /// Several slots, or several queues, have that ring: these slots.
    Ambiguous(Vec<usize>),
}

pub(super) struct Slots<'a> {
    pub(super) read: bool,
    /// Slots of compute queues, the kernel's among them.
    all: Vec<(&'a Hqd, Registers)>,
    by_mqd: BTreeMap<(u32, u64), Vec<usize>>,
    /// An SDMA slot names no MQD.
    sdma: Vec<Sdma<'a>>,
}

impl<'a> Slots<'a> {
    pub(super) fn new(hqds: Option<&'a HqdFile>) -> Self {
        let (mut all, mut sdma) = (Vec::new(), Vec::new());
        for slot in hqds.iter().flat_map(|file| &file.slots) {
            if matches!(slot.place, Place::Sdma { .. }) {
                let Some(registers) = SdmaRegisters::of(&slot.registers) else { continue };
                let connected = SdmaSlot::of(&slot.registers).map(|known| known.doorbell_enabled);
                let active = if registers.enabled { connected } else { Some(false) };
                // Without a ring it is free.
                if registers.ring != 0 {
                    sdma.push(Sdma { slot, registers, active });
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
        Slots { read: hqds.is_some(), all, by_mqd, sdma }
    }

    /// The slot that has the queue of this MQD: an active one, if there is one.
    pub(super) fn of(&self, gpu_id: u32, saved: &Registers) -> Option<usize> {
        let named = self.by_mqd.get(&(gpu_id, saved.mqd))?;
        let mut same = named.iter().copied().filter(|index| self.all[*index].1.ring == saved.ring);
        let first = same.clone().next();
        same.find(|index| self.all[*index].1.active).or(first)
    }

    /// `None`: it is not active.
    pub(super) fn active(&self, index: usize) -> Option<Registers> {
        Some(self.all[index].1).filter(|registers| registers.active)
    }

    pub(super) fn slot(&self, index: usize) -> Slot {
        let (slot, registers) = &self.all[index];
        Slot {
            inst: slot.inst,
            place: slot.place,
            active: registers.active,
            error: Some(registers.error),
            dequeue_request: Some(registers.dequeue_request),
        }
    }

    /// The slot of an SDMA queue; `rings`: queues of this GPU with that ring.
    pub(super) fn of_ring(&self, gpu_id: u32, ring: u64, mqd: &[u32], rings: usize) -> Found<'a> {
        let all: Vec<(usize, Sdma<'a>)> = (0..)
            .zip(self.sdma.iter().copied())
            .filter(|(_, one)| (one.slot.gpu_id, one.registers.ring) == (gpu_id, ring))
            .collect();
        let one = |some: &[(usize, Sdma<'a>)]| match some {
            [(index, one)] => Found::One(*index, *one),
            _ => Found::Ambiguous(all.iter().map(|(index, _)| *index).collect()),
        };
        // A doorbell is that of one queue.
        let doorbell = |(_, one): &&(usize, Sdma<'a>)| {
            SdmaSlot::of(&one.slot.registers).is_some_and(|slot| slot.has_doorbell_of(mqd))
        };
        let by_doorbell: Vec<_> = all.iter().filter(doorbell).copied().collect();
        let active: Vec<_> = all.iter().filter(|(_, one)| one.active != Some(false)).copied().collect();
        match (all.first(), rings) {
            (None, _) => Found::None,
            _ if by_doorbell.len() == 1 => one(&by_doorbell),
            (Some(_), 2..) => one(&[]),
            // Slots that earlier queues left are no other candidates.
            (Some(first), _) if active.is_empty() => one(&[*first]),
            _ => one(&active),
        }
    }

    pub(super) fn active_sdma(&self, gpu_id: u32) -> usize {
        self.sdma.iter().filter(|one| one.slot.gpu_id == gpu_id && one.active == Some(true)).count()
    }

    /// Drivers that print one MQD of a queue on several XCCs: the others are the slots with its ring.
    pub(super) fn attach_by_ring(&self, queues: &mut [QueueRow], named: &mut BTreeSet<usize>) {
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
                queues[*at].pointers.push(Pointers::compute(registers, true));
                named.insert(index);
            }
        }
        for queue in queues {
            if let State::Active { unread, .. } = queue.state {
                let on = queue.active_slots();
                queue.state = State::Active { on, of: queue.xccs.max(on), unread };
            }
        }
    }

    /// Active slots that no MQD explains, as queues: those of one ring are one.
    pub(super) fn unnamed(&self, named: &BTreeSet<usize>) -> Vec<QueueRow> {
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
            let registers = |index: &usize| &self.all[*index].1;
            QueueRow {
                kind: (!kernels).then_some(MqdKind::Compute),
                state: State::Active { on: indexes.len(), of: indexes.len(), unread: 0 },
                xccs: indexes.len(),
                slots: indexes.iter().map(|index| self.slot(*index)).collect(),
                vmid: Some(vmid),
                pointers: indexes.iter().map(|index| Pointers::compute(registers(index), true)).collect(),
                mqds: indexes.iter().map(|index| registers(index).mqd).collect(),
                ..of_registers(None, gpu_id, registers(&indexes[0]))
            }
        };
        by_ring.into_iter().map(row).collect()
    }

    /// Active SDMA slots that no MQD explains.
    pub(super) fn unnamed_sdma(&self, named: &BTreeSet<usize>) -> Vec<QueueRow> {
        let slots =
            (0..).zip(&self.sdma).filter(|(index, one)| one.active == Some(true) && !named.contains(index));
        let row = |(_, one): (usize, &Sdma<'_>)| QueueRow {
            state: State::Active { on: 1, of: 1, unread: 0 },
            slots: vec![one.place()],
            pointers: vec![Pointers::sdma(&one.registers, true)],
            ..of_sdma(None, one.slot.gpu_id, &one.registers)
        };
        slots.map(row).collect()
    }

    /// Slots with an error or a dequeue request, whether a queue is known for them or not.
    pub(super) fn faults(&self, queues: &[QueueRow]) -> Vec<Fault> {
        let faulty = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, (_, registers))| registers.error != 0 || registers.dequeue_request != 0);
        let fault = |(index, (hqd, registers)): (usize, &(&Hqd, Registers))| {
            let slot = self.slot(index);
            let owner = queues.iter().find(|queue| queue.gpu_id == hqd.gpu_id && queue.slots.contains(&slot));
            Fault { gpu_id: hqd.gpu_id, slot, ring: registers.ring, pid: owner.and_then(|queue| queue.pid) }
        };
        faulty.map(fault).collect()
    }
}

impl Sdma<'_> {
    pub(super) fn place(&self) -> Slot {
        Slot {
            inst: self.slot.inst,
            place: self.slot.place,
            active: self.active == Some(true),
            error: None,
            dequeue_request: None,
        }
    }
}

/// What one set of registers says of a compute queue; its state, XCCs and pointers are the caller's.
pub(super) fn of_registers(pid: Option<u32>, gpu_id: u32, registers: &Registers) -> QueueRow {
    QueueRow {
        ring: Some(registers.ring),
        ring_bytes: registers.ring_bytes,
        unit: Some(Unit::of_compute(registers)),
        pipe_priority: Some(registers.pipe_priority),
        queue_priority: Some(registers.queue_priority),
        doorbell_offset: Some(registers.doorbell),
        ..QueueRow::bare(pid, gpu_id, Some(MqdKind::Compute))
    }
}

/// As [`of_registers`], of an SDMA queue.
pub(super) fn of_sdma(pid: Option<u32>, gpu_id: u32, registers: &SdmaRegisters) -> QueueRow {
    QueueRow {
        ring: Some(registers.ring),
        ring_bytes: Some(registers.ring_bytes),
        unit: Some(Unit::Bytes),
        xccs: 1,
        ..QueueRow::bare(pid, gpu_id, Some(MqdKind::Sdma))
    }
}
