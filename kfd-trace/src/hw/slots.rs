//! The slots of a dump, and which queue each one has.
//!
//! In: the dump of slots. Out: the slot of an MQD, of an SDMA queue's ring, and the active slots that no MQD explains. An
//! MQD's address and a ring's address are used again after a queue ended, and a slot keeps both: a slot has a queue only
//! where MQD and ring agree. Pure.

use super::hqds::{Hqd, HqdFile, Place};
use super::layout::{Doorbell, Registers, SdmaRegisters, SdmaSlot};
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
    /// Several slots, or several queues, have that ring.
    Ambiguous,
}

/// By key, the only slot or queue that has it; `None`: several have it.
type Only<K> = BTreeMap<K, Option<usize>>;

fn add<K: Ord>(only: &mut Only<K>, key: K, index: usize) {
    only.entry(key).and_modify(|one| *one = None).or_insert(Some(index));
}

#[derive(Default)]
pub(super) struct Slots<'a> {
    pub(super) read: bool,
    /// Slots of compute queues, the kernel's among them.
    all: Vec<(&'a Hqd, Registers)>,
    /// By GPU, MQD and ring, the first active slot, or else the first one.
    by_mqd: BTreeMap<(u32, u64, u64), usize>,
    /// An SDMA slot names no MQD.
    sdma: Vec<Sdma<'a>>,
    /// By GPU and ring, the first SDMA slot.
    rings: BTreeMap<(u32, u64), usize>,
    /// By GPU and ring, without the slots that earlier queues left.
    active_rings: Only<(u32, u64)>,
    /// By GPU, ring and doorbell.
    doorbells: Only<(u32, u64, Doorbell)>,
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
        let mut slots = Slots { read: hqds.is_some(), all, sdma, ..Slots::default() };
        for (index, (slot, registers)) in slots.all.iter().enumerate() {
            // Without an MQD it was never used, or is the kernel's.
            if registers.mqd != 0 {
                let best = slots.by_mqd.entry((slot.gpu_id, registers.mqd, registers.ring)).or_insert(index);
                if registers.active && !slots.all[*best].1.active {
                    *best = index;
                }
            }
        }
        for (index, Sdma { slot, registers, active }) in slots.sdma.iter().enumerate() {
            let key = (slot.gpu_id, registers.ring);
            slots.rings.entry(key).or_insert(index);
            if *active != Some(false) {
                add(&mut slots.active_rings, key, index);
            }
            if let Some(doorbell) = SdmaSlot::of(&slot.registers).and_then(|slot| slot.doorbell) {
                add(&mut slots.doorbells, (key.0, key.1, doorbell), index);
            }
        }
        slots
    }

    /// The slot that has the queue of this MQD: an active one, if there is one.
    pub(super) fn of(&self, gpu_id: u32, saved: &Registers) -> Option<usize> {
        self.by_mqd.get(&(gpu_id, saved.mqd, saved.ring)).copied()
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
        let Some(first) = self.rings.get(&(gpu_id, ring)) else { return Found::None };
        // A doorbell is that of one queue.
        let mut by_doorbell =
            Doorbell::all_of(mqd).filter_map(|doorbell| self.doorbells.get(&(gpu_id, ring, doorbell)));
        let one = match (by_doorbell.next(), by_doorbell.next(), rings) {
            (Some(Some(one)), None, _) => Some(*one),
            (_, _, 2..) => None,
            // Slots that earlier queues left are no other candidates.
            _ => self.active_rings.get(&(gpu_id, ring)).copied().unwrap_or(Some(*first)),
        };
        one.map_or(Found::Ambiguous, |index| Found::One(index, self.sdma[index]))
    }

    /// Active slots of SDMA queues, by GPU.
    pub(super) fn active_sdma(&self) -> BTreeMap<u32, usize> {
        let mut active = BTreeMap::new();
        for one in self.sdma.iter().filter(|one| one.active == Some(true)) {
            *active.entry(one.slot.gpu_id).or_default() += 1;
        }
        active
    }

    /// Drivers that print one MQD of a queue on several XCCs: the others are the slots with its ring.
    pub(super) fn attach_by_ring(&self, queues: &mut [QueueRow], named: &mut BTreeSet<usize>) {
        let mut by_ring = Only::new();
        for (at, queue) in queues.iter().enumerate().filter(|(_, queue)| queue.xccs == 1) {
            add(&mut by_ring, (queue.gpu_id, queue.ring, queue.vmid), at);
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

    /// Active SDMA slots that no MQD explains; `ambiguous`: rings, of which an MQD explains each slot.
    pub(super) fn unnamed_sdma(
        &self,
        named: &BTreeSet<usize>,
        ambiguous: &BTreeSet<(u32, u64)>,
    ) -> Vec<QueueRow> {
        let slots = (0..).zip(&self.sdma).filter(|(index, one)| {
            let is_explained =
                named.contains(index) || ambiguous.contains(&(one.slot.gpu_id, one.registers.ring));
            one.active == Some(true) && !is_explained
        });
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
        let mut owners = BTreeMap::new();
        for (queue, slot) in queues.iter().flat_map(|queue| queue.slots.iter().map(move |slot| (queue, slot)))
        {
            owners.entry((queue.gpu_id, *slot)).or_insert(queue.pid);
        }
        let faulty = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, (_, registers))| registers.error != 0 || registers.dequeue_request != 0);
        let fault = |(index, (hqd, registers)): (usize, &(&Hqd, Registers))| {
            let slot = self.slot(index);
            let pid = owners.get(&(hqd.gpu_id, slot)).copied().flatten();
            Fault { gpu_id: hqd.gpu_id, slot, ring: registers.ring, pid }
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
