//! Which slot has a queue, and what the slot shows of it.

use super::*;
use crate::hw::progress::Unit;
use std::time::Duration;

fn one_gpu(slots: &[(&str, Vec<u32>)]) -> String {
    let mut text = "Node 1, gpu_id f7bc:\n".to_owned();
    for (name, registers) in slots {
        slot(&mut text, name, registers);
    }
    text
}

fn one_queue(name: &str, dump: &[u32]) -> String {
    let mut text = format!("Process 510 PASID 510:\n  {name} queue on device f7bc\n");
    rows(&mut text, dump, 0, 32);
    text
}

/// An SDMA queue's row if the one slot has these registers.
fn sdma_row(slots: &[Vec<u32>]) -> QueueRow {
    let slots: Vec<(&str, Vec<u32>)> =
        slots.iter().map(|slot| (" SDMA Engine 1, RLC 3", slot.clone())).collect();
    let report = of(Some(&one_queue("SDMA", &sdma(SDMA_RING))), Some(&one_gpu(&slots)));
    report.queues[0].clone()
}

const ON: State = State::Active { on: 1, of: 1, unread: 0 };

/// Registers of an SDMA slot by generation, and the position of SDMA_RLC_DOORBELL among them.
#[test]
fn an_sdma_slot_is_active_while_its_doorbell_is_enabled() {
    for (generation, count, doorbell) in
        [("9", 42, 18), ("9.4.3 and 10.3", 44, 18), ("11", 43, 17), ("12.0", 49, 15), ("12.1", 50, 15)]
    {
        let mut live = sdma(SDMA_RING);
        live.truncate(count);
        live[doorbell] = 0x5000_0000;
        assert_eq!(sdma_row(&[live.clone()]).state, ON, "{generation}");
        let mut left = live.clone();
        left[doorbell] = 0x4000_0000;
        let row = sdma_row(&[left]);
        assert_eq!((row.state, row.active_slots(), row.unread()), (State::Stale, 0, None), "{generation}");
        live[0] &= !1;
        assert_eq!(sdma_row(&[live]).state, State::Stale, "{generation}: RB_ENABLE is not set");
    }
    let mut newer = sdma(SDMA_RING);
    newer.truncate(51);
    newer[18] = 0x5000_0000;
    let row = sdma_row(&[newer.clone()]);
    assert_eq!(row.state, State::Unknown, "registers of a generation that is not known");
    newer[0] &= !1;
    assert_eq!(sdma_row(&[newer]).active_slots(), 0);
}

#[test]
fn slots_that_earlier_queues_left_hide_no_active_one() {
    let mut left = sdma_slot(SDMA_RING);
    left[18] = 0;
    assert_eq!(sdma_row(&[left.clone(), sdma_slot(SDMA_RING), left.clone()]).state, ON);
    assert_eq!(sdma_row(&[left.clone(), left]).state, State::Stale);
    assert_eq!(sdma_row(&[sdma_slot(SDMA_RING), sdma_slot(SDMA_RING)]).state, State::Unknown, "one of two");
}

/// Addresses of rings are those of a process: two may have the same one.
#[test]
fn sdma_queues_with_one_ring_are_told_apart_by_their_doorbells() {
    let mut text = String::new();
    for (pid, doorbell) in [(510, 0x4800), (511, 0x4808)] {
        let mut mqd = sdma(SDMA_RING);
        mqd[22] = doorbell;
        writeln!(text, "Process {pid} PASID {pid}:\n  SDMA queue on device f7bc").unwrap();
        rows(&mut text, &mqd, 0, 32);
    }
    let mut second = sdma_slot(SDMA_RING);
    let states = |slot: &[u32]| {
        let report = of(Some(&text), Some(&one_gpu(&[(" SDMA Engine 1, RLC 3", slot.to_vec())])));
        report.queues.iter().map(|queue| queue.state).collect::<Vec<_>>()
    };
    assert_eq!(states(&second), [State::Unknown; 2], "the slot has no doorbell");
    second[22] = 0x4808;
    assert_eq!(states(&second), [State::Unknown, ON]);
}

/// The address of an MQD is used again: slots that dead processes left name it, with other rings.
#[test]
fn a_slot_has_a_queue_only_where_its_ring_agrees() {
    let text = one_queue("Compute", &mqd(&registers(BASE, true, 8, RING)));
    let row = |slots: &[(&str, Vec<u32>)]| of(Some(&text), Some(&one_gpu(slots))).queues[0].clone();
    let left = |ring| registers(BASE, false, 8, ring);
    let others =
        [("Inst 0,  CP Pipe 0, Queue 2", left(0x1000)), ("Inst 0,  CP Pipe 1, Queue 2", left(0x2000))];
    let unmapped = row(&others);
    assert_eq!((unmapped.state, unmapped.slots.len()), (State::NotMapped, 0));
    let own = [others[0].clone(), ("Inst 0,  CP Pipe 1, Queue 2", left(RING))];
    assert_eq!(row(&own).state, State::Stale);
    // Another queue got the MQD's memory between the two readings: its slot is a row of its own.
    let active = [("Inst 0,  CP Pipe 0, Queue 2", registers(BASE, true, 8, 0x1000))];
    let report = of(Some(&text), Some(&one_gpu(&active)));
    let states: Vec<_> =
        report.queues.iter().map(|queue| (queue.pid, queue.ring, queue.active_slots())).collect();
    assert_eq!(states, [(Some(510), Some(RING), 0), (None, Some(0x1000), 1)]);
}

fn compute_row(change: impl Fn(&mut Vec<u32>)) -> (QueueRow, HwReport) {
    let mut now = registers(BASE, true, 8, RING);
    change(&mut now);
    let text = one_queue("Compute", &mqd(&registers(BASE, true, 8, RING)));
    let report = of(Some(&text), Some(&one_gpu(&[("Inst 0,  CP Pipe 0, Queue 2", now)])));
    (report.queues[0].clone(), report)
}

#[test]
fn a_backlog_is_counted_in_what_the_ring_holds() {
    let far = |now: &mut Vec<u32>| (now[10], now[54]) = (0x32250, 0x32450);
    let (aql, _) = compute_row(far);
    assert_eq!((aql.unread(), aql.unit), (Some(vec![32]), Some(Unit::Packets)));
    let (pm4, _) = compute_row(|now| {
        far(now);
        now[53] = 0;
    });
    assert_eq!((pm4.unread(), pm4.unit), (Some(vec![512]), Some(Unit::Dwords)));
    // 1 MiB of ring: the read pointer is at the write pointer's place, one round behind or not.
    let round = |empty: u32| {
        compute_row(move |now| {
            (now[10], now[17], now[54]) = (0, 0x1401_4511 | empty, 0x4_0000);
        })
        .0
    };
    assert_eq!((round(0x8000).unread(), round(0).unread()), (Some(vec![0]), Some(vec![0x4_0000 / 16])));
    let sdma = sdma_row(&[sdma_slot(SDMA_RING)]);
    assert_eq!((sdma.unread(), sdma.unit), (Some(vec![64]), Some(Unit::Bytes)));
}

#[test]
fn errors_and_dequeue_requests_of_a_slot_are_shown() {
    let (_, report) = compute_row(|now| (now[24], now[51]) = (1, 2));
    let shown = shown(&report);
    let line = "gpu f7bc, XCC 0 pipe 0 queue 2, ring 0x7f41b5200000 of PID 510: CP_HQD_ERROR 0x2, CP_HQD_DEQUEUE_REQUEST 1\n";
    assert!(shown.contains(line), "{shown}");
    let mut out = Vec::new();
    json::json(&mut out, &report, &Plain).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let slot = &document["queues"][0]["slots"][0];
    assert_eq!((&slot["error"], &slot["dequeue_request"]), (&2.into(), &1.into()));
    assert_eq!(document["faults"][0]["slot"], *slot);
    // What a dead process left in a slot is an error, too.
    let mut dead = registers(BASE, false, 0, 0x1000);
    dead[51] = 0x20;
    let report = of(None, Some(&one_gpu(&[("Inst 0,  CP Pipe 3, Queue 1", dead)])));
    let line = "XCC 0 pipe 3 queue 1, ring 0x1000 in no MQD, not active: CP_HQD_ERROR 0x20\n";
    assert!(super::slots::shown(&report).contains(line));
    assert_eq!(compute_row(|_| ()).1.faults, []);
}

fn shown(report: &HwReport) -> String {
    let mut out = Vec::new();
    text::text(&mut out, report, &Plain).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn two_samples_show_which_queues_moved() {
    let at = |rptr: u32, wptr: u32| compute_row(|now| (now[10], now[54]) = (rptr, wptr)).1;
    let moved = |before: &HwReport, mut after: HwReport| {
        after.compare(before, Duration::from_secs(1));
        after.queues[0].moved
    };
    let first = at(16, 64);
    assert_eq!(moved(&first, at(16, 64)), Some(false));
    assert_eq!(moved(&first, at(16, 128)), Some(false), "more was written, nothing read");
    assert_eq!(moved(&first, at(32, 64)), Some(true));
    assert_eq!(moved(&first, at(16, 64 + 0x4_0000)), Some(true), "once round");
    assert_eq!(moved(&at(0, 0), at(0, 0)), Some(false));
    let off = compute_row(|now| now[2] = 0).1;
    assert_eq!(
        (moved(&first, off.clone()), moved(&off, first.clone())),
        (None, None),
        "it was on no hardware"
    );
    let mut after = at(32, 64);
    after.compare(&first, Duration::from_millis(1500));
    let text = shown(&after);
    assert!(text.contains("UNREAD  MOVED\n") && text.contains("2 packets  yes\n"), "{text}");
    assert!(text.contains("between two readings 1.5 s apart"), "{text}");
}
