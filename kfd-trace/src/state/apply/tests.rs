use std::collections::BTreeMap;

use super::*;
use crate::model::event::{ProcessId, QueueFacts};
use crate::state::samples::{create, destroy, event, facts, seen, state};
use crate::state::{ProcessDetails, QueueEnd};

const PID: u32 = 700;
const DESTROY: u32 = 0xc008_4b03;
const CRIU: u32 = 0xc038_4b22;

fn born() -> State {
    let mut state = state();
    state.apply(&event(10, 1, PID, seen(false)));
    state.apply(&event(20, 1, PID, create(3)));
    state
}

fn cause(event: &Event) -> Option<Cause> {
    let mut state = born();
    if event.mono_ns > 100 {
        state.apply(&super::super::samples::event(90, 1, PID, Body::MmRelease));
    }
    state.apply(event).ended.first().and_then(|queue| queue.end).map(|end| end.cause)
}

#[test]
fn the_cause_of_an_end_follows_from_where_it_happened() {
    let own = event(50, 1, PID, destroy(3));
    let worker = Event { task_tgid: 44, ..own.clone() };
    assert_eq!(cause(&Event { in_ioctl: Some(DESTROY), ..own.clone() }), Some(Cause::Ioctl));
    assert_eq!(cause(&Event { in_ioctl: Some(CRIU), ..own.clone() }), Some(Cause::Other));
    assert_eq!(cause(&worker), Some(Cause::ProcessDeath));
    assert_eq!(cause(&own), Some(Cause::Other));
    // The dying task itself, with a stale call.
    let dying = Event { mono_ns: 150, in_ioctl: Some(DESTROY), ..own };
    assert_eq!(cause(&dying), Some(Cause::ProcessDeath));
}

#[test]
fn a_failed_destroy_brings_the_queue_back_as_it_was() {
    let mut state = born();
    state.apply(&event(50, 1, PID, destroy(3)));
    assert_eq!(state.snapshot().queues().count(), 0);
    state.apply(&event(60, 1, PID, Body::QueueDestroyFailed { queue_id: 3, gpu_id: None, errno: 62 }));
    let snapshot = state.snapshot();
    let (process, queue) = snapshot.queues().next().expect("alive again");
    assert_eq!((queue.born_ns, queue.end), (Some(20), None));
    assert!(state.process(process.key).expect("row").ended_queues.is_empty());
    assert_eq!((snapshot.totals.destroyed(), snapshot.totals.revived()), (1, 1));
}

#[test]
fn of_two_queues_with_one_id_the_later_one_comes_back() {
    let mut state = born();
    state.apply(&event(50, 1, PID, destroy(3)));
    state.apply(&event(60, 1, PID, create(3)));
    state.apply(&event(70, 1, PID, destroy(3)));
    state.apply(&event(80, 1, PID, Body::QueueDestroyFailed { queue_id: 3, gpu_id: None, errno: 62 }));
    assert_eq!(state.snapshot().queues().map(|(_, queue)| queue.born_ns).collect::<Vec<_>>(), [Some(60)]);
}

#[test]
fn an_id_that_is_still_alive_is_replaced_and_counted() {
    let mut state = born();
    let change = state.apply(&event(50, 1, PID, create(3)));
    assert_eq!(change.anomalies, [Anomaly::CreateOfLiveQueue]);
    assert_eq!(change.ended[0].end, Some(QueueEnd { at_ns: 50, cause: Cause::Replaced }));
    let snapshot = state.snapshot();
    assert_eq!(snapshot.queues().map(|(_, queue)| queue.born_ns).collect::<Vec<_>>(), [Some(50)]);
    assert_eq!((snapshot.totals.created(), snapshot.totals.destroyed()), (2, 1));
}

#[test]
fn a_failed_destroy_whose_begin_was_lost_has_taken_the_queue_off_sysfs() {
    let mut state = born();
    let failed = Body::QueueDestroyFailed { queue_id: 3, gpu_id: None, errno: 62 };
    let change = state.apply(&event(60, 1, PID, failed));
    assert_eq!(change.anomalies, [Anomaly::DestroyFailedOfUnknownQueue]);
    let queues: Vec<_> =
        state.snapshot().queues().map(|(_, queue)| (queue.queue_id, queue.unlisted)).collect();
    assert_eq!(queues, [(3, true)]);
}

#[test]
fn what_is_not_known_is_counted_and_invents_nothing() {
    let mut state = born();
    let failed = Body::QueueDestroyFailed { queue_id: 9, gpu_id: None, errno: 62 };
    let no_id = Body::QueueCreate(QueueFacts { queue_id: None, ..facts(0) });
    let open = Body::Open { errno: 0, comm: "x".into() };
    let without_owner = Event { process: None, ..event(54, 1, PID, Body::Close) };
    assert_eq!(state.apply(&event(50, 1, PID, destroy(9))).anomalies, [Anomaly::DestroyOfUnknownQueue]);
    assert_eq!(state.apply(&event(51, 1, PID, failed)).anomalies, [Anomaly::DestroyFailedOfUnknownQueue]);
    assert_eq!(state.apply(&event(52, 1, PID, no_id)).anomalies, [Anomaly::QueueWithoutId]);
    assert_eq!(state.apply(&event(53, 1, 999, open)).anomalies, [Anomaly::OpenOfUnknownProcess]);
    assert_eq!(state.apply(&without_owner).anomalies, [Anomaly::OwnerUnknown]);
    assert_eq!((state.totals().created(), state.totals().destroyed()), (1, 0));
    assert_eq!(state.snapshot().queues().count(), 1);
}

#[test]
fn a_release_sweeps_what_is_left() {
    let mut state = born();
    state.apply(&event(21, 1, PID, create(4)));
    let change = state.apply(&event(50, 1, PID, Body::ProcessRelease));
    assert_eq!(change.anomalies, [Anomaly::LeftAtRelease; 2]);
    let ids: Vec<_> =
        change.ended.iter().map(|queue| (queue.queue_id, queue.end.map(|end| end.cause))).collect();
    assert_eq!(ids, [(3, Some(Cause::LeftAtRelease)), (4, Some(Cause::LeftAtRelease))]);
    assert_eq!(state.snapshot().live().count(), 0);
    assert_eq!(state.process_of_tgid(PID), None, "the PID is free");
    let late = state.apply(&event(60, 1, PID, create(5)));
    assert_eq!(late.anomalies, [Anomaly::RecordAfterRelease]);
    assert_eq!(state.totals().created(), 2);
}

#[test]
fn a_lost_first_sight_leaves_a_marked_row() {
    let mut state = state();
    let change = state.apply(&event(10, 5, PID, create(1)));
    assert_eq!(change.anomalies, [Anomaly::ProcessSeenLost]);
    let row = state.process(ProcessId(5).into()).expect("made from the header");
    assert!(row.seen_lost && row.comm.is_none() && row.tgid == Some(PID) && row.queues.len() == 1);
    assert!(state.apply(&event(11, 5, PID, create(2))).anomalies.is_empty(), "counted once a process");
}

#[test]
fn opens_find_their_process_by_tgid_and_failures_keep_their_errno() {
    let mut state = born();
    let open = |errno| Event { process: None, ..event(30, 0, PID, Body::Open { errno, comm: "x".into() }) };
    state.apply(&open(0));
    state.apply(&open(22));
    state.apply(&open(22));
    state.apply(&event(40, 1, PID, Body::Close));
    let row = state.process_of_tgid(PID).expect("row");
    assert_eq!((row.opens, row.failed_opens, row.closes), (1, 2, 1));
    assert_eq!(state.totals().opens, 3);
    assert_eq!(state.totals().open_errors, BTreeMap::from([(22, 2)]));
}

#[test]
fn reused_pids_and_queue_ids_do_not_mix() {
    let mut state = born();
    state.apply(&event(50, 1, PID, Body::ProcessRelease));
    state.apply(&event(60, 2, PID, seen(false)));
    state.apply(&event(70, 2, PID, create(3)));
    let old = state.process(ProcessId(1).into()).expect("remembered");
    assert!(!old.alive() && old.queues.is_empty() && old.ended_queues.len() == 1);
    assert_eq!(state.process_of_tgid(PID).map(|row| row.key), Some(ProcessId(2).into()));
    assert_eq!(state.snapshot().queues().count(), 1);
}

#[test]
fn ended_processes_are_forgotten_by_age_and_by_number() {
    let mut state = state();
    for id in 1..=3 {
        state.apply(&event(id * 10, id, PID, seen(false)));
        state.apply(&event(id * 10 + 5, id, PID, Body::ProcessRelease));
    }
    // Two are kept; the first was dropped when the third ended.
    assert_eq!(state.expire(100), [ProcessId(1)]);
    assert!(state.expire(1_024).is_empty());
    assert_eq!(state.expire(1_025), [ProcessId(2)]);
    assert_eq!(state.expire(1_035), [ProcessId(3)]);
    assert_eq!(state.totals().processes_ended, 3);
}

#[test]
fn a_process_whose_end_was_missed_ends_with_its_queues() {
    let mut state = born();
    let (_, change) = state.gone(ProcessId(1).into(), 80);
    assert_eq!(change.anomalies, [Anomaly::EndNotSeen]);
    assert_eq!(change.ended[0].end, Some(QueueEnd { at_ns: 80, cause: Cause::NotSeen }));
    assert_eq!(state.gone(ProcessId(1).into(), 90).1.anomalies, []);
}

#[test]
fn above_the_limit_the_one_silent_for_longest_goes() {
    let mut state = state();
    for id in 1..=8 {
        state.apply(&event(id, id, 100 + u32::try_from(id).expect("small"), seen(false)));
    }
    state.apply(&event(9, 1, 101, Body::Close));
    let change = state.apply(&event(10, 9, 109, seen(false)));
    assert_eq!(change.anomalies, [Anomaly::ProcessesFull]);
    assert_eq!(state.expire(10), [ProcessId(2)]);
    assert_eq!(state.snapshot().processes.len(), 8);
}

#[test]
fn details_are_kept_and_a_snapshot_is_ordered() {
    let mut state = state();
    state.apply(&event(10, 2, 900, seen(true)));
    state.apply(&event(11, 1, 800, seen(false)));
    let details = ProcessDetails { cmdline: Some("python train.py".into()), ..ProcessDetails::default() };
    state.enrich(ProcessId(2).into(), details.clone());
    let snapshot = state.snapshot();
    assert_eq!(snapshot.processes.iter().map(|row| row.tgid).collect::<Vec<_>>(), [Some(800), Some(900)]);
    assert_eq!(snapshot.processes[1].details, details);
    assert_eq!((snapshot.processes[1].standing, snapshot.processes[1].created_ns), (true, None));
    assert_eq!(snapshot.processes[0].created_ns, Some(11));
}
