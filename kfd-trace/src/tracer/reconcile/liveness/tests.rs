use super::*;
use crate::model::event::{Body, ProcessId};
use crate::model::inventory::Listed;
use crate::state::Source;
use crate::state::samples::{create, event, facts, seen, state};

const PID: u32 = 700;
const S: u64 = 1_000_000_000;

/// Process 1, started at 1 s, with queue 3.
fn traced() -> State {
    let mut state = state();
    state.apply(&event(S, 1, PID, seen(false)));
    state.apply(&event(S, 1, PID, create(3)));
    state
}

fn process(id: Option<u64>, start_s: u64) -> Listed {
    let (id, start_boottime_ns) = (id.map(ProcessId), Some(start_s * S));
    Listed { id, tgid: PID, start_boottime_ns, queues: vec![facts(3)], ..Listed::default() }
}

fn list(source: Source, processes: &[Listed]) -> Inventory {
    Inventory { processes: processes.to_vec().into(), ..Inventory::empty(source, (9 * S).into()) }
}

/// The result of a scan: sysfs, and the kernel's table.
type Scan = (Inventory, Walked);

fn look(sysfs: &[Listed], walked: Walked) -> Scan {
    (list(Source::Sysfs, sysfs), walked)
}

fn kernel(processes: &[Listed]) -> Walked {
    Walked::Done(list(Source::Kernel, processes))
}

/// Process 1 is gone, if sysfs is alone and if not; /proc still has it.
fn gone(state: &State, (sysfs, walked): &Scan) -> [bool; 2] {
    let row = state.process(ProcessId(1).into()).expect("its row");
    [true, false].map(|alone| is_gone(state, row, sysfs, walked, alone, || false))
}

#[test]
fn another_process_at_its_place_is_no_sign_of_life() {
    let state = traced();
    let (own, next) = ([process(None, 1)], [process(None, 2)]);
    for (sysfs, walked, is) in [
        (&own, kernel(&[process(Some(1), 1)]), [false; 2]),
        (&next, kernel(&[process(Some(1), 1)]), [false; 2]),
        (&next, kernel(&[process(Some(2), 2)]), [true; 2]),
        // After an exec.
        (&own, kernel(&[process(Some(2), 1)]), [true; 2]),
        (&own, kernel(&[process(Some(2), 1), process(Some(1), 1)]), [false; 2]),
        // Freed by now, in sysfs last.
        (&own, kernel(&[]), [false; 2]),
        (&own, Walked::Impossible, [false; 2]),
        (&next, Walked::NotRequested, [true; 2]),
        (&next, Walked::Broke, [true, false]),
    ] {
        let look = look(sysfs, walked);
        assert_eq!(gone(&state, &look), is, "{look:?}");
    }
}

#[test]
fn after_an_exec_without_numbers_the_process_that_was_made_last_is_there() {
    let mut state = traced();
    let alone = look(&[process(None, 1)], Walked::Impossible);
    assert_eq!(gone(&state, &alone), [false; 2]);
    state.apply(&event(5 * S, 2, PID, seen(false)));
    assert_eq!(gone(&state, &alone), [true, false]);
    let second = state.process(ProcessId(2).into()).expect("its row");
    assert!(!is_gone(&state, second, &alone.0, &alone.1, true, || false));
    state.apply(&event(6 * S, 2, PID, Body::Close));
    assert_eq!(gone(&state, &alone), [false; 2], "the second one may have been a further context");
}

#[test]
fn an_empty_folder_decides_and_one_that_is_not_there_does_not() {
    let state = traced();
    let mut empty = look(&[], Walked::Impossible);
    assert_eq!(gone(&state, &empty), [true, false]);
    empty.0.there = false;
    assert_eq!(gone(&state, &empty), [false; 2]);
    let row = state.process(ProcessId(1).into()).expect("its row");
    assert!(is_gone(&state, row, &empty.0, &empty.1, false, || true), "/proc decides, too");
    assert_eq!(gone(&state, &look(&[], kernel(&[]))), [true; 2]);
}

#[test]
fn sysfs_decides_for_a_further_context_if_its_process_has_a_folder() {
    let mut sysfs = list(Source::Sysfs, &[process(None, 1)]);
    let decides = |sysfs: &Inventory| {
        [(PID + 1, None), (PID, Some(0)), (PID + 1, Some(0))].map(|place| sysfs_decides_for(sysfs, place))
    };
    assert_eq!(decides(&sysfs), [true, true, false]);
    sysfs.processes = Vec::new().into();
    assert_eq!(decides(&sysfs), [true, false, false]);
    sysfs.there = false;
    assert_eq!(decides(&sysfs), [false; 3]);
}
