//! Evictions at one look and at two, of each trigger.

use super::*;
use crate::doctor::evicted::{AllEvicted, of_state};
use crate::doctor::samples::{GPU, PID, sampled, seen};
use crate::doctor::{DoctorOutcome, diagnose};
use crate::model::event::{Body, ProcessId};
use crate::model::incident::Eviction;
use crate::state::samples::{create, event, seen as seen_event, state};

const S: u64 = 1_000_000_000;

fn from(trigger: Option<Trigger>, seconds: u64) -> EvictedFrom {
    EvictedFrom { gpu_id: GPU, trigger, lasts_ns: seconds * S }
}

/// The sample process, evicted like this, with these packets submitted and retired.
fn node(evicted: Vec<EvictedFrom>, submitted: u64, retired: u64) -> Observed {
    let sampled = Sampled { packets_submitted: submitted, packets_retired: retired, ..sampled() };
    Observed { evicted: [(PID, evicted)].into(), sampled: Ok([(PID, sampled)].into()), ..seen() }
}

fn found(now: &Observed, before: Option<&Observed>) -> (DoctorOutcome, Vec<String>) {
    let report = diagnose(now, before, None);
    let row = report.processes.iter().find(|row| row.pid == PID).expect("it");
    let more = row.findings.iter().filter(|kind| !matches!(kind, FindingKind::Seen { .. }));
    (report.outcome, more.map(|kind| format!("{}: {}", kind.name(), kind.sentence())).collect())
}

#[test]
fn an_eviction_that_lasts_is_wrong_at_one_look() {
    let now = node(vec![from(Some(Trigger::Svm), 754)], 20, 8);
    let (outcome, lines) = found(&now, None);
    assert_eq!((outcome, lines.len()), (DoctorOutcome::Wrong, 1));
    let begin = "not_restored: It was evicted from GPU 51610 by svm 754 s ago and not restored; backlog 12 packets. A buffer";
    assert!(lines[0].starts_with(begin) && lines[0].contains("memory.high"), "{lines:?}");
    assert!(!diagnose(&now, None, None).unsettled, "there is nothing to wait for");
    let other = EvictedFrom { gpu_id: GPU + 1, ..from(Some(Trigger::Svm), 800) };
    let fault = EvictedFrom { gpu_id: GPU + 2, ..from(Some(Trigger::Fault), 70) };
    let (_, lines) = found(&node(vec![from(Some(Trigger::Svm), 754), other, fault], 20, 8), None);
    assert!(lines[0].contains("from GPUs 51610, 51611 by svm 800 s ago"), "{lines:?}");
    assert!(
        lines[1].contains("from GPU 51612 by fault 70 s ago") && lines[1].contains("it must end"),
        "{lines:?}"
    );
}

#[test]
fn a_checkpoint_that_holds_a_process_is_no_fault() {
    let (outcome, lines) = found(&node(vec![from(Some(Trigger::CriuCheckpoint), 300)], 8, 8), None);
    assert_eq!((outcome, lines.len()), (DoctorOutcome::Well, 1));
    assert!(lines[0].contains("CRIU"), "{lines:?}");
}

#[test]
fn an_eviction_that_has_just_begun_is_looked_at_again() {
    let short = |retired| node(vec![from(None, 0)], 20, retired);
    assert_eq!(found(&short(8), None), (DoctorOutcome::Well, vec![]), "it may end any moment");
    assert!(diagnose(&short(8), None, None).unsettled);
    assert!(!diagnose(&node(vec![], 20, 8), None, None).unsettled);
    assert_eq!(
        found(&short(8), Some(&node(vec![], 20, 8))).1,
        Vec::<String>::new(),
        "it was not evicted then"
    );
    let (outcome, lines) = found(&short(8), Some(&short(8)));
    assert_eq!((outcome, lines.len()), (DoctorOutcome::Wrong, 1));
    assert!(
        lines[0].starts_with("not_restored: It is evicted from GPU 51610 at two looks, and nothing"),
        "{lines:?}"
    );
    for before in [short(7), Observed { sampled: Err("no BTF".to_owned()), ..short(8) }] {
        let (outcome, lines) = found(&short(8), Some(&before));
        assert_eq!(
            (outcome, lines.len()),
            (DoctorOutcome::Well, 1),
            "it worked in between, or that is not known"
        );
        assert!(lines[0].starts_with("evicted: It is evicted from GPU 51610 at two looks."), "{lines:?}");
    }
    let idle = short(20);
    assert!(found(&idle, Some(&idle)).1[0].starts_with("evicted: "), "nothing of it waits");
}

#[test]
fn what_is_not_measured_has_no_backlog() {
    let now = Observed { sampled: Err("no BTF".to_owned()), ..node(vec![from(None, 61)], 9, 9) };
    let (_, lines) = found(&now, None);
    assert!(lines[0].contains("from GPU 51610 61 s ago and not restored; its backlog"), "{lines:?}");
    assert!(lines[0].contains("its backlog is not measured"), "{lines:?}");
}

#[test]
fn evictions_are_those_of_live_processes_with_queues_there() {
    let eviction = |gpu_id, trigger| Eviction { gpu_id: Some(gpu_id), trigger, errno: 0, latency_ns: 5 };
    let mut state = state();
    state.apply(&event(S, 1, 700, seen_event(false)));
    state.apply(&event(S, 1, 700, create(3)));
    for gpu_id in [58270, 7] {
        state.apply(&event(2 * S, 1, 700, Body::Evict(eviction(gpu_id, Some(Trigger::Svm)))));
    }
    let all = of_state(&state, 92 * S);
    let expected = EvictedFrom { gpu_id: 58270, trigger: Some(Trigger::Svm), lasts_ns: 90 * S };
    assert_eq!(all, AllEvicted::from([(700, vec![expected])]));
    state.apply(&event(95 * S, 1, 700, Body::ProcessRelease));
    assert!(state.process(ProcessId(1).into()).is_some());
    assert_eq!(of_state(&state, 99 * S), AllEvicted::new());
}
