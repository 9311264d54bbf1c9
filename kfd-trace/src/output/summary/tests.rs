use super::*;
use crate::events::decode::{DecodeError, Undecodable};
use crate::events::tables::{IoctlRow, Tables};
use crate::events::undecoded::Undecoded;
use crate::model::counters::samples::counters;
use crate::model::event::{Body, Event};
use crate::model::missed::Missed;
use crate::model::pointers::Counts;
use crate::model::runlist::samples::{list, preemption};
use crate::model::runlist::{Preemption, Reason, Runlist};
use crate::output::samples::{CREATE, DESTROY, PID, WAIT, sampled, traced};
use crate::state::samples::{destroy, error_row, event, ioctl_row, open_call};
use kfd_trace_common::counter::{self, ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::loss;
use kfd_trace_common::stat::IoctlStat;
use serde_json::json;

fn missed(program_skipped: Option<u64>, probe_missed: Option<u64>) -> Missed {
    Missed { program_skipped, probe_missed }
}

fn summary(tables: &Tables, retired: &IoctlTotals) -> (String, serde_json::Value) {
    with_dropped(tables, retired, &Undecoded::default(), &BTreeMap::new())
}

fn with_dropped(
    tables: &Tables,
    retired: &IoctlTotals,
    undecoded: &Undecoded,
    dropped: &BTreeMap<&'static str, u64>,
) -> (String, serde_json::Value) {
    let snapshot = traced().snapshot();
    let input = SummaryInput {
        named: crate::model::ioctl::Named::default(),
        snapshot: &snapshot,
        topology: &Topology::default(),
        tables,
        retired,
        undecoded,
        dropped,
        sampled: true,
        duration_ns: 2_500_000_000,
    };
    let summary = Summary::new(&input);
    let (mut text, mut object) = (Vec::new(), Vec::new());
    summary.text(&mut text).expect("memory");
    summary.json(&mut object).expect("memory");
    (String::from_utf8(text).expect("UTF-8"), serde_json::from_slice(&object).expect("JSON"))
}

#[test]
fn the_summary_of_a_clean_run_as_a_whole() {
    let tables = Tables {
        ioctls: vec![ioctl_row(1, CREATE, 3, 1_500), ioctl_row(1, DESTROY, 10, 900)],
        errors: vec![error_row(1, CREATE, 22, 2)],
        missed: BTreeMap::from([(ProbeId::Ioctl, missed(Some(0), Some(0)))]),
        ..Tables::default()
    };
    let (text, value) = summary(&tables, &IoctlTotals::default());
    let expected = concat!(
        "--- summary of 2.50s ---\n",
        "IOCTL          CALLS   MEAN  P50 BELOW  P99 BELOW  ERRORS\n",
        "DESTROY_QUEUE     10  900ns      1.0us      1.0us  -\n",
        "CREATE_QUEUE       3  1.5us      2.0us      2.0us  EINVAL 2\n",
        "\nqueues: 0 existing, 1 created, 0 destroyed, 1 alive\n",
        "nothing was lost\n",
    );
    assert_eq!(text, expected);
    assert_eq!(value["event"], "summary");
    assert_eq!(value["lost"], json!({}));
    assert_eq!(value["misses_not_measured"], json!([]));
    assert_eq!(
        value["ioctls"][1],
        json!({"ioctl": "CREATE_QUEUE", "calls": 3, "measured": 3, "errors": {"EINVAL": 2}, "mean_ns": 1500,
               "p50_below_ns": 2048, "p99_below_ns": 2048})
    );
}

#[test]
fn everything_that_was_lost_or_not_measured_is_named() {
    let losses = [
        (loss::lost(ProbeId::IoctlReturn, Kind::Ioctl), 7),
        (loss::trouble(ProbeId::Ioctl, Trouble::InFlightFull), 5),
    ];
    let counters = counters(&[(counter::sent(Kind::Ioctl), 3)], &losses);
    let mut undecoded = Undecoded::default();
    undecoded.count(&Undecodable { error: DecodeError::Kind(99), probe: Some(ProbeId::Open) });
    let mut wait = ioctl_row(1, WAIT, 0, 0);
    wait.stat.entered = 4;
    let mut destroy = ioctl_row(1, DESTROY, 10, 900);
    destroy.stat.entered = 14;
    destroy.stat.no_return_seen = 1;
    let tables = Tables {
        ioctls: vec![wait, destroy],
        in_flight: vec![open_call(1, DESTROY, 9, 1)],
        counters,
        missed: BTreeMap::from([
            (ProbeId::Ioctl, missed(Some(6), None)),
            (ProbeId::IoctlReturn, missed(Some(0), None)),
        ]),
        ..Tables::default()
    };
    let dropped = BTreeMap::from([("queue_create", 8)]);
    let (text, value) = with_dropped(&tables, &IoctlTotals::default(), &undecoded, &dropped);
    assert_eq!(
        value["lost"],
        json!({
            "records lost, ioctl, ioctl_return": 7, "trouble, in_flight_full, ioctl": 5,
            "records not decoded, kind, open": 1,
            "no return seen, DESTROY_QUEUE": 1, "still in flight, DESTROY_QUEUE": 1,
            "missed return, DESTROY_QUEUE": 2, "program skipped, ioctl": 6, "lines dropped, queue_create": 8,
        })
    );
    assert_eq!(value["misses_not_measured"], json!(["probe_missed"]));
    assert!(text.contains("not measured on this kernel: probe_missed\n"), "{text}");
    assert_eq!(value["records"], json!({"ioctl": 3}));
    assert!(
        text.contains("\nlost:\n") && text.contains("  records lost, ioctl, ioctl_return: 7\n"),
        "{text}"
    );
    assert!(!text.contains("nothing was lost"));
    assert_eq!(value["not_measured"], json!({"WAIT_EVENTS": 4}));
    assert!(text.contains("not measured by design: results and latencies of 4 WAIT_EVENTS\n"), "{text}");
    assert_eq!(value["event_waits"], json!(null));
    let line = text.lines().find(|line| line.starts_with("WAIT_EVENTS")).expect("a line");
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>(),
        ["WAIT_EVENTS", "4", "-", "-", "-", "not", "measured"]
    );
}

#[test]
fn threads_that_still_wait_for_events_are_named_and_not_lost() {
    let mut wait = ioctl_row(1, WAIT, 2, 7_000);
    wait.stat.entered = 302;
    let asleep = (0..300).map(|tid| open_call(1, WAIT, tid, 1)).collect();
    let tables = Tables { ioctls: vec![wait.clone()], whole_calls: true, ..Tables::default() };
    let missed = BTreeMap::from([(ProbeId::Ioctl, missed(Some(0), Some(0)))]);
    let tables = Tables { missed, ..tables.with_open(asleep) };
    let (text, value) = summary(&tables, &IoctlTotals::default());
    assert_eq!((&value["lost"], &value["not_measured"]), (&json!({}), &json!({})));
    assert_eq!(value["event_waits"], json!(300));
    assert!(text.ends_with("still asleep in WAIT_EVENTS: 300 threads\nnothing was lost\n"), "{text}");
    let line = text.lines().find(|line| line.starts_with("WAIT_EVENTS")).expect("a line");
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>(),
        ["WAIT_EVENTS", "302", "7.0us", "8.2us", "8.2us", "-"]
    );
    let asleep = IoctlRow { stat: IoctlStat { entered: 300, ..IoctlStat::ZERO }, ..wait.clone() };
    let (text, _) = summary(&Tables { ioctls: vec![asleep], ..tables.clone() }, &IoctlTotals::default());
    let line = text.lines().find(|line| line.starts_with("WAIT_EVENTS")).expect("a line");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["WAIT_EVENTS", "300", "-", "-", "-", "-"]);
    // Three entered and neither sleep nor returned; another call is in flight.
    wait.stat.entered = 305;
    let mut destroy = ioctl_row(1, DESTROY, 0, 0);
    destroy.stat.entered = 1;
    let open = [vec![open_call(1, DESTROY, 300, 1)], tables.waits.clone()].concat();
    let tables = Tables { ioctls: vec![wait, destroy], ..tables.with_open(open) };
    let (_, value) = summary(&tables, &IoctlTotals::default());
    assert_eq!(value["lost"], json!({"missed return, WAIT_EVENTS": 3, "still in flight, DESTROY_QUEUE": 1}));
}

#[test]
fn queue_activity_is_shown_by_process_and_gpu() {
    let mut state = traced();
    sampled(&mut state, 3, Ok(Counts { submitted: 127_644, retired: 127_644 }), 30_000);
    state.apply(&event(40_000, 1, 4321, destroy(3)));
    let snapshot = state.snapshot();
    let (tables, retired) = (Tables::default(), IoctlTotals::default());
    let shown = |sampled| {
        let input = SummaryInput {
            named: crate::model::ioctl::Named::default(),
            snapshot: &snapshot,
            topology: &Topology::default(),
            tables: &tables,
            retired: &retired,
            undecoded: &Undecoded::default(),
            dropped: &BTreeMap::new(),
            sampled,
            duration_ns: 1,
        };
        let summary = Summary::new(&input);
        let mut text = Vec::new();
        summary.text(&mut text).expect("memory");
        let value = serde_json::to_value(&summary).expect("JSON");
        (String::from_utf8(text).expect("UTF-8"), value["activity"].clone())
    };
    let (text, value) = shown(true);
    let line = "process 4321 train on gpu_id=58270: 127644 packets submitted, 127644 retired; 1 queue ended without a last reading\n";
    assert!(text.contains(line), "{text}");
    assert_eq!(
        value,
        json!([{"pid": 4321, "comm": "train", "gpu_id": 58270, "packets_submitted": 127_644, "packets_retired": 127_644,
                "sdma_ring_bytes_submitted": 0, "sdma_ring_bytes_retired": 0, "queues_incomplete": 1}])
    );
    let (text, value) = shown(false);
    assert!(!text.contains("packets") && value == json!([]), "nothing was sampled");
}

#[test]
fn several_processes_are_shown_each_and_retired_ones_are_in_the_sum() {
    let mut retired = IoctlTotals::default();
    retired.retire(&Tables { ioctls: vec![ioctl_row(9, CREATE, 100, 1)], ..Tables::default() });
    let tables =
        Tables { ioctls: vec![ioctl_row(1, CREATE, 3, 1), ioctl_row(2, CREATE, 4, 1)], ..Tables::default() };
    let (text, value) = summary(&tables, &retired);
    assert_eq!(value["ioctls"][0]["calls"], 107);
    assert_eq!(value["processes"][0]["pid"], 4321);
    assert_eq!(value["processes"][1]["pid"], serde_json::Value::Null);
    assert!(text.contains("\nprocess 4321 train\n") && text.contains("\nprocess ? ?\n"), "{text}");
}

#[test]
fn who_lets_whom_wait() {
    let mut state = traced();
    let reason = Some(Reason::Update);
    let preemption = Preemption { reason, latency_ns: 3_000, ..preemption() };
    state.apply(&event(40_000, 1, PID, Body::Preempt(preemption)));
    state.apply(&event(50_000, 1, PID, Body::Preempt(Preemption { errno: 62, ..preemption })));
    let of_none = Event { process: None, tgid: None, ..event(60_000, 1, PID, Body::Preempt(preemption)) };
    state.apply(&of_none);
    let unsent = Runlist { reason, unmapped_ns: None, errno: 12, ..list() };
    state.apply(&Event { process: None, tgid: None, ..event(70_000, 1, PID, Body::Runlist(unsent)) });
    let snapshot = state.snapshot();
    let reasons = serde_json::to_value(preemptions::by_reason(&snapshot, &Topology::default())).unwrap();
    assert_eq!(
        reasons,
        json!([{
            "gpu_id": 58270, "reason": "update", "preemptions": 2, "failed": 1,
            "mean_ns": 3_000, "p99_below_ns": 4_096, "runlists": 0, "runlists_failed": 1,
        }])
    );
    let mut text = Vec::new();
    let (reasons, processes) = (
        preemptions::by_reason(&snapshot, &Topology::default()),
        preemptions::by_process(&snapshot, &Topology::default()),
    );
    preemptions::text(&mut text, &reasons, &processes).unwrap();
    let expected = concat!(
        "\nGPU_ID  REASON  PREEMPTIONS  FAILED   MEAN  P99 BELOW  RUNLISTS  FAILED\n",
        "58270   update            2       1  3.0us      4.1us         0       1\n",
        "\n PID  COMM   GPU_ID  PREEMPTS   TOOK  WAITED FOR  WAITED\n",
        "4321  train  58270          2  6.0us           1   3.0us\n",
    );
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}
