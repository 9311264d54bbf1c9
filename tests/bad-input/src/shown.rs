//! Every output, and what none of its texts may contain.

use jiff::tz::TimeZone;
use kfd_trace::attribute::Topology;
use kfd_trace::events::tables::{IoctlRow, Tables};
use kfd_trace::events::undecoded::Undecoded;
use kfd_trace::kernel::types::TypesReport;
use kfd_trace::model::event::{Body, Event};
use kfd_trace::model::ioctl::Named;
use kfd_trace::model::verdict::{ProbeStatus, Verdict};
use kfd_trace::output::api::{self, ApiView, EventsView, HeldView, Tracing};
use kfd_trace::output::event::context::Context;
use kfd_trace::output::event::json;
use kfd_trace::output::event::stream::Stream;
use kfd_trace::output::metrics::{self, Build, Detail, Format, Scrape};
use kfd_trace::output::page::{self, PageQuery, PageView, Past, Place, Rates};
use kfd_trace::output::ps::{self, Columns};
use kfd_trace::output::summary::{Summary, SummaryInput};
use kfd_trace::state::{
    Change, Class, Filter, History, IoctlTotals, SampleTotals, Snapshot, Source, Sources, State,
};
use kfd_trace::text::clock::Clock;
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;
use std::time::Duration;

const NOW_NS: u64 = 3_600_000_000_000;

/// CLOCK_MONOTONIC 0, nanoseconds of the Unix epoch.
pub(crate) const BOOT_NS: i64 = 1_790_000_000_000_000_000;

/// Longest page, in bytes.
const PAGE: usize = 512 << 10;

/// Longest message about an input, in bytes.
const MESSAGE: usize = 1000;

/// Checks for a message of one clear line.
///
/// # Panics
/// When it is not.
pub fn line(text: &str) {
    assert!(!text.is_empty() && text.len() < MESSAGE && !text.contains('\n'), "{text:?}");
    printable(text);
}

/// Checks that nothing controls a terminal (control characters of either range) or changes the direction of
/// writing.
///
/// # Panics
/// When something does.
pub fn printable(text: &str) {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let steers = text.chars().find(|c| c.is_control() && *c != '\n' || turns(*c));
    assert!(steers.is_none(), "{steers:?} in {text:?}");
}

/// One event in the stream, as text and as JSON: one line each, and the JSON has the comm unchanged.
///
/// # Panics
/// When it does not.
pub fn event(event: &Event, change: &Change, state: &State, topology: &Topology) {
    let clock = clock();
    let context = Context::new(change, state, &clock, topology, Named::default(), None);
    let text = written(|out| Stream { colour: false }.event(out, event, &context));
    assert_eq!(text.matches('\n').count(), 1, "{text:?}");
    let text = written(|out| json::event(out, event, &context));
    assert_eq!(text.matches('\n').count(), 1, "{text:?}");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["event"], event.body.kind().name());
    if let (Body::ProcessSeen(seen), None) = (&event.body, context.process) {
        assert_eq!(value["comm"].as_str(), seen.comm.as_deref());
    }
}

/// All outputs of a state: `ps`, the API, the page, the metrics, the summary.
///
/// # Panics
/// When a guarantee was violated.
pub fn world(
    state: &State,
    history: &History,
    topology: &Topology,
    ioctls: &[IoctlRow],
    undecoded: &Undecoded,
) {
    let (snapshot, clock) = (state.snapshot(), clock());
    let rows = ps::merge(vec![ps::PsRow::from_snapshot(&snapshot, NOW_NS, NOW_NS)], topology);
    let asked = Sources::from(Source::Probe).with(Source::Sysfs);
    for columns in [Columns::All, Columns::Usual { width: Some(80) }] {
        written(|out| ps::text(out, &rows, &ps::PsView { asked, all_queues: true, topology, columns }));
    }
    let view = ps::PsView { asked, all_queues: true, topology, columns: Columns::All };
    document(&written(|out| ps::json(out, &rows, &view, clock.rfc3339(NOW_NS))));
    let view = ApiView { snapshot: &snapshot, topology, clock: &clock, now_ns: NOW_NS };
    for made in [api::queues(&view), api::processes(&view), api::gpus(&view)] {
        document(&made.expect("a document"));
    }
    past(history, &view);
    let tables = Tables { ioctls: ioctls.to_vec(), ..Tables::default() };
    exposition(&snapshot, topology, &tables, undecoded);
    let (retired, dropped) = (IoctlTotals::default(), BTreeMap::new());
    let input = SummaryInput {
        snapshot: &snapshot,
        topology,
        tables: &tables,
        retired: &retired,
        undecoded,
        dropped: &dropped,
        named: Named::default(),
        sampled: true,
        duration_ns: NOW_NS,
    };
    let summary = Summary::new(&input);
    written(|out| summary.text(out));
    document(&written(|out| summary.json(out)));
}

/// The history, as JSON and on the page, which runs no script but its own and is not long.
fn past(history: &History, now: &ApiView<'_>) {
    let kept = Class::ALL.map(|class| (class, history.kept(class)));
    let found = history.find(&Filter::newest(usize::MAX));
    let ts = now.clock.rfc3339(NOW_NS);
    let view =
        EventsView { ts: ts.clone(), began_ns: BOOT_NS, known_since_ns: BOOT_NS, found: &found, kept: &kept };
    document(&api::events(&view).expect("a document"));
    let ended = history.ended_after(BOOT_NS);
    let queues = history.kept(Class::Queues);
    let view =
        HeldView { now, ended: &ended, at_ns: BOOT_NS, known_since_ns: BOOT_NS, kept: queues, traced: true };
    document(&api::held(&view).expect("a document"));
    let tracing = Tracing {
        ts: &ts,
        began_ns: BOOT_NS,
        known_since_ns: BOOT_NS,
        why_not: None,
        types: &TypesReport::default(),
        probes: &[],
        missed: &BTreeMap::new(),
        losses: &BTreeMap::new(),
        lost: &BTreeMap::new(),
        queues_by_ioctl: false,
        sample_interval_ns: 1_000_000_000,
        driver_loads: 1,
        topology: now.topology,
        kept: &kept,
    };
    document(&api::status(&tracing).expect("a document"));
    let pid = now.snapshot.processes.iter().find_map(|process| process.tgid).unwrap_or(1).to_string();
    let at = (BOOT_NS / 1_000_000_000).to_string();
    for (place, pairs) in [
        (Place::Node, vec![]),
        (Place::Node, vec![("sort", "rate"), ("q", pid.as_str())]),
        (Place::Node, vec![("at", at.as_str())]),
        (Place::Process, vec![("pid", pid.as_str())]),
        (Place::Queue, vec![("pid", pid.as_str()), ("queue", "1")]),
    ] {
        let pairs: Vec<_> =
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let query = PageQuery::new(place, &pairs).expect("a query");
        let past = Past::of(&query.subject, history);
        let view = PageView { now: Some(now), tracing: &tracing, past: &past, rates: &Rates::default() };
        let html = page::html(&view, &query).expect("a page");
        printable(&html);
        assert!(html.len() < PAGE && html.matches("<script").count() == 1, "{} bytes", html.len());
    }
}

/// Prometheus' input: each line is a comment, or a series with a number.
fn exposition(snapshot: &Snapshot, topology: &Topology, tables: &Tables, undecoded: &Undecoded) {
    let attached = |id: &ProbeId| ProbeStatus {
        id: *id,
        kind: "kprobe",
        symbols: Vec::new(),
        places: 1,
        required: false,
        may_lack: false,
        feeds: "",
        verdict: Verdict::Attached,
    };
    let probes: Vec<_> = ProbeId::ALL.iter().map(attached).collect();
    let scrape = Scrape {
        snapshot,
        queues_by_ioctl: false,
        sysfs: None,
        tables: Some(tables),
        collectors: &[],
        retired: &IoctlTotals::default(),
        samples: &SampleTotals::default(),
        probes: &probes,
        topology,
        undecoded,
        named: Named::default(),
        build: Build::OWN,
        types: &TypesReport::default(),
        capacities: &[],
        recording: None,
        exported: None,
        driver_loaded: true,
        driver_loads: 1,
        admitted: None,
        detail: Detail {
            processes: Some(200),
            new_processes: 1000,
            queues: Some(200),
            linger: Duration::from_secs(300),
        },
        now_ns: NOW_NS,
        wall_minus_mono_ns: 0,
        start_time_seconds: 0.0,
        duration_seconds: 0.0,
    };
    for format in [Format::Text, Format::OpenMetrics] {
        let text = metrics::exposition(&scrape, format).expect("families that are well formed");
        printable(&text);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let value = line.rsplit_once(' ').map(|(_, value)| value.parse::<f64>());
            assert!(matches!(value, Some(Ok(_))), "{line:?}");
        }
        assert_eq!(text.ends_with("\n# EOF\n"), format == Format::OpenMetrics);
    }
}

pub(crate) fn clock() -> Clock {
    Clock { mono_to_wall_ns: 1_790_000_000_000_000_000, zone: TimeZone::UTC }
}

/// The output, as text that controls no terminal.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory takes all that is written");
    let text = String::from_utf8(out).expect("UTF-8");
    printable(&text);
    text
}

/// JSON with a schema.
pub(crate) fn document(text: &str) {
    printable(text);
    let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(value["schema"], 1);
}
