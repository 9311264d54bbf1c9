use super::*;
use crate::model::event::{Origin, ProcessId, ProcessSeen};
use crate::state::samples::{create, destroy, event, facts, seen, state};

const PID: u32 = 700;
const S: u64 = 1_000_000_000;

fn list(source: Source, at_ns: u64, queues: &[QueueFacts]) -> Inventory {
    let process = Listed { tgid: PID, queues: queues.to_vec(), ..Listed::default() };
    Inventory { processes: vec![process].into(), ..Inventory::empty(source, at_ns.into()) }
}

fn standing(queue_id: u32) -> QueueFacts {
    QueueFacts { origin: Origin::Standing, ..facts(queue_id) }
}

/// Process 1 with queue 3, quiet since 1 s.
fn traced() -> State {
    let mut state = state();
    state.apply(&event(S, 1, PID, seen(false)));
    state.apply(&event(S, 1, PID, create(3)));
    state
}

fn finding(queue_id: u32, difference: Difference) -> FoundDifference {
    FoundDifference { key: Some(ProcessId(1).into()), tgid: PID, context_id: None, queue_id, difference }
}

#[test]
fn a_list_has_queues_by_place() {
    let mut found = list(Source::Sysfs, 9 * S, &[standing(3)]);
    let queues = vec![standing(4)];
    found
        .processes
        .update(|all| all.push(Listed { tgid: PID, context_id: Some(0), queues, ..Listed::default() }));
    assert_eq!(found.settled_ns(), 8 * S);
    let places = [(PID, None), (PID, Some(0)), (PID, Some(1)), (PID + 1, None)];
    assert_eq!(places.map(|place| found.has(place)), [true, true, false, false]);
    let id = |place, queue_id| found.queue(place, queue_id).map(|(process, _)| process.context_id);
    assert_eq!((id((PID, None), 3), id((PID, Some(0)), 4)), (Some(None), Some(Some(0))));
    assert_eq!((id((PID, None), 4), id((PID + 1, None), 3)), (None, None));
}

fn only(state: &State, list: &Inventory) -> Vec<FoundDifference> {
    state.compare(list).into_iter().collect()
}

#[test]
fn equal_lists_differ_in_nothing() {
    let state = traced();
    assert_eq!(only(&state, &list(Source::Sysfs, 9 * S, &[standing(3)])), []);
    let of_sysfs = QueueFacts { ring_address: None, queue_type: None, evicted: None, ..standing(3) };
    assert_eq!(
        only(&state, &list(Source::Sysfs, 9 * S, &[of_sysfs])),
        [],
        "an unknown value is no difference"
    );
}

#[test]
fn a_queue_whose_end_was_lost_is_a_ghost_and_ends() {
    let mut state = traced();
    let empty = list(Source::Sysfs, 9 * S, &[]);
    assert_eq!(only(&state, &empty), [finding(3, Difference::Ghost)]);
    let (resynced, change) = state.resync(finding(3, Difference::Ghost), &[&empty], 9 * S).expect("an event");
    assert_eq!((resynced.tgid, resynced.process), (Some(PID), Some(ProcessId(1))));
    assert_eq!(change.ended[0].end.map(|end| end.cause), Some(Cause::NotSeen));
    assert_eq!(state.snapshot().queues().count(), 0);
    assert_eq!(state.totals().differences[&Difference::Ghost], 1);
}

#[test]
fn a_queue_whose_birth_was_lost_is_taken_in_and_marked() {
    let mut state = traced();
    let found = list(Source::Kernel, 9 * S, &[standing(3), standing(4)]);
    assert_eq!(only(&state, &found), [finding(4, Difference::Missing)]);
    let (resynced, _) = state.resync(finding(4, Difference::Missing), &[&found], 9 * S).expect("an event");
    assert_eq!(resynced.body, Body::QueueCreate(standing(4)));
    let row = state.process_of_tgid(PID).expect("row");
    assert_eq!((row.queues.len(), row.queues[&4].resynced_ns), (2, Some(9 * S)));
    assert_eq!(row.queues[&4].facts.ring_address, facts(4).ring_address);
    state.apply(&event(10 * S, 1, PID, destroy(4)));
    assert!(state.totals().anomalies.is_empty(), "{:?}", state.totals().anomalies);
}

#[test]
fn a_process_that_was_lost_with_all_its_records_comes_back() {
    let mut state = state();
    let found = list(Source::Sysfs, 9 * S, &[standing(3)]);
    let missing = FoundDifference { key: None, ..finding(3, Difference::Missing) };
    assert_eq!(only(&state, &found), [missing]);
    state.resync(missing, &[&found], 9 * S).expect("an event");
    assert_eq!(state.process_of_tgid(PID).map(|row| row.queues.len()), Some(1));
}

#[test]
fn other_properties_are_taken_over() {
    let mut state = traced();
    let now = QueueFacts { percent: Some(0), evicted: Some(true), active: Some(false), ..standing(3) };
    let found = list(Source::Kernel, 9 * S, std::slice::from_ref(&now));
    assert_eq!(only(&state, &found), [finding(3, Difference::Properties)]);
    state.resync(finding(3, Difference::Properties), &[&found], 9 * S).expect("an event");
    let row = state.process_of_tgid(PID).expect("row");
    assert_eq!(row.queues[&3].facts, QueueFacts { origin: Origin::Ioctl, ..now });
    assert!(row.queues[&3].evictions.evicted && row.evictions[&58270].evicted && row.evicted.evicted);
    assert_eq!(row.queues[&3].evictions.since_ns, None, "since when is not known");
    assert_eq!(only(&state, &list(Source::Kernel, 20 * S, &[row.queues[&3].facts.clone()])), []);
}

#[test]
fn what_changed_around_the_reading_is_left_alone() {
    let mut state = traced();
    assert_eq!(only(&state, &list(Source::Sysfs, S + S / 2, &[])), [], "born half a second before");
    state.apply(&event(9 * S, 1, PID, destroy(3)));
    assert_eq!(only(&state, &list(Source::Sysfs, 9 * S, &[standing(3)])), [], "it has just ended");
    assert_eq!(only(&state, &list(Source::Sysfs, 20 * S, &[standing(3)])), [finding(3, Difference::Missing)]);
}

#[test]
fn many_queues_that_have_just_ended_are_known() {
    let mut state = traced();
    let ids: Vec<u32> = (10..80).collect();
    for id in &ids {
        state.apply(&event(2 * S, 1, PID, create(*id)));
    }
    for id in &ids {
        state.apply(&event(9 * S, 1, PID, destroy(*id)));
    }
    let listed: Vec<_> = [3].iter().chain(&ids).map(|id| standing(*id)).collect();
    assert_eq!(only(&state, &list(Source::Sysfs, 9 * S + S / 2, &listed)), []);
}

#[test]
fn a_queue_that_is_being_preempted_exists_in_the_kernel_after_its_end() {
    let mut state = traced();
    state.apply(&event(9 * S, 1, PID, destroy(3)));
    assert_eq!(only(&state, &list(Source::Kernel, 18 * S, &[standing(3)])), []);
    assert_eq!(only(&state, &list(Source::Sysfs, 18 * S, &[standing(3)])), [finding(3, Difference::Missing)]);
    assert_eq!(
        only(&state, &list(Source::Kernel, 30 * S, &[standing(3)])),
        [finding(3, Difference::Missing)]
    );
}

#[test]
fn a_context_whose_first_record_was_lost_gets_its_place_from_the_kernel() {
    let mut state = traced();
    // The second context's queue 3; its ProcessSeen was lost.
    state.apply(&event(2 * S, 2, PID, create(3)));
    let of = |id, context_id| Listed {
        id: Some(ProcessId(id)),
        tgid: PID,
        context_id,
        queues: vec![standing(3)],
        ..Listed::default()
    };
    let processes = vec![of(1, None), of(2, Some(0))].into();
    let found = Inventory { processes, ..Inventory::empty(Source::Kernel, (9 * S).into()) };
    let missing = FoundDifference { key: None, context_id: Some(0), ..finding(3, Difference::Missing) };
    assert_eq!(only(&state, &found), [missing]);
    state.resync(missing, &[&found], 9 * S);
    assert_eq!(only(&state, &found), [], "each row has its place");
    assert_eq!(state.snapshot().queues().count(), 2);
    state.apply(&event(10 * S, 2, PID, Body::ProcessRelease));
    assert_eq!(
        state.process_of_tgid(PID).and_then(Process::id),
        Some(ProcessId(1)),
        "the first one is found"
    );
}

#[test]
fn a_dying_process_has_left_the_kernels_table_but_not_sysfs() {
    let mut state = traced();
    state.apply(&event(2 * S, 1, PID, Body::MmRelease));
    assert_eq!(only(&state, &list(Source::Kernel, 9 * S, &[])), []);
    assert_eq!(only(&state, &list(Source::Sysfs, 9 * S, &[])), [finding(3, Difference::Ghost)]);
}

#[test]
fn a_finding_is_not_about_the_next_process_of_its_pid() {
    let mut state = traced();
    let empty = list(Source::Sysfs, 9 * S, &[]);
    let two = list(Source::Sysfs, 9 * S, &[standing(3), standing(4)]);
    let (ghost, missing) = (only(&state, &empty), only(&state, &two));
    assert_eq!(ghost, [finding(3, Difference::Ghost)]);
    state.apply(&event(9 * S, 1, PID, Body::ProcessRelease));
    state.apply(&event(9 * S, 2, PID, seen(false)));
    state.apply(&event(9 * S, 2, PID, create(3)));
    assert_eq!(state.resync(ghost[0], &[&empty], 9 * S), None);
    assert_eq!(state.resync(missing[0], &[&two], 9 * S), None);
    let queues: Vec<u32> = state.snapshot().queues().map(|(_, queue)| queue.queue_id).collect();
    assert_eq!((queues, state.totals().differences.len()), (vec![3], 0));
    let later = list(Source::Sysfs, 20 * S, &[]);
    let anew = FoundDifference { key: Some(ProcessId(2).into()), ..ghost[0] };
    assert_eq!(only(&state, &later), [anew], "it has to be found twice, too");
}

#[test]
fn rows_of_one_place_are_distinguished() {
    let mut state = traced();
    // Another context; its ProcessSeen was lost, so that its place is not known.
    state.apply(&event(S, 2, PID, create(3)));
    let empty = list(Source::Kernel, 9 * S, &[]);
    let found = only(&state, &empty);
    assert_eq!(
        found.iter().filter_map(|one| one.key).collect::<Vec<_>>(),
        [1, 2].map(|id| ProcessId(id).into())
    );
    state.resync(found[1], &[&empty], 9 * S).expect("an event");
    let left: Vec<_> = state.snapshot().queues().map(|(row, _)| row.id()).collect();
    assert_eq!(left, [Some(ProcessId(1))]);
}

#[test]
fn what_is_not_there_any_more_is_not_counted() {
    let mut state = traced();
    let empty = list(Source::Sysfs, 9 * S, &[]);
    assert_eq!(state.resync(finding(8, Difference::Ghost), &[&empty], 9 * S), None);
    assert_eq!(state.totals().differences.len(), 0);
}

#[test]
fn a_queue_missing_in_sysfs_is_reported_once() {
    let mut state = traced();
    let empty = list(Source::Sysfs, 9 * S, &[]);
    assert!(state.keep_unlisted(&finding(3, Difference::Unlisted)));
    assert!(!state.keep_unlisted(&finding(4, Difference::Unlisted)), "it has none of this id");
    let other = FoundDifference { key: Some(ProcessId(9).into()), ..finding(3, Difference::Unlisted) };
    assert!(!state.keep_unlisted(&other));
    assert_eq!(state.totals().differences, BTreeMap::from([(Difference::Unlisted, 1)]));
    assert_eq!(only(&state, &empty), []);
    assert_eq!(only(&state, &list(Source::Kernel, 9 * S, &[])), [finding(3, Difference::Ghost)]);
}

#[test]
fn contexts_of_one_pid_are_compared_apart() {
    let mut state = traced();
    let queues = vec![standing(3)];
    let mut found = list(Source::Sysfs, 9 * S, &queues);
    found
        .processes
        .update(|all| all.push(Listed { tgid: PID, context_id: Some(0), queues, ..Listed::default() }));
    let missing = FoundDifference { key: None, context_id: Some(0), ..finding(3, Difference::Missing) };
    assert_eq!(only(&state, &found), [missing]);
    state.resync(missing, &[&found], 9 * S).expect("an event");
    assert_eq!(state.snapshot().queues().count(), 2);
    assert_eq!(only(&state, &found), []);
}

#[test]
fn the_end_of_a_queue_whose_birth_was_lost_is_remembered() {
    let mut state = traced();
    let both = list(Source::Kernel, 9 * S, &[standing(3), standing(5)]);
    assert_eq!(only(&state, &both), [finding(5, Difference::Missing)]);
    // After the list was read, before it is compared again.
    state.apply(&event(9 * S + 1, 1, PID, destroy(5)));
    assert_eq!(only(&state, &both), []);
    assert!(state.resync(finding(5, Difference::Missing), &[&both], 10 * S).is_none());
    assert_eq!((state.snapshot().queues().count(), state.totals().differences.len()), (1, 0));
}

#[test]
fn a_dying_process_is_waited_for_while_its_memory_is_freed() {
    let mut state = traced();
    let listed = list(Source::Sysfs, 20 * S, &[]);
    let settled = |state: &State| listed.settled_ns_of(state.process(ProcessId(1).into()).expect("its row"));
    assert_eq!(settled(&state), listed.settled_ns());
    state.apply(&event(2 * S, 1, PID, Body::Close));
    assert_eq!(settled(&state), listed.settled_ns(), "a file of a first context is not all of it");
    state.apply(&event(2 * S, 1, PID, Body::MmRelease));
    assert_eq!(settled(&state), 5 * S);
}

#[test]
fn a_further_context_that_was_closed_is_dying() {
    let Body::ProcessSeen(sample) = seen(false) else { unreachable!("a sample of this kind") };
    let mut state = state();
    state.apply(&event(S, 1, PID, Body::ProcessSeen(ProcessSeen { context_id: Some(0), ..sample })));
    state.apply(&event(S, 1, PID, create(3)));
    let listed = list(Source::Kernel, 20 * S, &[]);
    let settled = |state: &State| listed.settled_ns_of(state.process(ProcessId(1).into()).expect("its row"));
    assert_eq!((settled(&state), only(&state, &listed).len()), (listed.settled_ns(), 1));
    state.apply(&event(2 * S, 1, PID, Body::Close));
    assert_eq!((settled(&state), only(&state, &listed).len()), (5 * S, 0));
}

/// A list that shows queue 3, with another ring, at the place of the process of [`traced`].
fn another(source: Source, id: Option<u64>, start_boottime_ns: Option<u64>) -> Inventory {
    let id = id.map(ProcessId);
    let queues = vec![QueueFacts { ring_size: Some(4096), ..standing(3) }];
    let process = Listed { id, tgid: PID, start_boottime_ns, queues, ..Listed::default() };
    Inventory { processes: vec![process].into(), ..Inventory::empty(source, (9 * S).into()) }
}

#[test]
fn a_row_is_not_compared_with_another_process_at_its_place() {
    let state = traced();
    let row = state.process(ProcessId(1).into()).expect("its row");
    let own = finding(3, Difference::Properties);
    let missing = FoundDifference { key: None, ..finding(3, Difference::Missing) };
    for (source, id, start, shown, found) in [
        (Source::Kernel, Some(1), Some(S), Shown::Itself, own),
        (Source::Kernel, Some(2), Some(S), Shown::Another, missing),
        (Source::Kernel, None, Some(S), Shown::Itself, own),
        (Source::Kernel, None, Some(2 * S), Shown::Another, missing),
        (Source::Sysfs, None, None, Shown::Itself, own),
        (Source::Sysfs, None, Some(S + S / 100), Shown::Itself, own),
        (Source::Sysfs, None, Some(2 * S), Shown::Another, missing),
    ] {
        let list = another(source, id, start);
        assert_eq!((state.shown(&list, row), only(&state, &list)), (shown, vec![found]), "{list:?}");
    }
}

#[test]
fn properties_of_another_process_are_not_taken_over() {
    let mut state = traced();
    let own = finding(3, Difference::Properties);
    assert_eq!(state.resync(own, &[&another(Source::Sysfs, None, Some(2 * S))], 9 * S), None);
    assert_eq!(state.snapshot().queues().map(|(_, queue)| queue.facts.ring_size).next(), Some(Some(1 << 20)));
    assert!(state.resync(own, &[&another(Source::Sysfs, None, Some(S))], 9 * S).is_some());
}

#[test]
fn the_folder_of_a_dying_process_outlives_its_pid() {
    let mut state = traced();
    state.apply(&event(2 * S, 1, PID, Body::MmRelease));
    let list = another(Source::Sysfs, None, Some(2 * S));
    let row = state.process(ProcessId(1).into()).expect("its row");
    assert_eq!(state.shown(&list, row), Shown::Itself);
}

#[test]
fn what_was_made_last_is_what_sysfs_shows_after_an_exec() {
    let mut state = traced();
    let list = another(Source::Sysfs, None, Some(S));
    let shown = |state: &State, list: &Inventory| {
        [1, 2].map(|id| state.process(ProcessId(id).into()).map(|row| state.shown(list, row)))
    };
    state.apply(&event(2 * S, 2, PID, seen(false)));
    assert_eq!(shown(&state, &list), [Some(Shown::Another), Some(Shown::Itself)]);
    let numbered = another(Source::Kernel, Some(1), Some(S));
    assert_eq!(shown(&state, &numbered), [Some(Shown::Itself), Some(Shown::Another)]);
    let mut contexts = list.clone();
    let further = Listed { context_id: Some(0), queues: vec![], ..list.processes[0].clone() };
    contexts.processes.update(|all| all.push(further));
    assert_eq!(shown(&state, &contexts), [Some(Shown::Itself); 2], "either may be the further context");
    let mut closed = traced();
    closed.apply(&event(2 * S, 2, PID, seen(false)));
    closed.apply(&event(3 * S, 2, PID, Body::Close));
    assert_eq!(shown(&closed, &list), [Some(Shown::Itself); 2], "it may have been one");
    state.apply(&event(3 * S, 1, PID, Body::Close));
    assert_eq!(shown(&state, &list), [Some(Shown::Itself); 2], "it was heard of since");
}

#[test]
fn a_destroy_that_failed_hides_nothing_from_the_lists() {
    let mut state = traced();
    // The birth of queue 4 was lost.
    state.apply(&event(20 * S, 1, PID, destroy(4)));
    let found = list(Source::Kernel, 26 * S, &[standing(3), standing(4)]);
    assert_eq!(only(&state, &found), [], "it may be on its way out");
    state.apply(&event(20 * S, 1, PID, Body::QueueDestroyFailed { queue_id: 4, gpu_id: None, errno: 16 }));
    assert_eq!(only(&state, &found), [finding(4, Difference::Missing)]);
}

#[test]
fn another_type_is_a_difference_if_the_list_distinguishes_types() {
    use QueueType::{Compute, ComputeAql, Sdma};
    let typed = |queue_type| QueueFacts { queue_type: Some(queue_type), ..standing(3) };
    for (source, listed, is) in [
        (Source::Kernel, ComputeAql, None),
        (Source::Kernel, Compute, Some(Compute)),
        (Source::Sysfs, Compute, None),
        (Source::Sysfs, Sdma, Some(Sdma)),
    ] {
        let mut state = state();
        state.apply(&event(S, 1, PID, seen(false)));
        state.apply(&event(S, 1, PID, Body::QueueCreate(typed(ComputeAql))));
        let list = list(source, 9 * S, &[typed(listed)]);
        let found = only(&state, &list);
        assert_eq!(found.len(), usize::from(is.is_some()), "{source:?} {listed:?}");
        found.into_iter().for_each(|one| drop(state.resync(one, &[&list], 9 * S)));
        let snapshot = state.snapshot();
        let now = snapshot.queues().next().and_then(|(_, queue)| queue.facts.queue_type);
        assert_eq!(now, Some(is.unwrap_or(ComputeAql)), "{source:?} {listed:?}");
    }
}
