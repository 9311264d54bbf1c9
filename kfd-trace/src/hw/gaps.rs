//! What is missing in a dump of slots. The driver prints each GPU's slots of compute queues, by XCC and pipe, then those
//! of its SDMA engines (kfd_device_queue_manager.c, dqm_debugfs_hqds), so that a copy that was cut off can be recognized.
//!
//! In: that dump, and the one of MQDs, which shows XCCs and engines that have to be there. Out: by GPU, whether a queue that is in none of its slots may be in one that is missing, and one line per
//! reason. Pure.

use super::hqds::{Hqd, HqdFile, Place};
use super::layout::{REGISTERS, SdmaSlot, sdma_place};
use super::mqds::{MqdFile, MqdKind, MqdQueue};
use std::collections::{BTreeMap, BTreeSet};

/// What of a GPU is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) compute: bool,
    pub(super) sdma: bool,
}

/// By GPU; [`Gaps::of`] for one that the dump does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    gpus: BTreeMap<u32, Gap>,
    pub(super) reasons: Vec<String>,
}

/// The slots of one GPU.
#[derive(Default)]
struct Slots<'a> {
    gpu_id: u32,
    sdma: Vec<&'a Hqd>,
    /// XCC, pipe and queue of each slot of compute queues.
    places: BTreeSet<(u32, u32, u32)>,
    /// Slots of each SDMA engine.
    engines: BTreeMap<u32, usize>,
    /// Registers of an SDMA slot: all have as many.
    sdma_registers: usize,
    /// A slot of compute queues is not whole.
    short: bool,
    queues: Vec<&'a MqdQueue>,
    /// Nothing is behind it in the dump.
    last: bool,
}

impl Gaps {
    pub(super) fn new(file: &HqdFile, mqds: Option<&MqdFile>) -> Self {
        let mut gaps = Gaps::default();
        if file.gpus.is_empty() {
            gaps.reasons.push("hqds has no GPU: its slots are unknown".to_owned());
            return gaps;
        }
        let last = file.gpus.last().map(|(gpu_id, _)| *gpu_id);
        let mut gpus: BTreeMap<u32, Slots<'_>> = BTreeMap::new();
        for (gpu_id, _) in &file.gpus {
            gpus.entry(*gpu_id).or_insert_with(|| Slots {
                gpu_id: *gpu_id,
                last: last == Some(*gpu_id),
                ..Slots::default()
            });
        }
        for slot in &file.slots {
            if let Some(gpu) = gpus.get_mut(&slot.gpu_id) {
                gpu.add(slot);
            }
        }
        for queue in mqds.iter().flat_map(|file| &file.queues) {
            if let Some(gpu) = gpus.get_mut(&queue.gpu_id) {
                gpu.queues.push(queue);
            }
        }
        let within = file.slots.last().is_some_and(|slot| {
            let gpu = gpus.get(&slot.gpu_id).filter(|gpu| gpu.last);
            gpu.is_some_and(|gpu| !gpu.is_whole(slot, file.in_line))
        });
        if within {
            gaps.reasons.push("hqds ends within a slot: that one and those behind it are unknown".to_owned());
        } else if file.in_line {
            gaps.reasons.push("hqds ends within a line: slots may be missing behind it".to_owned());
        }
        // In a dump that was pasted twice a GPU has two headings.
        for (gpu_id, stopped) in &file.gpus {
            if let Some(known) = gaps.gpus.get_mut(gpu_id) {
                known.compute |= *stopped;
                known.sdma |= *stopped;
                continue;
            }
            let gpu = &gpus[gpu_id];
            let mut gap = Gap {
                compute: gpu.compute_is_missing(&gpus),
                sdma: gpu.sdma_is_missing(&gpus, file.in_line),
            };
            let is_explained = *stopped || within && gpu.last;
            if !is_explained {
                gaps.reasons.extend(gpu.reason(gap));
            }
            // A stopped GPU has no slots in the dump.
            gap.compute |= *stopped;
            gap.sdma |= *stopped;
            gaps.gpus.insert(*gpu_id, gap);
        }
        gaps
    }

    pub(super) fn of(&self, gpu_id: u32) -> Gap {
        self.gpus.get(&gpu_id).copied().unwrap_or(Gap { compute: true, sdma: true })
    }
}

impl<'a> Slots<'a> {
    fn add(&mut self, slot: &'a Hqd) {
        match slot.place {
            Place::Cp { pipe, queue } => {
                self.places.insert((slot.inst, pipe, queue));
                self.short |= slot.registers.len() < REGISTERS;
            }
            Place::Sdma { engine, .. } => {
                self.sdma.push(slot);
                *self.engines.entry(engine).or_default() += 1;
                self.sdma_registers = self.sdma_registers.max(slot.registers.len());
            }
            Place::Hiq { .. } => {}
        }
    }

    /// `in_line`: the text ends within a line, which is the last one of the last slot.
    fn is_whole(&self, slot: &Hqd, in_line: bool) -> bool {
        match slot.place {
            Place::Hiq { .. } | Place::Cp { .. } => slot.registers.len() >= REGISTERS,
            Place::Sdma { .. } => {
                let alone = self.last && in_line && self.sdma.len() == 1;
                !alone
                    && slot.registers.len() == self.sdma_registers
                    && SdmaSlot::of(&slot.registers).is_some()
            }
        }
    }

    /// A queue has an MQD on each XCC.
    fn lacks_an_xcc(&self, xccs: usize) -> bool {
        let compute = self.queues.iter().filter(|queue| queue.kind == MqdKind::Compute);
        compute.map(|queue| queue.dumps.len()).any(|dumps| dumps > xccs)
    }

    /// The MQD of an SDMA queue has its engine. On a partition the driver's numbers of engines do not begin at 0.
    fn lacks_an_engine(&self) -> bool {
        let dumps = self
            .queues
            .iter()
            .filter(|queue| queue.kind == MqdKind::Sdma)
            .filter_map(|queue| queue.dumps.first());
        let mut places = dumps.filter_map(|dump| sdma_place(dump));
        places.any(|(engine, _)| !self.engines.contains_key(&engine) && engine as usize >= self.engines.len())
    }

    fn compute_is_missing(&self, gpus: &BTreeMap<u32, Slots<'_>>) -> bool {
        let places = &self.places;
        let by_xcc = split(places.iter().map(|(inst, pipe, queue)| (*inst, (*pipe, *queue))));
        let by_pipe = split(places.iter().map(|(inst, pipe, queue)| ((*inst, *pipe), *queue)));
        let fewer = |other: &Slots<'_>| places.len() < other.places.len() && places.is_subset(&other.places);
        let pipes: BTreeSet<u32> = places.iter().map(|(_, pipe, _)| *pipe).collect();
        let cut_here = self.last && self.sdma.is_empty();
        places.is_empty()
            || self.short
            // All XCCs of a GPU have the same slots (cp_queue_bitmap).
            || differ(&by_xcc)
            || self.lacks_an_xcc(by_xcc.len())
            // A microengine has two or four pipes, with as many slots each; a GPU has an SDMA engine.
            || cut_here && (matches!(pipes.len(), 1 | 3) || differ(&by_pipe) || gpus.values().any(fewer))
    }

    fn sdma_is_missing(&self, gpus: &BTreeMap<u32, Slots<'_>>, in_line: bool) -> bool {
        let fewer = |other: &Slots<'_>| {
            other.sdma_registers == self.sdma_registers && other.engines.len() > self.engines.len()
        };
        let counts: BTreeSet<usize> = self.engines.values().copied().collect();
        counts.len() != 1
            || self.lacks_an_engine()
            || self.sdma.iter().any(|slot| !self.is_whole(slot, in_line))
            || self.last && gpus.values().any(fewer)
    }

    fn reason(&self, gap: Gap) -> Option<String> {
        let gpu_id = self.gpu_id;
        // Behind the slots of compute queues the driver prints those of SDMA engines.
        if self.last && self.sdma.is_empty() {
            return Some(format!(
                "hqds ends before the SDMA slots of GPU {gpu_id} ({gpu_id:x}): slots of compute queues may be missing, too"
            ));
        }
        let unlike = self.sdma.iter().any(|slot| SdmaSlot::of(&slot.registers).is_none());
        let which = match (gap.compute, gap.sdma) {
            (true, true) => "slots of compute and SDMA queues",
            (true, false) => "slots of compute queues",
            (false, true) if unlike => {
                return Some(format!(
                    "hqds has SDMA slots of GPU {gpu_id} ({gpu_id:x}) whose registers are not known"
                ));
            }
            (false, true) => "slots of SDMA queues",
            (false, false) => return None,
        };
        Some(format!("hqds is not whole: {which} of GPU {gpu_id} ({gpu_id:x}) are missing"))
    }
}

fn split<K: Ord, V: Ord>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, BTreeSet<V>> {
    let mut split: BTreeMap<K, BTreeSet<V>> = BTreeMap::new();
    for (key, value) in pairs {
        split.entry(key).or_default().insert(value);
    }
    split
}

fn differ<K: Ord, V: Ord>(sets: &BTreeMap<K, BTreeSet<V>>) -> bool {
    sets.values().collect::<BTreeSet<_>>().len() > 1
}
