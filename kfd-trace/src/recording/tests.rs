//! The format, kept as a file for each version.

use super::samples::begin;
use super::*;
use crate::attribute::{Belongs, PodNames, SlurmJob, belongs};
use crate::model::event::{Body, Event, ProcessId, QueueFacts};
use crate::model::inventory::Listed;
use crate::model::ioctl::Named;
use crate::model::pointers::{Counts, Unmeasured};
use crate::model::verdict::Sight;
use crate::output::golden;
use crate::output::samples::{PID, topology, traced};
use crate::state::samples::{create, destroy, event, facts, seen};
use crate::state::{
    Difference, FoundDifference, Input, ListedQueue, ProcessDetails, ProcessKey, ReadTimes, Sample, Sought,
    Source, State, StateLimits, Vram,
};
use crate::text::clock::Clock;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const FILE: &str = "recording-2.jsonl";

/// With a value in as many of its fields as events can give one.
fn state() -> State {
    let mut state = traced();
    let mut at_ns = 0;
    let ends = |event: &Event| {
        matches!(
            event.body,
            Body::Close
                | Body::MmRelease
                | Body::ProcessRelease
                | Body::QueueDestroy { .. }
                | Body::QueueDestroyFailed { .. }
        )
    };
    let lives = golden::events().into_iter().filter(|event| !ends(event));
    // And a queue and a process that have ended.
    let others = [
        event(60_000, 1, PID, create(9)),
        event(60_001, 1, PID, destroy(9)),
        event(60_002, 2, 900, seen(false)),
        event(60_003, 2, 900, create(1)),
        event(60_004, 2, 900, Body::ProcessRelease),
    ];
    for event in lives.chain(others) {
        at_ns = event.mono_ns.max(at_ns);
        state.apply(&event);
    }
    for reading in [Counts { submitted: 9, retired: 8 }, Counts { submitted: 20, retired: 11 }] {
        at_ns += 3_000_000_000;
        for target in state.sought() {
            for Sought { queue_id, since_ns, .. } in target.queues {
                state.sampled(&Sample { key: target.key, queue_id, since_ns, reading: Ok(reading), at_ns });
            }
        }
    }
    state
}

/// Each kind of item and of event.
fn items() -> Vec<Item> {
    let (key, read, queue) = (ProcessKey::Adopted(4), ReadTimes { from_ns: 1, until_ns: 2 }, facts(3));
    let path = "/kubepods/pod6d1f4a3c-0b7e-4d8a-9c11-5e2f7a90b3c4/\
                5d0f3ac7e1b9482f6c75d1e0a94b38f7726e5c1d0b9a8f7e6d5c4b3a29180f7e";
    let belongs = Belongs { unit: Some("a.service".to_owned()), ..belongs([path]) };
    let pod = PodNames { namespace: "ml".to_owned(), pod: "train-0".to_owned(), container: None };
    let details = ProcessDetails {
        cmdline: Some("./app \"a\" \u{1b}".to_owned()),
        cgroup: Some(path.to_owned()),
        belongs,
        pod: Some(pod),
        container_name: Some("train".to_owned()),
        job: Some(SlurmJob { account: Some("physics".to_owned()), partition: Some("gpu".to_owned()) }),
    };
    let process =
        Listed { id: Some(ProcessId(9)), tgid: 7, comm: Some("app".to_owned()), ..Listed::default() };
    let finding = FoundDifference {
        key: None,
        tgid: 7,
        context_id: Some(1),
        queue_id: 3,
        difference: Difference::Missing,
    };
    let listed = ListedQueue { source: Source::Kernel, read, process: process.clone(), queue: queue.clone() };
    let sample = |reading| Sample { key, queue_id: 3, since_ns: 2, reading, at_ns: 9 };
    let samples = vec![sample(Ok(Counts { submitted: 9, retired: 8 })), sample(Err(Unmeasured::Denied))];
    let inputs = [
        Input::Details { key, details },
        Input::Process { read, process, source: Source::Sysfs },
        Input::Queue { key, read, queue: QueueFacts { queue_type: None, ..queue }, source: Source::Debugfs },
        Input::Compared(Source::Probe),
        Input::Corrected { finding, listed: Some(Box::new(listed)), at_ns: 5 },
        Input::Corrected { finding, listed: None, at_ns: 5 },
        Input::Unlisted(finding),
        Input::Gone { key, at_ns: 6 },
        Input::Unloaded { at_ns: 7 },
        Input::Sought,
        Input::Sampled(samples),
        Input::Late,
        Input::Expired { at_ns: 8 },
        Input::Anew,
        Input::Vram { at_ns: 9, changed: vec![Vram { place: (7, Some(1)), bytes: [(58270, 4096)].into() }] },
        Input::Missed { at_ns: 9 },
    ];
    let part = Part { run_unix_ns: 1_790_000_000_000_000_000, number: 2, lost: 3 };
    let (image, rows) = state().image();
    let mut items = vec![
        // The program's version is its own.
        Item::Begin(
            Begin {
                program: "kfd-trace".to_owned(),
                boot_id: Some("c0a5a1b2-2f3e-4d5c-8b7a-0123456789ab".to_owned()),
                ..begin()
            }
            .of_part(part),
        ),
        Item::Driver { named: Named::default(), sizes: [(2, 96)].into() },
        Item::Gpus(topology()),
        Item::Clock { wall_ns: 1_790_000_000_000_000_000, boot_ns: 5_000_000 },
        Item::Sight {
            at_ns: 5,
            sight: Sight {
                traces: true,
                queues: true,
                unseen: vec!["not seen: faults".to_owned()],
                ..Sight::default()
            },
        },
        Item::Lost { at_ns: 5, lost: Some([("records lost, queue_create, queue_add".to_owned(), 7)].into()) },
    ];
    items.push(Item::State(Box::new(image)));
    items.extend(rows.into_iter().map(|row| Item::Row(Box::new(row))));
    items.extend(inputs.into_iter().chain(golden::events().into_iter().map(Input::Event)).map(Item::Input));
    items.extend([
        Item::Existing,
        Item::Loads { loaded: false, at_ns: 10, loads: 1 },
        Item::End { at_ns: 11, text: "a table\n".to_owned(), json: "{}\n".to_owned() },
        Item::Close { at_ns: 12, why: Closed::Rotated },
        Item::Close { at_ns: 12, why: Closed::Stopped },
        Item::Close { at_ns: 12, why: Closed::Gap },
    ]);
    items
}

#[test]
fn the_format_is_the_one_of_its_version() {
    let text: String = items().iter().map(|item| serde_json::to_string(item).expect("JSON") + "\n").collect();
    assert!(FILE.contains(&format!("-{VERSION}.")), "a new version gets a new file, and the old one stays");
    golden::check(FILE, &text);
    let read: Vec<Item> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(read, items());
}

/// Recordings of earlier programs: these files are never written again.
const KEPT: [&str; 3] = [
    include_str!("../../tests/golden/recording-1-as-of-0.1.0.jsonl"),
    include_str!("../../tests/golden/recording-1.jsonl"),
    include_str!("../../tests/golden/recording-2-without-boot-id.jsonl"),
];

/// Whether it has all that the older one has.
fn has(value: &Value, older: &Value) -> bool {
    match (value, older) {
        (Value::Object(fields), Value::Object(all)) => {
            all.iter().all(|(name, older)| fields.get(name).is_some_and(|value| has(value, older)))
        }
        (Value::Array(values), Value::Array(all)) => {
            values.len() == all.len() && values.iter().zip(all).all(|(value, older)| has(value, older))
        }
        _ => value == older,
    }
}

#[test]
fn what_released_programs_wrote_is_read_without_a_loss() {
    for line in KEPT.iter().flat_map(|text| text.lines()) {
        let item: Item = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let (now, then) =
            (serde_json::to_value(&item).expect("JSON"), serde_json::from_str(line).expect("JSON"));
        assert!(has(&now, &then), "{now}\nis not all of\n{then}");
    }
}

#[test]
fn fields_that_a_later_program_adds_are_passed_over() {
    let line = r#"{"clock":{"wall_ns":1,"boot_ns":2,"more":[3]}}"#;
    assert_eq!(serde_json::from_str::<Item>(line).ok(), Some(Item::Clock { wall_ns: 1, boot_ns: 2 }));
    let line = r#"{"input":{"process":{"read":{"from_ns":1,"until_ns":2},"process":{"tgid":7,"queues":[]},"source":"sysfs"}}}"#;
    assert!(serde_json::from_str::<Item>(line).is_ok(), "what is not known may be left out");
}

fn replay_of(limits: StateLimits) -> Replay {
    let clock = Clock { mono_to_wall_ns: 0, zone: jiff::tz::TimeZone::UTC };
    Replay::new(&Begin { limits, ..begin() }, clock)
}

#[test]
fn limits_of_a_recording_are_at_most_those_of_a_tracer() {
    let own = StateLimits::default();
    let most = StateLimits {
        processes: usize::MAX,
        ended_processes: usize::MAX,
        linger_ns: u64::MAX,
        ended_queues: usize::MAX,
    };
    assert_eq!(replay_of(most).state.limits(), StateLimits { linger_ns: u64::MAX, ..own });
    let few = StateLimits { processes: 3, ended_processes: 2, linger_ns: 1, ended_queues: 0 };
    assert_eq!(replay_of(few).state.limits(), few);
}

/// A row of a process with as many queues, and this name.
fn row(id: u64, queues: u32, comm: &str) -> Item {
    let mut state = crate::state::samples::state();
    state.apply(&event(1, id, 700, seen(false)));
    (0..queues).for_each(|queue| drop(state.apply(&event(2, id, 700, create(queue)))));
    let (_, mut rows) = state.image();
    rows[0].comm = Some(comm.to_owned());
    Item::Row(Box::new(rows.remove(0)))
}

/// How much a file has is bounded only by the patience of its author.
#[test]
fn what_would_fill_the_memory_is_not_played() {
    type Way = Box<dyn Fn(u64) -> Item>;
    const HEAVIEST: usize = 16 << 20;
    // A few of them are too many.
    let long = "a".repeat(4 << 20);
    let details = ProcessDetails { cgroup: Some(long.clone()), ..ProcessDetails::default() };
    let many = row(1, 30_000, "train");
    let vram: BTreeMap<u32, u64> = (0..200_000).map(|gpu_id| (gpu_id, 1)).collect();
    let gpus: Vec<u32> = vec![1; 1 << 20];
    let ways: [(&str, Way); 6] = [
        (
            "texts",
            Box::new(move |n| match (n % 2, n / 2 + 2) {
                (0, id) => Item::Input(Input::Event(event(n, id, 700, seen(false)))),
                (_, id) => {
                    Item::Input(Input::Details { key: ProcessId(id).into(), details: details.clone() })
                }
            }),
        ),
        ("names", Box::new(move |n| row(n + 1, 0, &long))),
        (
            "queues",
            Box::new(move |n| {
                let Item::Row(row) = &many else { panic!("no row") };
                let mut row = row.clone();
                row.key = ProcessId(n + 1).into();
                Item::Row(row)
            }),
        ),
        (
            "counts of memory",
            Box::new(move |n| {
                let tgid = u32::try_from(n).expect("a PID") + 1;
                let process = Listed { tgid, vram: vram.clone(), ..Listed::default() };
                let read = ReadTimes { from_ns: n, until_ns: n };
                Item::Input(Input::Process { read, process, source: Source::Sysfs })
            }),
        ),
        (
            "GPUs of its memory",
            Box::new(move |n| {
                let mut value = serde_json::to_value(row(n + 1, 0, "train")).expect("JSON");
                value["row"]["memory"]["known"] = serde_json::json!({ "gpus": gpus });
                serde_json::from_value(value).expect("a row")
            }),
        ),
        (
            "an image",
            Box::new(move |_| {
                let gpus: serde_json::Map<String, Value> =
                    (0..300_000).map(|gpu_id| (gpu_id.to_string(), serde_json::json!({}))).collect();
                serde_json::from_value(serde_json::json!({ "state": { "gpus": gpus } })).expect("an image")
            }),
        ),
    ];
    let mut too_heavy = BTreeSet::new();
    for (what, item) in ways {
        let mut replay = replay_of(StateLimits::default());
        replay.heaviest = HEAVIEST;
        let refused = (0..200).any(|n| {
            replay.take(item(n), &mut |_, _| Ok::<(), ()>(())).expect("nothing is shown");
            let weight = replay.state.weight();
            if weight > HEAVIEST + HEAVIEST / 16 {
                too_heavy.insert(what);
            }
            replay.refused().is_some()
        });
        if !refused || !replay.state.snapshot().processes.is_empty() {
            too_heavy.insert(what);
        }
    }
    assert_eq!(too_heavy, BTreeSet::new());
}
