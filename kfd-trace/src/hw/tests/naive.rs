//! The joins against their definitions, which look at each slot for each queue: what a map answers is the same, on dumps
//! with many equal rings, MQDs, doorbells and GPUs.

use super::*;
use crate::hw::hqds::Hqd;
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

/// GPU, number of the MQD, of the ring and of the doorbell, whether the slot is active, and its error.
type Made = (u32, u8, u8, u8, bool, bool);

fn made() -> impl Strategy<Value = Made> {
    (1..4_u32, 0..4_u8, 0..4_u8, 0..3_u8, any::<bool>(), any::<bool>())
}

fn of_compute((_, mqd, ring, _, active, error): Made) -> Vec<u32> {
    let mut all = registers(0x1000 * u64::from(mqd), active, 8, 0x10_0000 * u64::from(ring));
    all[51] = u32::from(error);
    all
}

fn of_sdma((_, _, ring, doorbell, active, _): Made) -> Vec<u32> {
    let mut all = sdma(0x10_0000 * u64::from(ring));
    (all[18], all[22]) = (u32::from(active) << 28, u32::from(doorbell) << 2);
    all
}

fn mqd_file(compute: &[Made], sdma: &[Made]) -> MqdFile {
    let queue = |kind: MqdKind, made: &Made, dump| MqdQueue {
        pid: Some(u32::from(made.1)),
        gpu_id: made.0,
        kind,
        dumps: vec![dump],
        foreign: 0,
        damaged: false,
    };
    let compute = compute.iter().map(|made| queue(MqdKind::Compute, made, mqd(&of_compute(*made))));
    let sdma = sdma.iter().map(|made| queue(MqdKind::Sdma, made, of_sdma(*made)));
    MqdFile { queues: compute.chain(sdma).collect(), ..MqdFile::default() }
}

/// Each slot has a place of its own, by which it is recognized.
fn hqd_file(compute: &[Made], sdma: &[Made]) -> HqdFile {
    let compute = (0..).zip(compute).map(|(queue, made)| Hqd {
        gpu_id: made.0,
        inst: queue % 2,
        place: Place::Cp { pipe: 0, queue },
        registers: of_compute(*made),
    });
    let sdma = (0..).zip(sdma).map(|(rlc, made)| Hqd {
        gpu_id: made.0,
        inst: 0,
        place: Place::Sdma { engine: 0, rlc },
        registers: of_sdma(*made)[..44].to_vec(),
    });
    let gpus = vec![(1, false), (2, false), (1, false)];
    HqdFile { gpus, slots: compute.chain(sdma).collect(), ..HqdFile::default() }
}

/// The slot of a compute queue: one that is active, or else the first that has its MQD and ring.
fn compute_slot(queue: Made, slots: &[Made]) -> Option<usize> {
    let has = |slot: &Made| slot.1 != 0 && (slot.0, slot.1, slot.2) == (queue.0, queue.1, queue.2);
    let active = slots.iter().position(|slot| has(slot) && slot.4);
    active.or_else(|| slots.iter().position(has))
}

/// The slot of an SDMA queue; `Err`: several slots or queues have that ring.
fn sdma_place(queue: Made, queues: &[Made], slots: &[Made]) -> Result<Option<usize>, ()> {
    let has = |one: &&Made| (one.0, one.2) == (queue.0, queue.2);
    // A slot without a ring is free.
    let all: Vec<usize> = (0..slots.len()).filter(|at| slots[*at].2 != 0 && has(&&slots[*at])).collect();
    let by_doorbell: Vec<usize> =
        all.iter().copied().filter(|at| queue.3 != 0 && slots[*at].3 == queue.3).collect();
    let active: Vec<usize> = all.iter().copied().filter(|at| slots[*at].4).collect();
    match (&by_doorbell[..], &active[..]) {
        _ if all.is_empty() => Ok(None),
        ([one], _) => Ok(Some(*one)),
        _ if queues.iter().filter(has).count() > 1 => Err(()),
        (_, []) => Ok(all.first().copied()),
        (_, [one]) => Ok(Some(*one)),
        _ => Err(()),
    }
}

proptest! {
    #[test]
    fn queues_slots_and_totals_are_those_of_the_definitions(
        (compute, sdma) in (vec(made(), 0..24), vec(made(), 0..12)),
        (compute_slots, sdma_slots) in (vec(made(), 0..24), vec(made(), 0..12)),
    ) {
        let (mqds, hqds) = (mqd_file(&compute, &sdma), hqd_file(&compute_slots, &sdma_slots));
        let report = report(Some(&mqds), Some(&hqds), |_| None);
        let (of_compute, others) = report.queues.split_at(compute.len());
        for (queue, row) in compute.iter().zip(of_compute) {
            let expected = compute_slot(*queue, &compute_slots).map(|at| hqds.slots[at].place);
            let unlike = |slot: &&Slot| Some(slot.place) != expected;
            prop_assert_eq!(expected.is_some(), row.slots.first().is_some_and(|slot| !unlike(&slot)));
            prop_assert!(row.slots.iter().filter(unlike).all(|slot| slot.active), "found by the ring");
        }
        for (queue, row) in sdma.iter().zip(others) {
            let found: Vec<Place> = row.slots.iter().map(|slot| slot.place).collect();
            match sdma_place(*queue, &sdma, &sdma_slots) {
                Ok(expected) => {
                    let expected = expected.map(|at| hqds.slots[compute_slots.len() + at].place);
                    prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
                }
                Err(()) => prop_assert_eq!((found, row.state), (vec![], State::Unknown)),
            }
        }
        // Each active slot is in a row, unless it is not known which queue of its ring it has.
        for slot in hqds.slots.iter().zip(compute_slots.iter().chain(&sdma_slots)) {
            let (slot, made) = slot;
            let rows = report.queues.iter().filter(|row| {
                row.gpu_id == slot.gpu_id && row.slots.iter().any(|one| one.place == slot.place)
            });
            let is_sdma = matches!(slot.place, Place::Sdma { .. });
            let unclear = is_sdma
                && sdma.iter().any(|queue| {
                    (queue.0, queue.2) == (made.0, made.2) && sdma_place(*queue, &sdma, &sdma_slots).is_err()
                });
            let active = made.4 && (!is_sdma || made.2 != 0);
            prop_assert!(!active || unclear || rows.count() > 0, "{:?}", slot);
        }
        for fault in &report.faults {
            let owner = report
                .queues
                .iter()
                .find(|queue| queue.gpu_id == fault.gpu_id && queue.slots.contains(&fault.slot));
            prop_assert_eq!(fault.pid, owner.and_then(|queue| queue.pid));
        }
        prop_assert_eq!(report.faults.len(), compute_slots.iter().filter(|slot| slot.5).count());
        for gpu in &report.gpus {
            let rows = |kind| {
                let of_gpu = report.queues.iter().filter(move |row| row.gpu_id == gpu.gpu_id);
                of_gpu.filter(move |row| row.kind == Some(kind))
            };
            prop_assert_eq!(gpu.compute_queues, rows(MqdKind::Compute).count());
            prop_assert_eq!(gpu.sdma_queues, rows(MqdKind::Sdma).count());
            let xccs: std::collections::BTreeSet<u32> = (0..).zip(&compute_slots)
                .filter(|(_, slot)| slot.0 == gpu.gpu_id).map(|(at, _): (u32, _)| at % 2).collect();
            prop_assert_eq!(gpu.xccs.unwrap_or(0), xccs.len());
            let active = rows(MqdKind::Compute).flat_map(|row| &row.slots).filter(|slot| slot.active).count();
            prop_assert_eq!(gpu.active_hqds, (!xccs.is_empty()).then_some(active));
            let mut of_gpu = sdma_slots.iter().filter(|slot| slot.0 == gpu.gpu_id);
            let active = of_gpu.clone().filter(|slot| slot.2 != 0 && slot.4).count();
            prop_assert_eq!(gpu.active_sdma, of_gpu.next().map(|_| active));
        }
    }

    #[test]
    fn a_queue_is_compared_with_the_only_one_that_is_like_it(
        (before, after) in (vec(made(), 0..24), vec(made(), 0..24)),
    ) {
        let of = |made: &[Made]| report(None, Some(&hqd_file(made, made)), |_| None);
        let (before, mut after) = (of(&before), of(&after));
        after.compare(&before, Duration::from_secs(1));
        for row in &after.queues {
            let alike = |other: &&QueueRow| {
                (other.gpu_id, other.kind, other.ring, &other.mqds) == (row.gpu_id, row.kind, row.ring, &row.mqds)
            };
            // What was read is the same in all of them.
            let known = before.queues.iter().filter(alike).count() == 1
                && before.queues.iter().find(alike).is_some_and(|other| other.slots.len() == row.slots.len());
            prop_assert_eq!(row.moved, known.then_some(false));
        }
    }
}
