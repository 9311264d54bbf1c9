//! The stable output formats, kept as files in kfd-trace/tests/golden so that a change shows in review. With
//! KFD_TRACE_ACCEPT=1 in the environment the tests rewrite the files.

use super::event::json::{self, Driver};
use super::event::stream::Stream;
use super::samples::{CREATE, PID, clock, ioctl_event, shown, topology, traced};
use super::{api, ps};
use crate::model::event::{Body, Event, Origin, Outcome, QueueFacts};
use crate::model::incident::{
    CuMask, Eviction, FaultAccess, MqdOp, QueueUpdate, Trigger, UserQueueCall, UserQueueOp, VmFault,
};
use crate::model::memory::samples::mapped;
use crate::model::mes::samples::mes_queue;
use crate::model::mes::{MesOp, MesQueue};
use crate::model::runlist::samples::{list, preemption};
use crate::model::runlist::{Preemption, Runlist};
use crate::model::suspension::samples::{resume_of_all, suspension};
use crate::model::suspension::{NamedQueue, Queues, Suspension};
use crate::state::samples::{create, destroy, event, facts, seen};
use crate::state::{History, Source, Sources, State, StateLimits};
use kfd_trace_common::kind::Kind;
use std::collections::BTreeSet;
use std::path::Path;

const GPU: Option<u32> = Some(58270);
const BOOT: i64 = 1_790_000_000_000_000_000;

/// # Panics
/// If the text differs from the file.
pub(crate) fn check(name: &str, text: &str) {
    check_file(&Path::new("kfd-trace/tests/golden").join(name), text);
}

/// `name`: below the repository's folder.
///
/// # Panics
/// If the text differs from the file.
pub(super) fn check_file(name: &Path, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    let name = name.display();
    if std::env::var_os("KFD_TRACE_ACCEPT").is_some() {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, text).expect("a file that can be written");
    }
    let accepted = std::fs::read_to_string(&file).unwrap_or_default();
    let different = accepted.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert_eq!(different, None, "{name}: accepted and now; KFD_TRACE_ACCEPT=1 accepts it");
    assert_eq!(accepted.len(), text.len(), "{name}: lines were added or removed");
}

/// Each kind of event, without and with its optional fields.
pub(crate) fn events() -> Vec<Event> {
    let of_gpu = |body| Event { process: None, tgid: None, ..event(60_000, 0, 0, body) };
    let own = |body| event(50_000, 1, PID, body);
    let eviction = |trigger| Eviction { gpu_id: GPU, trigger, errno: 0, latency_ns: 5_000 };
    let update = |cu_mask, errno| {
        Body::QueueUpdate(QueueUpdate {
            now: QueueFacts { percent: Some(50), ..facts(3) },
            cu_mask,
            mask_unread: false,
            errno: Some(errno),
        })
    };
    let with_priority = |priority| {
        Body::QueueUpdate(QueueUpdate {
            now: QueueFacts { priority: Some(priority), ..facts(3) },
            cu_mask: None,
            mask_unread: false,
            errno: Some(0),
        })
    };
    let access = FaultAccess { address: 0x7f00_1000, not_present: true, read_only: false, no_execute: true };
    let fault = |access| Body::VmFault(VmFault { gpu_id: GPU, access });
    let call = UserQueueCall {
        op: Some(UserQueueOp::Create),
        queue_id: 5,
        ip_type: 1,
        ring_address: 0x1000,
        ring_size: 4096,
        errno: 0,
        comm: "vkcube".into(),
    };
    let other = UserQueueCall { op: None, ring_address: 0, errno: 22, ..call.clone() };
    let (preemption, list) = (preemption(), list());
    let unread = Runlist {
        reason: None,
        unmapped_ns: None,
        errno: 12,
        processes: None,
        queues: None,
        cp_queues: None,
        oversubscribed: None,
        ..list
    };
    let returned = |result| Outcome::Returned { result, latency_ns: 1_500 };
    let bare = QueueFacts { gpu_id: None, ..QueueFacts::unknown(Origin::Standing) };
    let by_debugger = |body| Event { tid: 78, task_tgid: 77, ..own(body) };
    let no_result = NamedQueue { queue_id: 3, result: None };
    let unknown = Suspension {
        queues: Queues::Named { listed: vec![no_result], more: 5 },
        count: None,
        errno: 14,
        by_comm: None,
        ..suspension()
    };
    let cleaned = |body| Event { tid: 77, task_tgid: 77, ..own(body) };
    vec![
        own(seen(false)),
        own(seen(true)),
        Event { process: None, ..own(Body::Open { errno: 0, comm: "train".into() }) },
        Event { process: None, ..event(50_000, 0, 99, Body::Open { errno: 13, comm: "other".into() }) },
        own(Body::Close),
        own(Body::MmRelease),
        cleaned(Body::ProcessRelease),
        own(create(4)),
        own(Body::QueueCreate(bare)),
        own(Body::QueueCreate(QueueFacts { evicted: Some(true), origin: Origin::Criu, ..facts(5) })),
        Event { in_ioctl: Some(0xc008_4b03), ..own(destroy(3)) },
        cleaned(destroy(9)),
        own(Body::QueueDestroyFailed { queue_id: 3, gpu_id: GPU, errno: 62 }),
        ioctl_event(CREATE, returned(0), &[1; 96]),
        ioctl_event(CREATE, returned(-22), &[]),
        own(mapped(58270 << 32 | 5, &[58270, 9], 2)),
        ioctl_event(0xc008_4b03, Outcome::Refused { errno: 25 }, &[]),
        ioctl_event(0xc018_4b0c, Outcome::NotMeasured, &[]),
        ioctl_event(0xc018_4b63, Outcome::NoReturnSeen, &[]),
        own(update(None, 0)),
        own(update(Some(CuMask { words: vec![0xff, 1] }), 22)),
        own(with_priority(11)),
        own(Body::MqdWrite { queue_id: 3, gpu_id: GPU, op: MqdOp::Update }),
        cleaned(Body::Evict(eviction(Some(Trigger::Ttm)))),
        own(Body::Evict(Eviction { gpu_id: None, errno: 16, ..eviction(None) })),
        own(Body::Restore(eviction(None))),
        cleaned(Body::EvictFailed(Eviction { gpu_id: None, errno: 62, ..eviction(Some(Trigger::Userptr)) })),
        own(fault(Some(access))),
        own(fault(None)),
        of_gpu(Body::GpuResetBegin { gpu_id: GPU }),
        of_gpu(Body::GpuResetEnd { gpu_id: None }),
        of_gpu(Body::HwsHang { gpu_id: GPU }),
        Event { process: None, ..own(Body::UserQueue(call)) },
        Event { process: None, ..own(Body::UserQueue(other)) },
        own(Body::Preempt(preemption)),
        of_gpu(Body::Preempt(Preemption {
            gpu_id: None,
            reason: None,
            errno: 62,
            oversubscribed: None,
            ..preemption
        })),
        own(Body::Runlist(list)),
        of_gpu(Body::Runlist(unread)),
        by_debugger(Body::QueuesSuspended(suspension())),
        by_debugger(Body::QueuesSuspended(unknown)),
        by_debugger(Body::QueuesResumed(Suspension { grace_period: None, ..suspension() })),
        own(Body::QueuesResumed(resume_of_all())),
        own(Body::MesQueue(mes_queue())),
        cleaned(Body::MesQueue(MesQueue {
            gpu_id: None,
            op: MesOp::Remove,
            reason: None,
            errno: 110,
            ..mes_queue()
        })),
    ]
}

#[test]
fn every_kind_is_among_the_events() {
    let kinds: BTreeSet<Kind> = events().iter().map(|event| event.body.kind()).collect();
    assert_eq!(kinds, Kind::ALL.iter().copied().collect());
}

#[test]
fn the_history_keeps_what_the_table_of_kinds_says() {
    for event in events() {
        let (mut state, mut history, kind) = (traced(), History::default(), event.body.kind());
        let change = state.apply(&event);
        history.record(&event, &change, &state, BOOT);
        let found = history.find(&crate::state::Filter::newest(10)).entries;
        let own = found.iter().filter(|entry| entry.what.kind() == Some(kind));
        let classes: Vec<_> = own.map(|entry| (entry.what.class(), entry.name())).collect();
        let kept: Vec<_> = kind.class().map(|class| (class, kind.name())).into_iter().collect();
        assert_eq!(classes, kept, "{event:?}");
    }
}

#[test]
fn events_as_json() {
    let mut out = Vec::new();
    for event in events() {
        out.extend(shown(&event, |event, context| {
            let mut line = Vec::new();
            json::event(&mut line, event, context).expect("memory");
            line
        }));
    }
    for what in [Driver::Unloaded, Driver::Loaded] {
        json::driver(&mut out, what, 70_000, &clock(), 2).expect("memory");
    }
    check("events.jsonl", &String::from_utf8(out).expect("UTF-8"));
}

#[test]
fn events_as_text() {
    let mut out = Vec::new();
    let stream = Stream { colour: true };
    stream.heading(&mut out).expect("memory");
    for event in events() {
        out.extend(shown(&event, |event, context| {
            let mut line = Vec::new();
            stream.event(&mut line, event, context).expect("memory");
            line
        }));
    }
    check("events.txt", &String::from_utf8(out).expect("UTF-8"));
}

fn pretty(text: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    serde_json::to_string_pretty(&value).expect("JSON") + "\n"
}

#[test]
fn documents_of_the_api() {
    let (mut state, mut history) = (State::new(StateLimits::default()), History::default());
    let begin = [event(10_000, 1, PID, seen(false)), event(20_000, 1, PID, create(3))];
    for event in begin.iter().cloned().chain(events()) {
        let change = state.apply(&event);
        history.record(&event, &change, &state, BOOT);
    }
    history.driver(false, 1, 100_000, BOOT);
    let found = history.find(&crate::state::Filter::newest(100));
    let view = api::EventsView { ts: None, began_ns: BOOT, known_since_ns: BOOT, found: &found, kept: &[] };
    check("api-events.json", &pretty(&api::events(&view).expect("JSON")));
    let (snapshot, topology, clock) = (traced().snapshot(), topology(), clock());
    let view = api::ApiView { snapshot: &snapshot, topology: &topology, clock: &clock, now_ns: 1_000_000 };
    check("api-queues.json", &pretty(&api::queues(&view).expect("JSON")));
    check("api-processes.json", &pretty(&api::processes(&view).expect("JSON")));
    check("api-gpus.json", &pretty(&api::gpus(&view).expect("JSON")));
}

#[test]
fn rows_of_ps_as_json() {
    let rows = ps::merge(
        vec![ps::PsRow::from_snapshot(&traced().snapshot(), 303_000_020_000, 900_000_000_000)],
        &topology(),
    );
    let asked = Sources::from(Source::Probe);
    let mut out = Vec::new();
    let topology = topology();
    let view = ps::PsView { asked, all_queues: true, topology: &topology, columns: ps::Columns::All };
    ps::json(&mut out, &rows, &view, clock().rfc3339(303_000_020_000)).expect("memory");
    check("ps.json", &pretty(&String::from_utf8(out).expect("UTF-8")));
}
