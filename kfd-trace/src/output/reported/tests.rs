//! Documents as the daemon makes them, read again; and what others may send.

mod hostile;

use super::*;
use crate::attribute::Topology;
use crate::kernel::types::TypesReport;
use crate::model::verdict::{ProbeStatus, Verdict};
use crate::output::api::{self, ApiView, EventsView, Tracing};
use crate::output::ps::{self, Columns, PsRow, PsView};
use crate::output::samples::{clock, topology as sample_topology, traced};
use crate::output::top::{Moment, Recent};
use crate::output::{event, golden, status};
use crate::state::samples::{create, event as sample_event, seen};
use crate::state::{Filter, Gap, History, Matches, Snapshot, State, StateLimits};
use std::collections::BTreeMap;

/// What a daemon answers.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) queues: String,
    pub(crate) processes: String,
    pub(crate) gpus: String,
    pub(crate) status: String,
    pub(crate) events: String,
}

impl Served {
    /// At the moment of a screen.
    pub(crate) fn of(moment: &Moment, probes: &[ProbeStatus]) -> Self {
        let Moment { snapshot, topology, clock, now_ns, .. } = moment;
        let view = ApiView { snapshot, topology, clock, now_ns: *now_ns };
        let entries: Vec<_> = moment
            .recent
            .iter()
            .filter_map(|recent| match recent {
                Recent::Kept(entry) => Some(entry.clone()),
                Recent::Reported(_) => None,
            })
            .collect();
        let found = Matches { matched: entries.len(), entries };
        let ts = clock.rfc3339(*now_ns);
        let sample = moment.sample.map_or(0, |interval| u64::try_from(interval.as_nanos()).unwrap_or(0));
        let tracing = Tracing {
            ts: &ts,
            began_ns: 0,
            known_since_ns: 0,
            why_not: moment.why_not.as_deref(),
            probes,
            missed: &BTreeMap::new(),
            losses: &BTreeMap::new(),
            lost: &moment.lost.clone().unwrap_or_default(),
            queues_by_ioctl: moment.sight.by_ioctl,
            sample_interval_ns: sample,
            driver_loads: 1,
            types: &TypesReport::default(),
            topology,
            kept: &[],
        };
        Served {
            queues: api::queues(&view).expect("JSON"),
            processes: api::processes(&view).expect("JSON"),
            gpus: api::gpus(&view).expect("JSON"),
            status: api::status(&tracing).expect("JSON"),
            events: api::events(&EventsView {
                ts: ts.clone(),
                began_ns: 0,
                known_since_ns: 0,
                found: &found,
                kept: &[],
            })
            .expect("JSON"),
        }
    }
}

/// The same through the API.
fn through_the_api(state: &Snapshot, now_ns: u64) -> (Snapshot, crate::attribute::Topology) {
    let (sample, clock) = (sample_topology(), clock());
    let view = ApiView { snapshot: state, topology: &sample, clock: &clock, now_ns };
    let text = |document: serde_json::Result<String>| document.expect("JSON").into_bytes();
    let queues: Queues = read(&text(api::queues(&view))).expect("queues");
    let gpus: Gpus = read(&text(api::gpus(&view))).expect("GPUs");
    let processes = read(&text(api::processes(&view))).expect("processes");
    (snapshot(&queues, processes, &gpus), topology(&gpus, None))
}

const NOW: u64 = 303_000_020_000;

#[test]
fn ps_shows_the_same_of_a_daemon() {
    let original = traced().snapshot();
    let (reported, gpus) = through_the_api(&original, NOW);
    let at_ns = clock().unix_ns(NOW).expect("a time").cast_unsigned();
    let lines = |snapshot: &Snapshot, topology, now_ns, boot_ns| {
        let rows = ps::ordered(PsRow::from_snapshot(snapshot, now_ns, boot_ns), &Topology::default());
        let mut out = Vec::new();
        let view = PsView { asked: Default::default(), all_queues: true, topology, columns: Columns::All };
        ps::text(&mut out, &rows, &view).expect("memory");
        String::from_utf8(out).expect("UTF-8")
    };
    let there = sample_topology();
    let expected = lines(&original, &there, NOW, NOW);
    assert!(expected.contains("compute_aql") && expected.contains("0 of 16 SDMA slots"), "{expected}");
    assert_eq!(lines(&reported, &gpus, at_ns, at_ns), expected);
}

#[test]
fn events_have_the_text_that_they_have_there() {
    let (mut state, mut history) = (State::new(StateLimits::default()), History::default());
    let begin = [sample_event(10_000, 1, 4321, seen(false)), sample_event(20_000, 1, 4321, create(3))];
    for event in begin.into_iter().chain(golden::events()) {
        let change = state.apply(&event);
        history.record(&event, &change, &state, 1_790_000_000_000_000_000);
    }
    history.driver(false, 1, 100_000, 1_790_000_000_000_000_000);
    history.driver(true, 2, 100_001, 1_790_000_000_000_000_000);
    for (lasted_ns, lost_changes) in [(None, None), (Some(5_000_000_000), None), (Some(7), Some(3))] {
        let (mut earlier, mut later) =
            (State::new(StateLimits::default()), State::new(StateLimits::default()));
        let gap = Gap { lasted_ns, lost_changes };
        history.continues(&mut earlier, &mut later, gap, 100_002, 1_790_000_000_000_000_000);
    }
    let found = history.find(&Filter::newest(100));
    let view =
        EventsView { ts: clock().rfc3339(0), began_ns: 0, known_since_ns: 0, found: &found, kept: &[] };
    let events: Events = read(api::events(&view).expect("JSON").as_bytes()).expect("events");
    let events = events.reported();
    assert!(events.len() > 25 && events.len() == found.entries.len());
    for (reported, entry) in events.iter().zip(&found.entries) {
        let failed = entry.event().is_some_and(|(event, _)| event.body.errno().is_some());
        let kind = (entry.name(), entry.what.kind(), entry.what.gpu_id(), entry.pid(), failed);
        let own = (reported.name.as_str(), reported.kind, reported.gpu_id, reported.pid, reported.failed);
        assert_eq!(own, kind);
        assert_eq!(reported.detail, event::remembered(entry), "{}", entry.name());
        assert_eq!(i64::try_from(reported.at_ns).ok(), Some(entry.wall_ns));
    }
}

#[test]
fn labels_of_verdicts_mean_the_same() {
    let all = [
        Verdict::Attached,
        Verdict::Partly { failed: vec![("a".into(), "b".into())] },
        Verdict::NotAsked,
        Verdict::LeftOut,
        Verdict::ReportedBy("x"),
        Verdict::NotInKernel,
        Verdict::NoGpu,
        Verdict::MissingFields(vec![]),
        Verdict::Refused("no".into()),
    ];
    for verdict in all {
        assert_eq!(Verdict::word_sees(verdict.word()), verdict.sees(), "{verdict:?}");
    }
    assert_eq!(status::sight(&[], false).queues, sight(r#""tracing": false, "probes": []"#).queues);
}

fn sight(fields: &str) -> crate::model::verdict::Sight {
    let text = format!(
        r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", "meaning": [], "unreadable": [], "lost": {{}}, {fields}}}"#
    );
    read::<Status>(text.as_bytes()).expect(&text).sight(true)
}

#[test]
fn what_a_daemon_does_not_report_is_not_known() {
    let queue = r#"{"schema": 1, "ts": "2026-09-21T14:13:20Z", "queues": [{"pid": 7, "queue_id": 1}]}"#;
    let queues: Queues = read(queue.as_bytes()).expect("queues");
    let none = r#"{"schema": 1, "ts": "2026-09-21T14:13:20Z", "processes": []}"#;
    let gpus = r#"{"schema": 1, "ts": "2026-09-21T14:13:20Z", "gpus": [{"gpu_id": 9, "slots": {"cp": 4, "sdma": 8}}]}"#;
    let gpus: Gpus = read(gpus.as_bytes()).expect("GPUs");
    assert!(!gpus.have_evictions());
    let slots = topology(&gpus, None).gpus[0].slots();
    assert_eq!((slots.cp, slots.sdma), (Some(4), None), "which engines there are is not known");
    let snapshot = snapshot(&queues, read(none.as_bytes()).expect("none"), &gpus);
    let (process, queue) = snapshot.queues().next().expect("the process is made from its queue");
    assert_eq!((process.tgid, process.id(), queue.age_ns(NOW)), (Some(7), None, None));
    assert!(queue.activity.now().is_none() && queue.facts.queue_type.is_none());
}

#[test]
fn what_is_no_document_of_this_version_is_refused() {
    let of = |text: &str| read::<Queues>(text.as_bytes()).err();
    assert_eq!(of(r#"{"schema": 2, "rows": {}}"#), Some(NotRead::Version(2)));
    assert_eq!(of(r#"{"schema": 2, "ts": "2026-09-21T14:13:20Z", "queues": []}"#), Some(NotRead::Version(2)));
    for text in [
        "",
        "<html>",
        "[]",
        "{}",
        r#"{"schema": 1}"#,
        r#"{"schema": 1, "ts": "now", "queues": []}"#,
        r#"{"schema": 1, "ts": "2026-09-21T14:13:20Z", "queues": [7]}"#,
        r#"{"schema": 1, "ts": "2026-09-21T14:13:20Z", "queues": [{"pid": -1}]}"#,
    ] {
        assert!(matches!(of(text), Some(NotRead::Foreign(_))), "{text}");
    }
}

#[test]
fn lists_end_where_a_daemons_do() {
    let list = |count: usize| {
        let rows = vec!["{}"; count].join(",");
        format!(r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", "gpus": [{rows}]}}"#)
    };
    assert!(read::<Gpus>(list(1_024).as_bytes()).is_ok());
    let refused = read::<Gpus>(list(1_025).as_bytes()).err();
    assert!(matches!(&refused, Some(NotRead::Foreign(why)) if why.contains("more than 1024")), "{refused:?}");
    let words = vec![r#""0x1""#; 129].join(",");
    let text =
        format!(r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", "queues": [{{"cu_mask": [{words}]}}]}}"#);
    assert!(read::<Queues>(text.as_bytes()).is_err());
}

#[test]
fn no_name_steers_a_terminal() {
    let evil = r"\u001b[2J\u009b31m\u202e";
    let text = |list: &str, rows: String| {
        format!(r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", "{list}": [{rows}]}}"#)
    };
    let queues = text(
        "queues",
        format!(r#"{{"pid": 7, "queue_id": 1, "gpu_id": 9, "comm": "{evil}", "queue_type": "{evil}"}}"#),
    );
    let owner = format!(
        r#""namespace": "{evil}", "pod": "{evil}", "unit": "{evil}", "slurm_job": 1, "slurm_step": "{evil}""#
    );
    let processes = text("processes", format!(r#"{{"pid": 8, "alive": true, "comm": "{evil}", {owner}}}"#));
    let gpus =
        text("gpus", format!(r#"{{"gpu_id": 9, "pci": "{evil}", "name": "{evil}", "gfx": "{evil}"}}"#));
    let queues: Queues = read(queues.as_bytes()).expect("queues");
    let gpus: Gpus = read(gpus.as_bytes()).expect("GPUs");
    let snapshot = snapshot(&queues, read(processes.as_bytes()).expect("processes"), &gpus);
    let topology = topology(&gpus, None);
    let rows = ps::ordered(PsRow::from_snapshot(&snapshot, 0, 0), &Topology::default());
    let (mut table, mut json) = (Vec::new(), Vec::new());
    let view =
        PsView { asked: Default::default(), all_queues: true, topology: &topology, columns: Columns::All };
    ps::text(&mut table, &rows, &view).expect("memory");
    ps::json(&mut json, &rows, &view, None).expect("memory");
    for shown in [table, json] {
        let shown = String::from_utf8(shown).expect("UTF-8");
        assert!(shown.contains("2J"), "{shown}");
        let steers = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!shown.contains(steers), "{shown:?}");
    }
    let event = format!(
        r#"{{"ts": "2026-09-21T14:13:20Z", "event": "{evil}", "comm": "{evil}"}},
           {{"ts": "2026-09-21T14:13:20Z", "event": "evict", "trigger": "{evil}", "errno": "{evil}"}}"#
    );
    let events: Events = read(text("events", event).as_bytes()).expect("events");
    for event in events.reported() {
        let shown = format!("{}{}{}", event.name, event.comm.unwrap_or_default(), event.detail);
        assert!(
            shown.contains("2J") && !shown.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{shown:?}"
        );
    }
}

#[test]
fn figures_that_cannot_be_do_no_harm() {
    let row = r#"{"pid": 4294967295, "queue_id": 4294967295, "gpu_id": 9, "age_ns": 18446744073709551615,
        "queue_type": "compute_aql", "ring_address": "0xffffffffffffffff", "write_pointer_address": "0x8",
        "read_pointer_address": "0x10", "evictions": 18446744073709551615, "priority_changed_by": 1,
        "priority_changed_ns": 18446744073709551615, "ring_size": 18446744073709551615,
        "activity": {"submitted": 0, "retired": 18446744073709551615, "submitted_per_second": -1e308,
        "retired_per_second": 1e308, "idle_ns": 18446744073709551615, "stalled": true}}"#;
    let text = format!(r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", "queues": [{row}, {row}]}}"#);
    let queues: Queues = read(text.as_bytes()).expect("queues");
    let gpus = r#"{"schema": 1, "ts": "2026-09-21T14:13:20Z", "gpus": [{"gpu_id": 9, "evictions": 18446744073709551615,
        "sdma_engines": 4294967295, "sdma_queues_per_engine": 0, "slots": {"cp": 4294967295, "sdma_xgmi": 1}},
        {"gpu_id": 9, "evictions": 18446744073709551615}]}"#;
    let gpus: Gpus = read(gpus.as_bytes()).expect("GPUs");
    let none = br#"{"schema": 1, "processes": []}"#;
    let snapshot = snapshot(&queues, read(none).expect("none"), &gpus);
    assert_eq!(snapshot.queues().count(), 2, "none is left out");
    let topology = topology(&gpus, None);
    let rows = ps::ordered(PsRow::from_snapshot(&snapshot, queues.at_ns(), 0), &Topology::default());
    let mut out = Vec::new();
    let view =
        PsView { asked: Default::default(), all_queues: true, topology: &topology, columns: Columns::All };
    ps::text(&mut out, &rows, &view).expect("memory");
    assert_eq!(snapshot.totals.evictions_of(9), u64::MAX);
}
