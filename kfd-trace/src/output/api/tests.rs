use super::*;
use crate::kernel::types::TypesReport;
use crate::model::event::{Body, Event, QueueFacts};
use crate::model::incident::{CuMask, Eviction, MqdOp, QueueUpdate, Trigger, VmFault};
use crate::model::suspension::samples::suspension;
use crate::output::samples::{PID, clock, topology, traced};
use crate::state::samples::{event, facts, seen};
use crate::state::{Class, Filter, Gap, History, State};
use serde_json::{Value, json};

const GPU: u32 = 58270;
const NOW: u64 = 1_000_000;

fn of(state: &State, document: fn(&ApiView<'_>) -> serde_json::Result<String>) -> Value {
    let (snapshot, topology, clock) = (state.snapshot(), topology(), clock());
    let view = ApiView { snapshot: &snapshot, topology: &topology, clock: &clock, now_ns: NOW };
    serde_json::from_str(&document(&view).expect("JSON")).expect("JSON")
}

fn evicted(at: u64, trigger: Option<Trigger>) -> Event {
    let reported = Eviction { gpu_id: Some(GPU), trigger, errno: 0, latency_ns: 5 };
    let body = if trigger.is_some() { Body::Evict(reported) } else { Body::Restore(reported) };
    event(at, 1, PID, body)
}

#[test]
fn a_queue_with_all_that_happened_to_it() {
    let mut state = traced();
    let write = Body::MqdWrite { queue_id: 3, gpu_id: Some(GPU), op: MqdOp::Update };
    state.apply(&event(30_000, 1, PID, write));
    let now = QueueFacts { percent: Some(50), priority: Some(11), ..facts(3) };
    let cu_mask = Some(CuMask { words: vec![0xff, 1] });
    state.apply(&event(
        40_000,
        1,
        PID,
        Body::QueueUpdate(QueueUpdate { now, cu_mask, mask_unread: false, errno: Some(0) }),
    ));
    state.apply(&evicted(100_000, Some(Trigger::Userptr)));
    state.apply(&evicted(300_000, None));
    state.apply(&evicted(900_000, Some(Trigger::Ttm)));
    let by_debugger = Event { task_tgid: 77, ..event(950_000, 1, PID, Body::QueuesSuspended(suspension())) };
    state.apply(&by_debugger);
    let mut value = of(&state, queues);
    let mut take = |field| {
        let queue = value["queues"][0].as_object_mut().expect("a queue");
        queue.remove(field).expect("a field")
    };
    let engines = json!([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]);
    assert_eq!((take("cu_mask"), take("cus_per_engine")), (json!(["0x000000ff", "0x00000001"]), engines));
    let suspended = ["suspended", "suspended_by", "suspended_ns", "suspensions"].map(take);
    let expected = [json!(true), json!({"pid": 77, "comm": "rocgdb"}), json!(50_000), json!(1)];
    assert_eq!(suspended, expected);
    assert_eq!((&value["schema"], &value["ts"]), (&json!(1), &json!("2026-09-21T14:13:20.001000000Z")));
    assert_eq!(
        value["queues"],
        json!([{
            "pid": 4321, "ns_pid": 7, "comm": "train", "kfd_process": "1", "context_id": null,
            "gpu": "gpu 0 (0000:c1:00.0, gfx942)", "gpu_id": GPU, "node": 1, "pci": "0000:c1:00.0",
            "queue_id": 3, "queue_type": "compute_aql", "ring_address": "0x7fad66c00000", "ring_size": 1_048_576,
            "write_pointer_address": "0x7faf945b8038", "read_pointer_address": "0x7faf945b8080",
            "doorbell_offset": 16, "priority": 11, "priority_level": "high", "percent": 50, "sdma_engine_id": null,
            "of_runtime": false, "priority_created": 7, "priority_changed_by": PID, "priority_changed_ns": 960_000,
            "active": false, "evicted": true,
            "evictions": 2, "evicted_ns": 300_000, "updates": 1,
            "mqd_writes": {"init": 0, "update": 1, "restore": 0}, "activity": null, "origin": "ioctl",
            "born_mono_ns": 20_000, "age_ns": 980_000, "resynced": false, "unlisted": false, "sources": ["probe"],
        }])
    );
}

#[test]
fn a_queue_has_its_fields_in_one_order() {
    let (state, topology, clock) = (traced(), topology(), clock());
    let snapshot = state.snapshot();
    let view = ApiView { snapshot: &snapshot, topology: &topology, clock: &clock, now_ns: NOW };
    assert_eq!(
        queues(&view).expect("JSON"),
        concat!(
            r#"{"schema":1,"ts":"2026-09-21T14:13:20.001000000Z","queues":[{"pid":4321,"ns_pid":7,"comm":"train","#,
            r#""kfd_process":"1","context_id":null,"gpu":"gpu 0 (0000:c1:00.0, gfx942)","gpu_id":58270,"node":1,"#,
            r#""pci":"0000:c1:00.0","queue_id":3,"queue_type":"compute_aql","ring_address":"0x7fad66c00000","#,
            r#""ring_size":1048576,"write_pointer_address":"0x7faf945b8038","#,
            r#""read_pointer_address":"0x7faf945b8080","doorbell_offset":16,"priority":7,"priority_level":"normal","percent":100,"#,
            r#""sdma_engine_id":null,"of_runtime":false,"#,
            r#""priority_created":7,"priority_changed_by":null,"priority_changed_ns":null,"cu_mask":null,"cus_per_engine":null,"active":true,"evicted":false,"#,
            r#""suspended":false,"suspended_by":null,"suspended_ns":null,"suspensions":0,"evictions":0,"evicted_ns":0,"#,
            r#""updates":0,"mqd_writes":{"init":0,"update":0,"restore":0},"activity":null,"origin":"ioctl","born_mono_ns":20000,"#,
            r#""age_ns":980000,"resynced":false,"unlisted":false,"sources":["probe"]}]}"#
        )
    );
}

#[test]
fn what_is_not_reported_is_null_and_counts_are_counts() {
    let mut state = traced();
    let bare = QueueFacts {
        gpu_id: Some(9),
        queue_type: None,
        ring_address: None,
        priority: None,
        active: None,
        ..facts(4)
    };
    state.apply(&event(30_000, 1, PID, Body::QueueCreate(bare)));
    let value = of(&state, queues);
    let queue = &value["queues"][1];
    assert_eq!(queue["gpu_id"], json!(9), "a GPU that the topology does not have");
    for field in [
        "gpu",
        "node",
        "pci",
        "queue_type",
        "ring_address",
        "priority",
        "active",
        "cu_mask",
        "cus_per_engine",
    ] {
        assert!(queue.get(field).is_some_and(Value::is_null), "{field}");
    }
    assert_eq!((&queue["updates"], &queue["mqd_writes"]["init"]), (&json!(0), &json!(0)));
}

#[test]
fn processes_are_shown_after_their_end_and_without_their_arguments() {
    let mut state = traced();
    state.apply(&event(50_000, 1, PID, Body::Close));
    state.apply(&event(60_000, 1, PID, Body::VmFault(VmFault { gpu_id: Some(GPU), access: None })));
    state.apply(&evicted(100_000, Some(Trigger::Userptr)));
    let alive = of(&state, processes);
    assert_eq!(
        alive["processes"],
        json!([{
            "pid": 4321, "ns_pid": 7, "uid": 1000, "comm": "train", "cgroup": "/slurm/job.scope",
            "container_id": null, "runtime": null, "pod_uid": null, "namespace": null, "pod": null,
            "container": null, "slurm_job": null, "slurm_step": null, "slurm_uid": null, "unit": null,
            "kfd_process": "1", "context_id": null, "alive": true, "opens": 0,
            "failed_opens": 0, "closes": 1, "queues": 1, "vm_faults": 1, "evicted": true, "evictions_total": 1,
            "evicted_ns": 900_000, "evictions": [{"gpu_id": GPU, "evicted": true, "evictions": 1,
                "evicted_ns": 900_000, "last_trigger": "userptr"}],
            "activity": [],
            "memory": {"complete": null, "gpus": [{"gpu_id": GPU, "vram_bytes": null, "domains": {}}]},
        }])
    );
    state.apply(&event(500_000, 1, PID, Body::ProcessRelease));
    let ended = of(&state, processes);
    let row = &ended["processes"][0];
    assert_eq!((&row["alive"], &row["queues"], &row["evicted"]), (&json!(false), &json!(0), &json!(false)));
    assert_eq!((&row["evicted_ns"], &row["evictions"][0]["evicted_ns"]), (&json!(400_000), &json!(400_000)));
    assert_eq!(of(&state, queues)["queues"], json!([]));
}

#[test]
fn gpus_with_their_budget_and_their_incidents() {
    let mut state = traced();
    state.apply(&event(30_000, 2, 5000, seen(false)));
    state.apply(&event(40_000, 2, 5000, Body::QueueCreate(QueueFacts { active: Some(false), ..facts(0) })));
    for (at, body) in [
        (50_000, Body::HwsHang { gpu_id: Some(GPU) }),
        (60_000, Body::GpuResetBegin { gpu_id: Some(GPU) }),
        (90_000, Body::GpuResetEnd { gpu_id: Some(GPU) }),
        (95_000, Body::GpuResetBegin { gpu_id: Some(GPU) }),
        (99_000, Body::GpuResetBegin { gpu_id: Some(GPU) }),
    ] {
        state.apply(&event(at, 1, PID, body));
    }
    assert_eq!(
        of(&state, gpus)["gpus"],
        json!([{
            "gpu": "gpu 0 (0000:c1:00.0, gfx942)", "index": 0, "gpu_id": GPU, "node": 1, "pci": "0000:c1:00.0",
            "render": "/dev/dri/renderD128", "name": "aqua_vanjaram", "gfx": "gfx942",
            "unique_id": "0x18f68e602b8a790f", "partition": null, "num_xcc": 6,
            "sdma_engines": 2, "sdma_queues_per_engine": 8, "evictions": 0, "slots": {"cp": 24, "sdma": 16, "sdma_xgmi": 0}, "queues": {"cp": 1, "sdma": 0, "sdma_xgmi": 0},
            "resets": 3, "resetting": true, "unfinished_resets": 1, "reset_ns": 30_000, "hangs": 1, "hung": false,
            "vm_faults": 0,
        }])
    );
}

const BOOT: i64 = 1_790_000_000_000_000_000;

/// [`traced`], with the history of it and of these events.
fn remembered(events: &[Event]) -> (State, History) {
    let (mut state, mut history) = (State::new(crate::state::StateLimits::default()), History::default());
    let begin = [event(10_000, 1, PID, seen(false)), event(20_000, 1, PID, Body::QueueCreate(facts(3)))];
    for event in begin.iter().chain(events) {
        let change = state.apply(event);
        history.record(event, &change, &state, BOOT);
    }
    (state, history)
}

fn kept(history: &History) -> Vec<(Class, crate::state::Kept)> {
    Class::ALL.map(|class| (class, history.kept(class))).into()
}

#[test]
fn events_are_reported_as_the_stream_shows_them() {
    let of_gpu = |at, body| Event { process: None, tgid: None, ..event(at, 0, 0, body) };
    let access = crate::model::incident::FaultAccess {
        address: 0x7f00,
        not_present: true,
        read_only: false,
        no_execute: false,
    };
    let call = crate::model::incident::UserQueueCall {
        op: Some(crate::model::incident::UserQueueOp::Create),
        queue_id: 5,
        ip_type: 1,
        ring_address: 0x1000,
        ring_size: 4096,
        errno: 0,
        comm: "vkcube".into(),
    };
    let events = [
        evicted(30_000, Some(Trigger::Userptr)),
        evicted(40_000, None),
        event(50_000, 1, PID, Body::VmFault(VmFault { gpu_id: Some(GPU), access: Some(access) })),
        of_gpu(55_000, Body::HwsHang { gpu_id: Some(GPU) }),
        of_gpu(60_000, Body::GpuResetBegin { gpu_id: Some(GPU) }),
        of_gpu(70_000, Body::GpuResetEnd { gpu_id: Some(GPU) }),
        Event { process: None, ..event(75_000, 1, 900, Body::UserQueue(call)) },
        event(80_000, 1, PID, Body::QueueDestroy { queue_id: 3, gpu_id: None, last: None }),
        event(85_000, 1, PID, Body::QueueDestroyFailed { queue_id: 3, gpu_id: Some(GPU), errno: 62 }),
        event(90_000, 1, PID, Body::QueueDestroy { queue_id: 9, gpu_id: Some(GPU), last: None }),
        event(95_000, 1, PID, Body::QueueDestroy { queue_id: 3, gpu_id: Some(GPU), last: None }),
        event(99_000, 1, PID, Body::ProcessRelease),
    ];
    // The output of the stream.
    let (mut state, clock, topology) =
        (State::new(crate::state::StateLimits::default()), clock(), topology());
    let begin = [event(10_000, 1, PID, seen(false)), event(20_000, 1, PID, Body::QueueCreate(facts(3)))];
    let mut stream = Vec::new();
    for event in begin.iter().chain(&events) {
        let change = state.apply(event);
        let context = crate::output::event::context::Context {
            named: crate::model::ioctl::Named::default(),
            clock: &clock,
            process: change.process.and_then(|key| state.process(key)),
            ended: &change.ended,
            lasted_ns: change.lasted_ns,
            priority_before: change.priority_before,
            hit: &change.hit,
            mismatch: None,
            topology: &topology,
        };
        crate::output::event::json::event(&mut stream, event, &context).expect("memory");
    }
    crate::output::event::json::driver(
        &mut stream,
        crate::output::event::json::Driver::Unloaded,
        100_000,
        &clock,
        1,
    )
    .expect("memory");
    let gap = Gap { lasted_ns: Some(7), lost_changes: None };
    crate::output::event::json::gap(&mut stream, 100_001, &clock, gap).expect("memory");
    let stream = String::from_utf8(stream).expect("UTF-8");
    let stream: Vec<Value> = stream.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();

    let (_, mut history) = remembered(&events);
    history.driver(false, 1, 100_000, BOOT);
    let none = || State::new(state.limits());
    history.continues(&mut none(), &mut none(), gap, 100_001, BOOT);
    let found = history.find(&Filter::newest(100));
    let view =
        EventsView { ts: None, began_ns: BOOT, known_since_ns: BOOT, found: &found, kept: &kept(&history) };
    let text = super::events(&view).expect("JSON");
    let reported: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(reported["events"], Value::from(stream));
    let names = crate::state::Entry::names();
    assert!(found.entries.iter().all(|entry| names.contains(&entry.name())), "a filter finds each");
    assert_eq!(
        (&reported["matched"], &reported["began"]),
        (&json!(16), &json!("2026-09-21T14:13:20.000000000Z"))
    );
    assert_eq!(
        reported["history"][2],
        json!({"class": "evictions", "events": 2, "max_events": 2048, "max_events_of_process": 256,
            "bytes": history.kept(Class::Evictions).bytes, "max_bytes": 393_216, "dropped": 0, "dropped_until": null})
    );
}

/// The document's content for that time, nanoseconds since boot.
fn at(state: &State, history: &History, mono_ns: i64) -> Value {
    let (snapshot, topology, clock) = (state.snapshot(), topology(), clock());
    let view = ApiView { snapshot: &snapshot, topology: &topology, clock: &clock, now_ns: NOW };
    let at_ns = BOOT + mono_ns;
    let ended = history.ended_after(at_ns);
    let kept = history.kept(Class::Queues);
    let traced = mono_ns < 65_000;
    let text =
        held(&HeldView { now: &view, ended: &ended, at_ns, known_since_ns: BOOT + 5_000, kept, traced });
    serde_json::from_str(&text.expect("JSON")).expect("JSON")
}

#[test]
fn who_held_what_at_a_moment_is_reported_after_the_end() {
    let (state, history) = remembered(&[
        event(30_000, 1, PID, Body::QueueDestroy { queue_id: 3, gpu_id: Some(GPU), last: None }),
        event(40_000, 1, PID, Body::QueueCreate(facts(4))),
        event(50_000, 1, PID, Body::ProcessRelease),
        event(60_000, 2, PID, seen(false)),
        event(70_000, 2, PID, Body::QueueCreate(facts(1))),
    ]);
    let row = json!({
        "pid": PID, "ns_pid": 7, "uid": 1000, "comm": "train", "cgroup": "job.scope", "container_id": null, "runtime": null,
        "pod_uid": null, "namespace": null, "pod": null, "container": null, "slurm_job": null, "slurm_step": null,
        "slurm_uid": null, "unit": "job.scope",
        "kfd_process": "1", "context_id": null, "gpu": "gpu 0 (0000:c1:00.0, gfx942)", "gpu_id": GPU,
        "queue_id": 3, "queue_type": "compute_aql", "born": "2026-09-21T14:13:20.000020000Z", "found": null,
        "ended": "2026-09-21T14:13:20.000030000Z", "cause": "other",
    });
    let reported = at(&state, &history, 25_000);
    assert_eq!(reported["queues"], json!([row]));
    assert_eq!(
        (&reported["at"], &reported["complete"]),
        (&json!("2026-09-21T14:13:20.000025000Z"), &json!(true))
    );
    let held = |mono_ns| -> Vec<(Value, Value)> {
        let reported = at(&state, &history, mono_ns);
        let queues = reported["queues"].as_array().expect("a list");
        queues.iter().map(|queue| (queue["queue_id"].clone(), queue["cause"].clone())).collect()
    };
    assert_eq!((held(15_000), held(35_000)), (vec![], vec![]));
    assert_eq!(held(45_000), [(json!(4), json!("left_at_release"))]);
    assert_eq!(held(70_000), [(json!(1), json!(null))], "it lives");
    let untraced = at(&state, &history, 70_000);
    assert_eq!((&untraced["traced"], &untraced["complete"]), (&json!(false), &json!(false)));
    let before = at(&state, &history, 4_999);
    assert_eq!((&before["queues"], &before["complete"]), (&json!([]), &json!(false)));
    assert_eq!(before["complete_since"], json!("2026-09-21T14:13:20.000005000Z"));
}

#[test]
fn a_queue_that_outlived_its_destroy_is_reported_once() {
    let (state, history) = remembered(&[
        event(30_000, 1, PID, Body::QueueDestroy { queue_id: 3, gpu_id: Some(GPU), last: None }),
        event(31_000, 1, PID, Body::QueueDestroyFailed { queue_id: 3, gpu_id: Some(GPU), errno: 62 }),
    ]);
    let reported = at(&state, &history, 25_000);
    assert_eq!(
        (reported["queues"].as_array().map(Vec::len), &reported["queues"][0]["ended"]),
        (Some(1), &json!(null))
    );
}

#[test]
fn the_status_shows_what_cannot_be_seen_and_why() {
    use crate::model::verdict::Verdict;
    use crate::output::samples::probe;
    use kfd_trace_common::counter::ProbeId;
    let probes = [
        probe(ProbeId::Ioctl, Verdict::Attached),
        probe(ProbeId::QueueAdd, Verdict::MissingFields(vec!["QUEUE_ID".into()])),
    ];
    let lost = [("probe missed, ioctl".to_owned(), 3)].into();
    let missed =
        [(ProbeId::Ioctl, crate::model::missed::Missed { program_skipped: None, probe_missed: Some(3) })]
            .into();
    let tracing = Tracing {
        ts: &None,
        began_ns: BOOT,
        known_since_ns: BOOT,
        why_not: None,
        probes: &probes,
        missed: &missed,
        losses: &[].into(),
        lost: &lost,
        queues_by_ioctl: true,
        sample_interval_ns: 1_000_000_000,
        driver_loads: 2,
        types: &TypesReport::default(),
        topology: &topology(),
        kept: &[],
    };
    let reported: Value = serde_json::from_str(&status(&tracing).expect("JSON")).expect("JSON");
    assert_eq!((&reported["tracing"], &reported["reason"]), (&json!(true), &json!(null)));
    assert_eq!((&reported["queues_by_ioctl"], &reported["driver_loads"]), (&json!(true), &json!(2)));
    assert_eq!(reported["sample_interval_ns"], json!(1_000_000_000));
    assert_eq!(reported["meaning"], json!(["not seen: what queue_add feeds"]));
    assert_eq!(reported["lost"], json!({"probe missed, ioctl": 3}));
    assert_eq!(reported["probes"][1]["verdict"], "missing_fields");
    assert_eq!(reported["probes"][1]["reason"], "QUEUE_ID");
    assert_eq!(reported["probes"][0]["missed"], json!({"program_skipped": null, "probe_missed": 3}));
}
