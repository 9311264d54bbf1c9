use super::*;
use crate::model::event::{Origin, ProcessId, ProcessSeen, QueueFacts, QueueType};
use crate::model::incident::Trigger;
use crate::otlp::proto::{LogRecord, ScopeLogs, Value};
use crate::state::samples::{create, event, seen, state};
use crate::state::{History, Passed};
use kfd_trace_common::kind::Kind;
use prost::Message as _;

const WALL: i64 = 1_790_000_000_000_000_000;

/// What an encoder makes of these, each as its name with its attributes.
fn made(encoder: &mut Encoder, items: &[Item]) -> Vec<LogRecord> {
    let mut out = Vec::new();
    let count: u64 = items.iter().map(|item| encoder.encode(item, WALL + 7, &mut out)).sum();
    let records = ScopeLogs::decode(&out[..]).expect("a message").log_records;
    assert_eq!(records.len() as u64, count);
    records
}

fn of<'r>(record: &'r LogRecord, key: &str) -> Option<&'r Value> {
    let mut found = record.attributes.iter().filter(|pair| pair.key == key);
    let value = found.next().and_then(|pair| pair.value.as_ref()?.value.as_ref());
    assert_eq!(found.next(), None, "{key} is there twice");
    value
}

fn number(record: &LogRecord, key: &str) -> Option<i64> {
    match of(record, key) {
        Some(Value::Int(number)) => Some(*number),
        None => None,
        other => panic!("{key}: {other:?}"),
    }
}

fn word<'r>(record: &'r LogRecord, key: &str) -> Option<&'r str> {
    match of(record, key) {
        Some(Value::Text(text)) => Some(text),
        None => None,
        other => panic!("{key}: {other:?}"),
    }
}

/// A process that creates a queue, is evicted, and is released with the queue.
fn life() -> Vec<Item> {
    let (mut state, mut history) = (state(), History::default());
    history.start_outlet(false);
    let eviction = crate::model::incident::Eviction {
        gpu_id: Some(58270),
        trigger: Some(Trigger::Userptr),
        latency_ns: 5,
        errno: 0,
    };
    let bodies = [
        seen(false),
        create(3),
        Body::Evict(eviction),
        Body::QueueDestroy { queue_id: 3, gpu_id: Some(58270), last: None },
        Body::Close,
        Body::ProcessRelease,
    ];
    for (at, body) in (10..).zip(bodies) {
        let event = event(at, 1, 700, body);
        let change = state.apply(&event);
        history.record(&event, &change, &state, WALL);
    }
    history.take_new().into_iter().map(Item::New).collect()
}

#[test]
fn each_event_is_a_record_with_its_owner_and_its_number() {
    let records = made(&mut Encoder::default(), &life());
    let names: Vec<_> = records.iter().map(|record| record.event_name.as_str()).collect();
    let expected = ["process_seen", "queue_create", "evict", "queue_destroy", "process_release"];
    assert_eq!(names, expected.map(|name| format!("kfd.{name}")), "`close` is not kept");
    for (record, seq) in records.iter().zip(1..) {
        assert_eq!(number(record, "kfd.seq"), Some(seq));
        assert_eq!(number(record, "process.pid"), Some(700), "{record:?}");
        assert_eq!(number(record, "kfd.process"), Some(1));
        assert_eq!(word(record, "otel.event.name"), Some(record.event_name.as_str()));
        let mono_ns = number(record, "kfd.mono_ns").expect("a time");
        assert_eq!(record.time_unix_nano, (WALL + mono_ns).unsigned_abs());
        assert_eq!(record.observed_time_unix_nano, (WALL + 7).unsigned_abs());
    }
    let [_, create, evict, destroy, _] = &records[..] else { panic!("{records:?}") };
    assert_eq!((number(create, "kfd.queue_id"), number(create, "kfd.gpu_id")), (Some(3), Some(58270)));
    assert_eq!((word(evict, "kfd.trigger"), evict.severity_number), (Some("userptr"), 13));
    assert_eq!((number(destroy, "kfd.lifetime_ns"), number(destroy, "kfd.known_ns")), (Some(2), Some(2)));
    assert_eq!(create.severity_text, "INFO");
    assert_eq!(of(create, "kfd.errno"), None, "unknown is left out");
}

#[test]
fn gpus_have_their_names_and_dropped_records_their_numbers() {
    let gpu = Gpu {
        index: 2,
        gpu_id: 58270,
        pci: Some("0000:c1:00.0".to_owned()),
        partition: Some(1),
        gfx_target_version: Some(90402),
        ..Gpu::default()
    };
    let gpus = Topology { gpus: vec![gpu], ..Topology::default() };
    let mut items = vec![Item::Gpus(At { mono_ns: 4, unix_ns: WALL }, gpus), Item::Dropped(40)];
    items.extend(life());
    let records = made(&mut Encoder::default(), &items);
    let known = &records[0];
    assert_eq!((known.event_name.as_str(), number(known, "kfd.seq")), ("kfd.gpu", Some(1)));
    assert_eq!((number(known, "kfd.gpu_id"), number(known, "kfd.gpu")), (Some(58270), Some(2)));
    assert_eq!((word(known, "hw.id"), word(known, "hw.model")), (Some("0000:c1:00.0/1"), Some("gfx942")));
    assert_eq!((number(&records[1], "kfd.seq"), of(&records[1], "kfd.gpu")), (Some(42), None));
    let create = &records[2];
    assert_eq!((number(create, "kfd.gpu"), word(create, "hw.id")), (Some(2), Some("0000:c1:00.0/1")));
}

#[test]
fn begin_end_and_losses_are_records_without_a_process() {
    let at = At { mono_ns: 5, unix_ns: WALL };
    let lost = [("ring full, ioctl".to_owned(), 3), ("program skipped, open".to_owned(), 4)].into();
    let records = made(
        &mut Encoder::default(),
        &[Item::Begin(at), Item::Lost(at, lost), Item::End(at), Item::Alive(at)],
    );
    let shown: Vec<_> = records
        .iter()
        .map(|record| {
            let Some(Value::Text(body)) = record.body.as_ref().and_then(|body| body.value.clone()) else {
                panic!("{record:?}")
            };
            (record.event_name.as_str(), body, number(record, "kfd.lost"), of(record, "process.pid"))
        })
        .collect();
    let none = |name, body: &str| (name, body.to_owned(), None, None);
    assert_eq!(shown[0], none("kfd.trace_begin", "trace_begin"));
    let names = "program skipped, open: 4; ring full, ioctl: 3";
    assert_eq!(shown[1], ("kfd.lost", names.to_owned(), Some(7), None));
    assert_eq!(shown[2], none("kfd.trace_end", "trace_end"));
    assert_eq!(shown[3], none("kfd.trace_alive", "trace_alive"));
}

#[test]
fn what_an_owner_is_known_by_is_its_attributes() {
    let (mut state, mut history) = (state(), History::default());
    history.start_outlet(true);
    let mut put = |state: &mut crate::state::State, at, body| {
        let event = event(at, 1, 700, body);
        let change = state.apply(&event);
        history.record(&event, &change, state, WALL);
    };
    let seen = ProcessSeen {
        standing: true,
        start_boottime_ns: Some(9),
        ns_tgid: Some(7),
        uid: Some(1000),
        comm: Some("python3".to_owned()),
        cgroup_leaf: None,
        context_id: None,
    };
    put(&mut state, 10, Body::ProcessSeen(seen));
    let path = "/system.slice/slurmstepd.scope/job_42/step_0/user/task_0";
    let details = crate::state::ProcessDetails {
        cgroup: Some(path.to_owned()),
        belongs: crate::attribute::belongs([path]),
        job: Some(crate::attribute::SlurmJob { account: Some("physics".to_owned()), partition: None }),
        ..Default::default()
    };
    state.enrich(ProcessId(1).into(), details);
    let facts = QueueFacts {
        queue_id: Some(4),
        queue_type: Some(QueueType::ComputeAql),
        ..QueueFacts::unknown(Origin::Ioctl)
    };
    put(&mut state, 11, Body::QueueCreate(facts));
    put(&mut state, 12, Body::Close);
    let items: Vec<Item> = history.take_new().into_iter().map(Item::New).collect();
    assert!(
        matches!(&items[2], Item::New(New::Event(passed)) if matches!(**passed, Passed { wall_ns, .. } if wall_ns == WALL + 12))
    );
    let records = made(&mut Encoder::default(), &items);
    assert_eq!(of(&records[0], "kfd.standing"), Some(&Value::Bool(true)));
    assert_eq!(number(&records[0], "slurm.job.id"), None, "it was not known then");
    for record in &records[1..] {
        let numbers = ["process.vpid", "process.user.id", "slurm.job.id"].map(|key| number(record, key));
        assert_eq!(numbers, [Some(7), Some(1000), Some(42)], "{record:?}");
        assert_eq!(word(record, "process.executable.name"), Some("python3"));
        assert_eq!(word(record, "slurm.step.id"), Some("0"));
        assert_eq!((word(record, "slurm.account"), of(record, "slurm.partition")), (Some("physics"), None));
    }
    assert_eq!(records[2].event_name, "kfd.close");
}

#[test]
fn a_failed_destroy_says_from_when_the_queue_that_lives_on_is_known() {
    let (mut state, mut history) = (state(), History::default());
    history.start_outlet(false);
    let destroy = Body::QueueDestroy { queue_id: 3, gpu_id: Some(58270), last: None };
    let failed = Body::QueueDestroyFailed { queue_id: 3, gpu_id: Some(58270), errno: 5 };
    for (at, body) in [(10, seen(false)), (12, create(3)), (20, destroy), (21, failed)] {
        let event = event(at, 1, 700, body);
        let change = state.apply(&event);
        history.record(&event, &change, &state, WALL);
    }
    let items: Vec<Item> = history.take_new().into_iter().map(Item::New).collect();
    let records = made(&mut Encoder::default(), &items);
    let failed = records.last().expect("records");
    assert_eq!((failed.event_name.as_str(), failed.severity_number), ("kfd.queue_destroy_failed", 17));
    assert_eq!((number(failed, "kfd.queue_id"), number(failed, "kfd.known_ns")), (Some(3), Some(9)));
}

/// docs/otlp.md lists them.
#[test]
fn a_records_severity_is_that_of_its_kind() {
    let gpu_id = Some(58270);
    let destroyed = |errno| Body::QueueDestroyFailed { queue_id: 3, gpu_id, errno };
    let open = |errno| Body::Open { errno, comm: "python3".to_owned() };
    for (body, expected) in [
        (Body::GpuResetBegin { gpu_id }, Severity::Error),
        (Body::GpuResetEnd { gpu_id }, Severity::Info),
        (Body::HwsHang { gpu_id }, Severity::Error),
        (destroyed(5), Severity::Error),
        (Body::QueueDestroy { queue_id: 3, gpu_id, last: None }, Severity::Info),
        (open(0), Severity::Info),
        (open(12), Severity::Warn),
    ] {
        assert_eq!(Severity::of(&body), expected, "{body:?}");
    }
    let stopped = Kind::ALL.iter().filter(|kind| kind.severity() == kind::Severity::Stopped);
    assert_eq!(stopped.collect::<Vec<_>>(), [&Kind::Evict, &Kind::QueuesSuspended]);
}
