//! What is more, longer or more often than a daemon has it.

use super::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn document(list: &str, rows: &str) -> Vec<u8> {
    format!(r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", "{list}": [{rows}]}}"#).into_bytes()
}

fn state(queues: &str, processes: &str) -> Snapshot {
    let queues: Queues = read(&document("queues", queues)).expect("queues");
    let processes = read(&document("processes", processes)).expect("processes");
    snapshot(&queues, processes, &read(&document("gpus", "")).expect("none"))
}

#[test]
fn long_texts_are_cut_and_the_queues_of_a_process_share_them() {
    let long = "é".repeat(30_000);
    let queues = r#"{"pid": 7, "queue_id": 1}, {"pid": 7, "queue_id": 2}"#;
    let process =
        format!(r#"{{"pid": 7, "alive": true, "comm": "{long}", "cgroup": "{long}", "unit": "x"}}"#);
    let rows = ps::ordered(PsRow::from_snapshot(&state(queues, &process), 0, 0), &Topology::default());
    let [one, other] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert!(Arc::ptr_eq(&one.details, &other.details) && Arc::ptr_eq(&one.vram, &other.vram));
    let cut = |text: Option<&str>, bytes: usize| {
        let text = text.expect("a text");
        assert!(text.len() <= bytes + 3 && text.ends_with("é..."), "{} bytes", text.len());
    };
    cut(one.comm.as_deref(), 256);
    cut(one.details.cgroup.as_deref(), 4_096);
    assert_eq!(one.details.belongs.unit.as_deref(), Some("x"), "short ones are whole");
    let gpus: Gpus = read(&document("gpus", &format!(r#"{{"gpu_id": 9, "name": "{long}"}}"#))).expect("GPUs");
    let name = topology(&gpus, None).gpus[0].name.clone();
    assert!(name.is_some_and(|name| name.ends_with("é...") && name.len() < 300));
}

#[test]
fn queues_end_where_those_of_a_process_and_of_a_daemon_do() {
    let of = |pids: &mut dyn Iterator<Item = usize>| {
        let rows: Vec<String> = pids.map(|pid| format!(r#"{{"pid": {pid}}}"#)).collect();
        read::<Queues>(&document("queues", &rows.join(","))).err()
    };
    assert_eq!(of(&mut std::iter::repeat_n(7, 4_096)), None);
    let many = Some(NotRead::Foreign("a process has more than 4096 queues".to_owned()));
    assert_eq!(of(&mut std::iter::repeat_n(7, 4_097)), many);
    assert_eq!(of(&mut (0..65_536)), None);
    let refused = of(&mut (0..65_537));
    assert!(matches!(&refused, Some(NotRead::Foreign(why)) if why.contains("65536")), "{refused:?}");
}

#[test]
fn rows_that_differ_in_their_process_alone_stay_apart() {
    let process = r#"{"pid": 7, "alive": true, "comm": "a"}, {"pid": 7, "alive": true, "comm": "b"},
        {"pid": 7, "alive": true, "kfd_process": "12"}"#;
    let queue = r#""pid": 7, "queue_id": 1, "gpu_id": 9"#;
    let queues = format!(
        r#"{{{queue}, "sources": ["sysfs"]}}, {{{queue}, "sources": ["kernel"]}},
            {{{queue}, "sources": ["probe"], "kfd_process": "12"}}"#
    );
    let state = state(&queues, process);
    let keys: BTreeSet<_> = state.processes.iter().map(|process| process.key).collect();
    assert_eq!((state.processes.len(), keys.len()), (3, 3));
    let rows = ps::ordered(PsRow::from_snapshot(&state, 0, 0), &Topology::default());
    let mut sources: Vec<_> = rows.iter().map(|row| (row.queue_id(), row.sources.to_string())).collect();
    sources.sort();
    let expected = ["kernel", "probe", "sysfs"].map(|source| (Some(1), source.to_owned()));
    assert_eq!(sources, expected);
}

#[test]
fn fresh_numbers_are_not_those_of_the_answer() {
    let last = format!(r#"{{"pid": {0}, "context_id": {0}, "alive": true}}"#, u32::MAX);
    let own = r#"{"pid": 7, "alive": true}"#;
    for rows in [[own, own, &last, &last, own], [&last, own, own, own, &last]] {
        let state = state("", &rows.join(","));
        let keys: BTreeSet<_> = state.processes.iter().map(|process| process.key).collect();
        assert_eq!((state.processes.len(), keys.len()), (5, 5), "{keys:?}");
    }
}

#[test]
fn problems_are_named_counted_and_few() {
    let status = |meaning: &str| {
        let text = format!(
            r#"{{"schema": 1, "ts": "2026-09-21T14:13:20Z", "tracing": true, "meaning": [{meaning}], "probes": [],
                "unreadable": ["nodes/1: no"], "lost": {{"events": 3, "nothing": 0}}}}"#
        );
        read::<Status>(text.as_bytes()).expect("status").problems()
    };
    let expected = ["not seen: x\\u{1b}", "not readable: nodes/1: no", "lost: 3 (events)"];
    assert_eq!(status(r#""x\u001b""#), expected);
    let many = status(&[r#""x""#; 500].join(","));
    assert!(many.len() == 31 && many.last().is_some_and(|line| line.starts_with("and more: ")), "{many:?}");
}
