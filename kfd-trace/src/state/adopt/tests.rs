use super::*;
use crate::model::event::{Origin, ProcessSeen, QueueType};
use crate::state::samples::{create, destroy, event, facts, seen, state};

const PID: u32 = 700;

fn found() -> Listed {
    Listed { tgid: PID, start_boottime_ns: Some(5_000_000_000), ..Listed::default() }
}

fn sysfs_queue(queue_id: u32) -> QueueFacts {
    QueueFacts {
        ring_address: None,
        queue_type: Some(QueueType::Compute),
        origin: Origin::Standing,
        ..facts(queue_id)
    }
}

fn started(ns: u64, standing: bool) -> Body {
    let Body::ProcessSeen(sample) = seen(standing) else { unreachable!("a sample of this kind") };
    Body::ProcessSeen(ProcessSeen { start_boottime_ns: Some(ns), ..sample })
}

#[test]
fn a_probe_that_meets_a_standing_process_takes_over_its_row_and_queues() {
    let mut state = state();
    let key = state.adopt_process(100, &found(), Source::Sysfs);
    state.adopt_queue(key, 100, &sysfs_queue(4), Source::Sysfs);
    // /proc reports ticks: 6 ms off is the same start.
    state.apply(&event(200, 1, PID, started(5_006_000_000, true)));
    let row = state.process(ProcessId(1).into()).expect("numbered");
    assert_eq!(row.queues.len(), 1);
    assert_eq!(row.sources.to_string(), "probe+sysfs");
    assert_eq!(state.snapshot().processes.len(), 1);
    state.apply(&event(300, 1, PID, destroy(4)));
    assert_eq!((state.totals().destroyed(), state.totals().queues_adopted), (1, 1));
    assert!(state.totals().anomalies.is_empty(), "{:?}", state.totals().anomalies);
}

#[test]
fn another_start_time_is_another_process() {
    let mut state = state();
    let key = state.adopt_process(100, &found(), Source::Sysfs);
    state.adopt_queue(key, 100, &sysfs_queue(4), Source::Sysfs);
    let change = state.apply(&event(200, 1, PID, started(9_000_000_000, true)));
    assert_eq!(change.anomalies, [Anomaly::EndNotSeen]);
    assert_eq!(change.ended[0].end.map(|end| end.cause), Some(Cause::NotSeen));
    assert!(state.process(ProcessId(1).into()).is_some_and(|row| row.queues.is_empty()));
}

#[test]
fn a_creation_after_the_adoption_is_an_exec_and_before_it_is_the_same_process() {
    let mut late = state();
    late.adopt_process(100, &found(), Source::Sysfs);
    late.apply(&event(150, 1, PID, started(5_000_000_000, false)));
    assert_eq!(late.snapshot().live().count(), 1);
    assert_eq!(late.totals().processes_ended, 1);

    let mut early = state();
    early.adopt_process(100, &found(), Source::Sysfs);
    early.apply(&event(50, 1, PID, started(5_000_000_000, false)));
    assert_eq!((early.snapshot().processes.len(), early.totals().processes_ended), (1, 0));
}

#[test]
fn a_birth_that_was_still_in_the_ring_buffer_is_the_adopted_queues_own() {
    let mut state = state();
    let key = state.adopt_process(100, &found(), Source::Sysfs);
    state.adopt_queue(key, 100, &sysfs_queue(4), Source::Sysfs);
    state.apply(&event(40, 1, PID, started(5_000_000_000, false)));
    let change = state.apply(&event(50, 1, PID, create(4)));
    assert!(change.anomalies.is_empty() && change.ended.is_empty(), "{change:?}");
    let queue = &state.process(ProcessId(1).into()).expect("row").queues[&4];
    assert_eq!((queue.born_ns, queue.facts.ring_address), (Some(50), facts(4).ring_address));
    assert_eq!(queue.facts.queue_type, Some(QueueType::ComputeAql));
    assert_eq!(state.totals().queues_born_later, 1);
}

#[test]
fn what_ended_since_it_was_read_is_not_brought_back() {
    let mut state = state();
    state.apply(&event(10, 1, PID, started(5_000_000_000, false)));
    state.apply(&event(20, 1, PID, create(4)));
    state.apply(&event(200, 1, PID, destroy(4)));
    let key = state.adopt_process(100, &found(), Source::Sysfs);
    assert_eq!(key, ProcessId(1).into());
    state.adopt_queue(key, 100, &sysfs_queue(4), Source::Sysfs);
    assert_eq!(state.snapshot().queues().count(), 0);
    // Read after that end: a new queue.
    state.adopt_queue(key, 201, &sysfs_queue(4), Source::Sysfs);
    assert_eq!(state.snapshot().queues().count(), 1);

    state.apply(&event(300, 1, PID, Body::ProcessRelease));
    let key = state.adopt_process(250, &found(), Source::Sysfs);
    state.adopt_queue(key, 250, &sysfs_queue(9), Source::Sysfs);
    assert_eq!(state.snapshot().live().count(), 0);
}

#[test]
fn adopting_twice_changes_nothing_but_the_sources() {
    let mut state = state();
    for source in [Source::Sysfs, Source::Kernel] {
        let key = state.adopt_process(100, &found(), source);
        state.adopt_queue(key, 100, &sysfs_queue(4), source);
    }
    let snapshot = state.snapshot();
    let (process, queue) = snapshot.queues().next().expect("the queue");
    assert_eq!(
        (process.sources.to_string(), queue.sources.to_string()),
        ("kernel+sysfs".into(), "kernel+sysfs".into())
    );
    assert_eq!((snapshot.processes.len(), snapshot.totals.queues_adopted), (1, 1));
}

#[test]
fn a_live_row_with_another_start_ends_when_its_pid_is_found_again() {
    let mut state = state();
    state.apply(&event(10, 1, PID, started(1_000_000_000, false)));
    state.apply(&event(20, 1, PID, create(4)));
    let key = state.adopt_process(100, &found(), Source::Sysfs);
    assert_ne!(key, ProcessId(1).into());
    let old = state.process(ProcessId(1).into()).expect("remembered");
    assert_eq!((old.released_ns, old.queues.len()), (Some(100), 0));
    assert_eq!(state.totals().anomalies.get(&Anomaly::EndNotSeen), Some(&1));
}

#[test]
fn a_second_context_of_a_pid_has_a_row_of_its_own() {
    let mut state = state();
    state.apply(&event(10, 1, PID, started(5_000_000_000, true)));
    let second = Listed { id: Some(ProcessId(2)), ..found() };
    assert_eq!(state.adopt_process(100, &second, Source::Kernel), ProcessId(2).into());
    assert_eq!(state.adopt_process(100, &second, Source::Kernel), ProcessId(2).into());
    assert_eq!(state.snapshot().live().count(), 2);
}

#[test]
fn a_birth_while_the_source_was_read_is_the_same_queue() {
    let mut state = state();
    let read = ReadTimes { from_ns: 100, until_ns: 200 };
    let key = state.adopt_process(read, &found(), Source::Sysfs);
    state.adopt_queue(key, read, &sysfs_queue(4), Source::Sysfs);
    state.apply(&event(150, 1, PID, started(5_000_000_000, false)));
    let change = state.apply(&event(160, 1, PID, create(4)));
    assert!(change.anomalies.is_empty(), "{change:?}");
    assert_eq!((state.totals().created(), state.totals().destroyed()), (1, 0));
    state.apply(&event(170, 1, PID, destroy(4)));
    state.adopt_queue(ProcessId(1).into(), read, &sysfs_queue(4), Source::Sysfs);
    assert_eq!(state.snapshot().queues().count(), 0, "it ended since the read began");
}

#[test]
fn a_first_record_of_another_start_ends_the_numbered_row_before_it() {
    for (dying, start, ended) in [
        (false, Some(9_000_000_000), 1),
        (false, Some(5_010_000_000), 0),
        (false, None, 0),
        (true, Some(9_000_000_000), 0),
    ] {
        let mut state = state();
        state.apply(&event(10, 1, PID, started(5_000_000_000, false)));
        state.apply(&event(20, 1, PID, create(4)));
        if dying {
            state.apply(&event(30, 1, PID, Body::MmRelease));
        }
        let Body::ProcessSeen(seen) = started(0, false) else { unreachable!("a sample of this kind") };
        let first = Body::ProcessSeen(ProcessSeen { start_boottime_ns: start, ..seen });
        let change = state.apply(&event(100, 2, PID, first));
        assert_eq!((change.anomalies.len(), change.ended.len()), (ended, ended), "{dying} {start:?}");
        assert!(change.anomalies.iter().all(|one| *one == Anomaly::EndNotSeen));
        assert_eq!(state.snapshot().live().count(), 2 - ended, "{dying} {start:?}");
        assert_eq!(state.process_of_tgid(PID).map(|row| row.key), Some(ProcessId(2).into()));
    }
}
