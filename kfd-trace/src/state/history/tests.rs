use super::*;
use crate::model::event::{ProcessSeen, QueueFacts};
use crate::model::incident::{Eviction, MqdOp, Trigger, VmFault};
use crate::model::inventory::Listed;
use crate::state::samples::{create, destroy, event, facts, seen};
use crate::state::{Cause, ProcessDetails, Source, StateLimits};

const GPU: u32 = 58270;

/// CLOCK_MONOTONIC 0, in nanoseconds since the Unix epoch.
const BOOT: i64 = 1_790_000_000_000_000_000;

/// A state and its history.
struct World {
    state: State,
    history: History,
}

impl World {
    fn new() -> Self {
        World { state: State::new(StateLimits::default()), history: History::default() }
    }

    fn bounded(entries: usize, bytes: usize) -> Self {
        World { history: History::bounded(|_| ClassLimits { entries, bytes }), ..Self::new() }
    }

    fn take(&mut self, event: &Event) {
        let change = self.state.apply(event);
        self.history.record(event, &change, &self.state, BOOT);
    }

    fn all(&self) -> Vec<Arc<Entry>> {
        self.history.find(&Filter::newest(usize::MAX)).entries
    }

    /// Name, PID and time of each entry.
    fn reported(&self) -> Vec<(&'static str, Option<u32>, u64)> {
        self.all().iter().map(|entry| (entry.name(), entry.pid(), entry.mono_ns)).collect()
    }
}

fn evict(trigger: Option<Trigger>) -> Body {
    let eviction = Eviction { gpu_id: Some(GPU), trigger, errno: 0, latency_ns: 5 };
    if trigger.is_some() { Body::Evict(eviction) } else { Body::Restore(eviction) }
}

fn of_gpu(at: u64, body: Body) -> Event {
    Event { process: None, tgid: None, ..event(at, 0, 0, body) }
}

#[test]
fn what_changes_who_holds_what_is_kept_and_nothing_else() {
    let mut world = World::new();
    let bodies = [
        seen(false),
        Body::Open { errno: 0, comm: "sh".into() },
        create(3),
        Body::MqdWrite { queue_id: 3, gpu_id: Some(GPU), op: MqdOp::Update },
        evict(Some(Trigger::Ttm)),
        evict(None),
        Body::VmFault(VmFault { gpu_id: Some(GPU), access: None }),
        destroy(3),
        Body::QueueDestroyFailed { queue_id: 3, gpu_id: Some(GPU), errno: 62 },
        destroy(3),
        Body::Close,
        Body::MmRelease,
        Body::ProcessRelease,
    ];
    for (at, body) in (10..).zip(bodies) {
        world.take(&event(at, 1, 700, body));
    }
    let names: Vec<_> = world.reported().into_iter().map(|(name, ..)| name).collect();
    let expected = [
        "process_seen",
        "queue_create",
        "evict",
        "restore",
        "vm_fault",
        "queue_destroy",
        "queue_destroy_failed",
        "queue_destroy",
        "process_release",
    ];
    assert_eq!(names, expected);
}

#[test]
fn an_event_comes_back_as_it_went_in_but_for_arguments() {
    let mut world = World::new();
    let created = Event { cpu: 0, ..event(20, 1, 700, create(3)) };
    let seen_event = event(10, 1, 700, seen(false));
    let fault = event(30, 1, 700, Body::VmFault(VmFault { gpu_id: None, access: None }));
    let hang = of_gpu(40, Body::HwsHang { gpu_id: Some(GPU) });
    for event in [&seen_event, &created, &fault, &hang] {
        world.take(event);
    }
    let back: Vec<_> = world.all().iter().map(|entry| entry.event().expect("an event")).collect();
    let Body::ProcessSeen(seen) = seen_event.body.clone() else { panic!("it was made so") };
    let without_texts = Body::ProcessSeen(ProcessSeen { comm: None, cgroup_leaf: None, ..seen });
    assert_eq!(back[0].0, Event { body: without_texts, ..seen_event });
    assert_eq!((&back[1].0, &back[2].0, &back[3].0), (&created, &fault, &hang));
    assert_eq!(back[3].1.hit, [700]);
    let owner = world.all()[0].owner.clone().expect("the process");
    let row = owner.row();
    assert_eq!((row.comm.as_deref(), row.details.cgroup.as_deref()), (Some("train"), Some("job.scope")));
    assert_eq!((row.id(), row.tgid), (Some(ProcessId(1)), Some(700)));
}

#[test]
fn a_storm_of_evictions_pushes_out_no_queue_and_no_eviction_of_others() {
    let mut world = World::bounded(64, 1 << 20);
    for process in [1, 2] {
        world.take(&event(1, process, 700 + u32::try_from(process).unwrap(), seen(false)));
        world.take(&event(2, process, 700, create(3)));
    }
    world.take(&event(3, 2, 702, evict(Some(Trigger::Ttm))));
    for at in 10..1_000 {
        world.take(&event(at, 1, 701, evict((at % 2 == 0).then_some(Trigger::Userptr))));
    }
    let kept = world.history.kept(Class::Evictions);
    assert_eq!((kept.entries, kept.dropped), (8 + 1, 990 - 8), "its share, and that of the other one");
    assert_eq!(kept.dropped_until_ns, Some(BOOT + 991), "the newest are kept");
    assert_eq!(world.history.kept(Class::Queues).entries, 2);
    let reported = world.reported();
    assert!(
        reported.contains(&("evict", Some(702), 3)) && reported.contains(&("restore", Some(701), 999)),
        "{reported:?}"
    );
}

#[test]
fn a_class_is_bounded_in_number() {
    let mut world = World::bounded(16, 1 << 20);
    for process in 1..=100 {
        world.take(&event(process, process, u32::try_from(process).unwrap(), seen(false)));
    }
    let kept = world.history.kept(Class::Processes);
    assert_eq!((kept.entries, kept.dropped, kept.dropped_until_ns), (16, 84, Some(BOOT + 84)));
    assert_eq!(world.reported().first().map(|reported| reported.2), Some(85));
}

#[test]
fn a_class_is_bounded_in_bytes_whatever_the_names() {
    let mut world = World::bounded(1_000, 50_000);
    for process in 1..=200 {
        let Body::ProcessSeen(plain) = seen(false) else { panic!("it was made so") };
        let long = ProcessSeen { cgroup_leaf: Some("x".repeat(4_096)), ..plain };
        let tgid = u32::try_from(process).unwrap();
        world.take(&event(process, process, tgid, Body::ProcessSeen(long)));
        for queue_id in 0..3 {
            world.take(&event(process, process, tgid, create(queue_id)));
        }
    }
    for class in [Class::Processes, Class::Queues] {
        let kept = world.history.kept(class);
        assert!(kept.bytes <= 50_000 && kept.entries >= 10, "{kept:?}");
    }
    let last = world.reported().last().copied();
    assert_eq!(last, Some(("queue_create", Some(200), 200)), "the newest is kept");
}

#[test]
fn an_owner_is_as_its_row_was_when_the_entry_was_made() {
    let mut world = World::new();
    world.take(&event(10, 1, 700, seen(false)));
    world.take(&event(20, 1, 700, create(3)));
    let details = ProcessDetails { cgroup: Some("/job".to_owned()), ..ProcessDetails::default() };
    world.state.enrich(ProcessId(1).into(), details);
    world.take(&event(30, 1, 700, create(4)));
    world.take(&event(31, 1, 700, create(5)));
    world.take(&event(35, 1, 700, Body::ProcessRelease));
    // A list that was read before shows that it is a secondary context, which its first record did not.
    let listed = Listed { tgid: 700, id: Some(ProcessId(1)), context_id: Some(2), ..Listed::default() };
    world.state.adopt_process(40, &listed, Source::Kernel);
    world.take(&event(50, 1, 700, destroy(6)));
    let owner = |at| -> Arc<Owner> {
        let entry = world.all().into_iter().find(|entry| entry.mono_ns == at).expect("an entry");
        entry.owner.clone().expect("an owner")
    };
    let known = [20, 30, 50].map(owner).map(|owner| (owner.details.cgroup.clone(), owner.context_id));
    let [leaf, path] = ["job.scope", "/job"].map(|cgroup| Some(cgroup.to_owned()));
    assert_eq!(known, [(leaf, None), (path.clone(), None), (path, Some(2))]);
    assert!(Arc::ptr_eq(&owner(30), &owner(31)), "what did not change is shared");
}

#[test]
fn filters_choose() {
    let mut world = World::new();
    for (at, process, tgid) in [(10, 1, 701), (20, 2, 702)] {
        world.take(&event(at, process, tgid, seen(false)));
        world.take(&event(at + 1, process, tgid, create(3)));
    }
    let elsewhere = QueueFacts { gpu_id: Some(9), ..facts(4) };
    world.take(&event(30, 2, 702, Body::QueueCreate(elsewhere)));
    world.take(&of_gpu(40, Body::HwsHang { gpu_id: Some(GPU) }));
    world.history.driver(true, 2, 50, BOOT);
    let times = |filter: Filter| -> (Vec<u64>, usize) {
        let found = world.history.find(&filter);
        (found.entries.iter().map(|entry| entry.mono_ns).collect(), found.matched)
    };
    let all = Filter::newest(100);
    assert_eq!(times(all.clone()), (vec![10, 11, 20, 21, 30, 40, 50], 7));
    assert_eq!(times(Filter::newest(2)), (vec![40, 50], 7), "the newest, oldest first");
    let bounds = (Some(BOOT + 11), Some(BOOT + 21));
    let within = Filter { since_ns: bounds.0, until_ns: bounds.1, ..all.clone() };
    assert_eq!(times(within), (vec![11, 20, 21], 3), "both ends are in");
    assert_eq!(times(Filter { pid: Some(701), ..all.clone() }), (vec![10, 11, 40], 3), "a hang hits it");
    assert_eq!(times(Filter { gpu_id: Some(9), ..all.clone() }), (vec![30], 1));
    let events = BTreeSet::from(["hws_hang", "driver_loaded"]);
    assert_eq!(times(Filter { events, ..all }), (vec![40, 50], 2));
}

#[test]
fn queues_that_stood_at_a_moment() {
    let mut world = World::new();
    world.take(&event(10, 1, 700, seen(false)));
    world.take(&event(20, 1, 700, create(3)));
    world.take(&event(30, 1, 700, destroy(3)));
    world.take(&event(40, 1, 700, create(3)));
    // The destroy fails: the queue lives until the next destroy.
    world.take(&event(50, 1, 700, destroy(3)));
    world.take(&event(55, 1, 700, Body::QueueDestroyFailed { queue_id: 3, gpu_id: Some(GPU), errno: 62 }));
    world.take(&event(70, 1, 700, destroy(3)));
    let at = |mono_ns| -> Vec<u64> {
        world.history.ended_after(BOOT + mono_ns).iter().map(|entry| entry.mono_ns).collect()
    };
    assert_eq!((at(19), at(20), at(29), at(30)), (vec![], vec![30], vec![30], vec![]));
    assert_eq!((at(45), at(60), at(70)), (vec![70], vec![70], vec![]));
}

#[test]
fn a_queue_whose_destroy_failed_and_that_lived_over_a_restart_is_one_queue() {
    let mut world = World::new();
    world.take(&event(10, 1, 700, seen(false)));
    world.take(&event(20, 1, 700, create(3)));
    world.take(&event(30, 1, 700, destroy(3)));
    world.take(&event(35, 1, 700, Body::QueueDestroyFailed { queue_id: 3, gpu_id: Some(GPU), errno: 62 }));
    let World { state: mut earlier, mut history } = world;
    let mut state = State::new(StateLimits::default());
    let listed = Listed { tgid: 700, start_boottime_ns: Some(1_000_000_000), ..Listed::default() };
    let key = state.adopt_process(100, &listed, Source::Kernel);
    state.adopt_queue(key, 100, &facts(3), Source::Kernel);
    let gap = Gap { lasted_ns: None, lost_changes: None };
    history.continues(&mut earlier, &mut state, gap, 100, BOOT);
    let mut world = World { state, history };
    // Each daemon numbers processes anew.
    world.take(&event(200, 9, 700, destroy(3)));
    let ends: Vec<_> = world.history.ended_after(BOOT + 25).iter().map(|entry| entry.mono_ns).collect();
    assert_eq!(ends, [200]);
}

#[test]
fn ends_that_no_record_reported_are_reported() {
    let mut world = World::new();
    world.take(&event(10, 1, 700, seen(false)));
    world.take(&event(20, 1, 700, create(3)));
    world.take(&event(30, 1, 700, create(3)));
    world.take(&event(40, 1, 700, Body::ProcessRelease));
    let cause = |entry: &Arc<Entry>| match &entry.what {
        What::QueueDestroy(queue) => queue.cause,
        _ => None,
    };
    let reported: Vec<_> =
        world.all().iter().map(|entry| (entry.name(), entry.mono_ns, cause(entry))).collect();
    let expected = [
        ("process_seen", 10, None),
        ("queue_create", 20, None),
        ("queue_destroy", 30, Some(Cause::Replaced)),
        ("queue_create", 30, None),
        ("queue_destroy", 40, Some(Cause::LeftAtRelease)),
        ("process_release", 40, None),
    ];
    assert_eq!(reported, expected);
}

#[test]
fn the_end_of_a_process_whose_pid_was_given_again_is_its_own() {
    let mut world = World::new();
    world.take(&event(10, 1, 700, seen(false)));
    world.take(&event(20, 1, 700, create(3)));
    let Body::ProcessSeen(other) = seen(false) else { panic!("it was made so") };
    let start_boottime_ns = Some(9_000_000_000);
    let other = ProcessSeen { start_boottime_ns, comm: Some("next".into()), ..other };
    world.take(&event(30, 2, 700, Body::ProcessSeen(other)));
    let reported: Vec<_> = world.all()[2..]
        .iter()
        .map(|entry| {
            let comm = entry.owner.as_ref().and_then(|owner| owner.comm.as_deref()).map(str::to_owned);
            (entry.name(), entry.process(), comm.unwrap_or_default())
        })
        .collect();
    let (first, second) = (Some(ProcessId(1)), Some(ProcessId(2)));
    let expected = [
        ("queue_destroy", first, "train".to_owned()),
        ("process_release", first, "train".to_owned()),
        ("process_seen", second, "next".to_owned()),
    ];
    assert_eq!(reported, expected);
}

#[test]
fn all_classes_together_are_bounded() {
    let bytes: usize = Class::ALL.into_iter().map(|class| limits(class).bytes).sum();
    assert_eq!(bytes, 2_816 << 10);
    assert!(Class::ALL.iter().enumerate().all(|(index, class)| *class as usize == index));
    assert!(size_of::<Entry>() <= 112, "{}", size_of::<Entry>());
}

#[test]
fn it_is_known_when_probes_were_on() {
    let mut history = History::default();
    assert!(!history.was_traced(BOOT));
    history.begin(10, BOOT);
    history.end(20, BOOT);
    history.begin(30, BOOT);
    let traced = |history: &History| [9, 10, 19, 20, 30, 99].map(|at| history.was_traced(BOOT + at));
    assert_eq!(traced(&history), [false, true, true, false, true, true]);
    for at in 100..(100 + 2 * u64::try_from(TRACED).unwrap()) {
        history.begin(at, BOOT);
        history.end(at, BOOT);
    }
    assert_eq!((history.traced.len(), traced(&history)), (TRACED, [false; 6]));
}

#[test]
fn what_an_earlier_tracer_knew_is_taken_over_and_is_new_to_nobody() {
    let mut earlier = World::new();
    earlier.take(&event(10, 1, 700, seen(false)));
    earlier.take(&event(20, 1, 700, create(3)));
    earlier.take(&event(25, 2, 701, seen(false)));
    earlier.history.begin(5, BOOT);
    earlier.history.end(30, BOOT);
    let World { state: mut last, history } = earlier;

    let mut world = World::new();
    world.history.start_outlet(true);
    world.history.take_over(history, BOOT + 5);
    let listed = crate::model::inventory::Listed {
        tgid: 700,
        start_boottime_ns: Some(1_000_000_000),
        ..Default::default()
    };
    let key = world.state.adopt_process(100, &listed, crate::state::Source::Kernel);
    world.state.adopt_queue(key, 100, &facts(3), crate::state::Source::Kernel);
    let gap = Gap { lasted_ns: Some(70), lost_changes: None };
    world.history.continues(&mut last, &mut world.state, gap, 100, BOOT);
    assert!(world.history.take_new().is_empty(), "the earlier one has exported it");
    world.take(&event(110, 4, 700, destroy(3)));
    assert_eq!(world.history.take_new().len(), 1);

    let expected = [
        ("process_seen", Some(700), 10),
        ("queue_create", Some(700), 20),
        ("process_seen", Some(701), 25),
        ("recording_gap", None, 100),
        ("process_release", Some(701), 100),
        ("queue_destroy", Some(700), 110),
    ];
    assert_eq!(world.reported(), expected);
    let last = world.all().pop().expect("an entry");
    assert!(matches!(&last.what, What::QueueDestroy(queue) if queue.born_ns == Some(20)), "{last:?}");
    assert_eq!(world.history.earlier_since_ns(), Some(BOOT + 5));
    world.history.begin(100, BOOT);
    assert_eq!([29, 30, 99, 100].map(|at| world.history.was_traced(BOOT + at)), [true, false, false, true]);
    // In a gap anything may have happened, to anyone.
    let names =
        |filter| -> Vec<_> { world.history.find(&filter).entries.iter().map(|entry| entry.name()).collect() };
    let of_pid = names(Filter { pid: Some(701), ..Filter::newest(9) });
    assert_eq!(of_pid, ["process_seen", "recording_gap", "process_release"]);
    assert_eq!(names(Filter { gpu_id: Some(9), ..Filter::newest(9) }), ["recording_gap"]);
    let chosen = Filter { events: BTreeSet::from(["process_release"]), ..Filter::newest(9) };
    assert_eq!(names(chosen), ["process_release"]);

    // Once something was added, it is too late.
    world.history.take_over(History::default(), 0);
    assert_eq!(world.reported().len(), expected.len());
}
