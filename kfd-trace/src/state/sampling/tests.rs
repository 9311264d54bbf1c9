use super::*;
use crate::model::event::{Body, Event, ProcessId, QueueFacts, QueueType};
use crate::model::pointers::samples::{memory, sdma};
use crate::model::pointers::{Counts, Unit};
use crate::state::activity::*;
use crate::state::samples::{create, destroy, event, facts, seen, state};

const PID: u32 = 700;
const S: u64 = 1_000_000_000;
const GPU: Option<u32> = Some(58270);

/// Process 1 with queue 3, created at 1 s.
fn traced() -> State {
    let mut state = state();
    state.apply(&event(S, 1, PID, seen(false)));
    state.apply(&event(S, 1, PID, create(3)));
    state
}

fn sample(state: &mut State, queue_id: u32, reading: Reading, at_ns: u64) -> Option<Result<(), Unmeasured>> {
    let targets = state.sought();
    let sought = targets.iter().flat_map(|target| &target.queues).find(|one| one.queue_id == queue_id);
    let since_ns = sought.map_or(S, |sought| sought.since_ns);
    state.sampled(&Sample { key: ProcessId(1).into(), queue_id, since_ns, reading, at_ns })
}

fn counts(submitted: u64, retired: u64) -> Reading {
    Ok(Counts { submitted, retired })
}

fn queue(state: &State) -> &Activity {
    &state.process(ProcessId(1).into()).unwrap().queues[&3].activity
}

/// Submitted and retired packets, and the number of queues with incomplete counts.
fn packets(state: &State) -> (u64, u64, u64) {
    let works = &state.process(ProcessId(1).into()).unwrap().works;
    works.get(&GPU).map_or((0, 0, 0), |work| (work.packets.submitted, work.packets.retired, work.incomplete))
}

/// DESTROY_QUEUE of a queue, with what was read at its pointers.
fn destroyed(queue_id: u32, last: Option<Memory>, at_ns: u64) -> Event {
    Event {
        in_ioctl: Some(0xc008_4b03),
        ..event(at_ns, 1, PID, Body::QueueDestroy { queue_id, gpu_id: GPU, last })
    }
}

#[test]
fn processes_to_sample_have_their_pointers() {
    let mut state = traced();
    state.apply(&event(2 * S, 1, PID, Body::QueueCreate(sdma(4))));
    let pm4 = QueueFacts { queue_type: Some(QueueType::Compute), ..facts(5) };
    state.apply(&event(2 * S, 1, PID, Body::QueueCreate(pm4)));
    let targets = state.sought();
    let [target] = targets.as_slice() else { panic!("{targets:?}") };
    assert_eq!((target.tgid, target.start_boottime_ns), (PID, Some(S)));
    let pointers: Vec<_> = target.queues.iter().map(|one| (one.queue_id, one.pointers.unit)).collect();
    assert_eq!(pointers, [(3, Unit::Packets), (4, Unit::RingBytes)]);
    let row = state.process(ProcessId(1).into()).unwrap();
    assert_eq!(row.queues[&5].activity.problem(), Some(Unmeasured::QueueType));
    state.apply(&event(3 * S, 1, PID, Body::MmRelease));
    assert_eq!(state.sought(), [], "its memory was released");
}

#[test]
fn counts_add_up_over_samples_and_queues() {
    let mut state = traced();
    assert_eq!(sample(&mut state, 3, counts(100, 90), 2 * S), Some(Ok(())));
    let first = *queue(&state).now().unwrap();
    assert_eq!((first.counts.backlog(), first.rate), (10, None));
    sample(&mut state, 3, counts(150, 140), 4 * S);
    assert_eq!(queue(&state).now().unwrap().rate, Some(Rate { submitted: 25.0, retired: 25.0 }));
    assert_eq!(packets(&state), (150, 140, 0));
    state.apply(&destroyed(3, Some(memory(160, 160)), 5 * S));
    assert_eq!(packets(&state), (160, 160, 0), "the last reading counts");
    state.apply(&event(6 * S, 1, PID, create(3)));
    sample(&mut state, 3, counts(7, 7), 7 * S);
    assert_eq!(packets(&state), (167, 167, 0), "another queue of this id begins at 0");
    let bytes = Body::QueueCreate(sdma(4));
    state.apply(&event(7 * S, 1, PID, bytes));
    sample(&mut state, 4, counts(4096, 64), 8 * S);
    let works = &state.process(ProcessId(1).into()).unwrap().works[&GPU];
    assert_eq!(works.ring_bytes, Counts { submitted: 4096, retired: 64 });
    assert_eq!(packets(&state), (167, 167, 0), "bytes are no packets");
}

#[test]
fn a_last_reading_makes_no_rate() {
    let mut state = traced();
    sample(&mut state, 3, counts(100, 100), 2 * S);
    sample(&mut state, 3, counts(110, 110), 3 * S);
    let ended = state.apply(&destroyed(3, Some(memory(111, 111)), 3 * S + 1_000)).ended;
    let last = ended[0].activity.last().expect("it was measured");
    assert_eq!(last.counts, Counts { submitted: 111, retired: 111 });
    assert_eq!(last.rate, Some(Rate { submitted: 10.0, retired: 10.0 }), "not a million");
}

#[test]
fn nothing_is_known_now_while_samples_are_late() {
    let mut state = traced();
    sample(&mut state, 3, counts(100, 90), 2 * S);
    state.samples_are_late();
    let shown = (queue(&state).now(), queue(&state).problem(), packets(&state));
    assert_eq!(shown, (None, Some(Unmeasured::Late), (100, 90, 0)));
    sample(&mut state, 3, counts(101, 90), 50 * S);
    assert!(queue(&state).now().is_some(), "until it ends");
}

#[test]
fn a_failed_reading_leaves_the_counts() {
    let mut state = traced();
    sample(&mut state, 3, counts(100, 90), 2 * S);
    for problem in [Unmeasured::Foreign, Unmeasured::Unreadable, Unmeasured::Denied] {
        assert_eq!(sample(&mut state, 3, Err(problem), 3 * S), Some(Err(problem)));
        assert_eq!((queue(&state).now(), queue(&state).problem()), (None, Some(problem)));
    }
    let back = Some(Err(Unmeasured::WentBack));
    assert_eq!(sample(&mut state, 3, counts(99, 90), 4 * S), back);
    assert_eq!(sample(&mut state, 3, counts(100, 89), 4 * S), back);
    assert_eq!(packets(&state), (100, 90, 0));
    assert_eq!(queue(&state).last().map(|last| last.counts.submitted), Some(100));
    assert_eq!(sample(&mut state, 3, counts(101, 90), 5 * S), Some(Ok(())));
    assert_eq!((queue(&state).problem(), packets(&state)), (None, (101, 90, 0)));
}

#[test]
fn a_reading_of_a_queue_that_went_is_dropped() {
    let mut state = traced();
    state.apply(&destroyed(3, Some(memory(5, 5)), 2 * S));
    assert_eq!(sample(&mut state, 3, counts(9, 9), 3 * S), None);
    state.apply(&event(4 * S, 1, PID, create(3)));
    let late =
        Sample { key: ProcessId(1).into(), queue_id: 3, since_ns: S, reading: counts(9, 9), at_ns: 5 * S };
    assert_eq!(state.sampled(&late), None, "it was of the queue before");
    assert_eq!(packets(&state), (5, 5, 0));
    state.apply(&event(6 * S, 1, PID, Body::MmRelease));
    assert_eq!(state.sampled(&Sample { since_ns: 4 * S, ..late }), None, "its memory was another one's");
}

#[test]
fn a_queue_that_ends_without_a_last_reading_is_incomplete() {
    for (last, incomplete) in [(Some(memory(1, 1)), 0), (Some(Memory::Unreadable), 1), (None, 1)] {
        let mut state = traced();
        let ended = state.apply(&destroyed(3, last, 2 * S)).ended;
        assert_eq!(packets(&state).2, incomplete, "{last:?}");
        assert_eq!(ended[0].activity.complete(), incomplete == 0);
    }
    let mut state = traced();
    sample(&mut state, 3, counts(4, 4), 2 * S);
    state.apply(&event(3 * S, 1, PID, Body::MmRelease));
    let dying = (queue(&state).now(), queue(&state).problem());
    assert_eq!(dying, (None, Some(Unmeasured::Gone)), "a backlog would look as if it waited");
    state.apply(&event(3 * S, 1, PID, destroy(3)));
    assert_eq!(packets(&state), (4, 4, 1), "its process died");
    let pm4 = QueueFacts { queue_type: Some(QueueType::Compute), ..facts(5) };
    state.apply(&event(4 * S, 1, PID, Body::QueueCreate(pm4)));
    state.apply(&destroyed(5, None, 4 * S));
    assert_eq!(packets(&state).2, 1, "nothing of it is ever counted");
}

#[test]
fn a_destroy_that_fails_leaves_a_queue_that_goes_on() {
    for last in [Some(memory(4, 4)), None] {
        let mut state = traced();
        sample(&mut state, 3, counts(3, 3), 2 * S);
        state.apply(&destroyed(3, last, 3 * S));
        let failed = Body::QueueDestroyFailed { queue_id: 3, gpu_id: GPU, errno: 16 };
        state.apply(&event(3 * S, 1, PID, failed));
        sample(&mut state, 3, counts(9, 8), 4 * S);
        assert_eq!(packets(&state), (9, 8, 0));
        assert!(!queue(&state).complete());
        state.apply(&destroyed(3, None, 5 * S));
        assert_eq!(packets(&state), (9, 8, 1));
    }
}

#[test]
fn a_backlog_of_which_nothing_is_retired_stalls() {
    let mut state = traced();
    let at = |state: &mut State, seconds: u64, submitted, retired| {
        sample(state, 3, counts(submitted, retired), seconds * S);
        let now = queue(state).now().unwrap();
        (now.stalled(), now.idle_ns() / S)
    };
    assert_eq!(at(&mut state, 2, 5, 5), (false, 0));
    assert_eq!(at(&mut state, 32, 5, 5), (false, 30), "it has nothing to do");
    assert_eq!(at(&mut state, 33, 7, 5), (false, 0));
    assert_eq!(at(&mut state, 42, 9, 5), (false, 0));
    assert_eq!(at(&mut state, 43, 9, 5), (true, 0), "since its backlog was first seen");
    assert_eq!(at(&mut state, 44, 9, 6), (false, 0));
    assert_eq!(at(&mut state, 53, 9, 6), (false, 0));
    assert_eq!(at(&mut state, 54, 9, 6), (true, 0));
    assert_eq!(at(&mut state, 55, 9, 9), (false, 0));
    assert_eq!(at(&mut state, 60, 9, 9), (false, 5));
}
