//! Reused PIDs and queue ids: the old and the new object are never mixed.

use anyhow::{Context, Result, bail};
use kfd_trace_tests::harness::events::{self, mono_ns, of};
use kfd_trace_tests::harness::json_lines::JsonLines;
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Steered, Stream};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Creates and destroys queue 0 several times, alternating in type and GPU.
fn loops(steered: &mut Steered, times: usize) -> Result<()> {
    for turn in 0..times {
        let made = steered.act(KINDS[turn % KINDS.len()])?;
        assert_eq!((&made["errno"], &made["queue_id"]), (&Value::Null, &json!(0)), "{made}");
        assert_eq!(steered.act("destroy 0")?["errno"], Value::Null);
    }
    Ok(())
}

const KINDS: [&str; 4] = ["create aql", "create sdma gpu=1", "create sdma", "create aql gpu=1"];

/// Creations and ends of queue 0 of a KFD process alternate, and each end belongs to the creation before it.
fn in_pairs(lines: &[Value], kfd_process: &Value) -> usize {
    let lives: Vec<&Value> = lines
        .iter()
        .filter(|line| line["event"] == "queue_create" || line["event"] == "queue_destroy")
        .filter(|line| line["kfd_process"] == *kfd_process)
        .collect();
    let (pairs, rest) = lives.as_chunks::<2>();
    assert!(rest.is_empty(), "{rest:?}");
    for [birth, end] in pairs {
        assert_eq!((&birth["event"], &end["event"]), (&json!("queue_create"), &json!("queue_destroy")));
        for name in ["pid", "queue_id", "gpu_id", "queue_type"] {
            assert_eq!(birth[name], end[name], "{name}: {birth} {end}");
        }
        assert_eq!(end["lifetime_ns"], mono_ns(end) - mono_ns(birth), "{birth} {end}");
    }
    pairs.len()
}

#[test]
fn a_queue_id_given_again_is_a_queue_of_its_own() -> Result<()> {
    const TIMES: usize = 60;
    let stream = Stream::shared()?;
    let mut workload = Steered::start()?;
    let pid = workload.pid();
    loops(&mut workload, TIMES)?;
    events::wait(&stream, "queue_destroy", pid, TIMES)?;
    let lines = stream.lines();
    let seen = of(&lines, "process_seen", pid);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(in_pairs(&lines, &seen[0]["kfd_process"]), TIMES);
    let rings: Vec<Value> =
        of(&lines, "queue_create", pid).iter().map(|birth| birth["ring_address"].clone()).collect();
    let own: Vec<Value> = workload.queues().iter().map(|queue| queue["ring"].clone()).collect();
    assert_eq!(rings, own);
    let ends = of(&lines, "queue_destroy", pid);
    assert!(ends.len() == TIMES && ends.iter().all(|end| end["cause"] == "ioctl"), "{ends:?}");
    stream.end()
}

/// Processes with one PID, one after another, each with queues and killed; `None` if the PID was lost to a
/// long-lived task, for example a kernel worker.
fn lives_of_one_pid(stream: &JsonLines) -> Result<Option<u32>> {
    let mut pid = None;
    for life in 0..LIVES {
        let mut workload = match pid {
            None => Steered::start()?,
            Some(pid) => match Steered::with_pid(pid)? {
                Some(workload) => workload,
                None => return Ok(None),
            },
        };
        let own = workload.pid();
        pid = Some(own);
        loops(&mut workload, 1 + life)?;
        // the last queue dies with the process
        let left = workload.act(KINDS[life % KINDS.len()])?;
        let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
        let rows: Vec<Value> = ps["queues"]
            .as_array()
            .context("queues")?
            .iter()
            .map(|row| json!([row["pid"], row["queue_id"], row["ring_address"]]))
            .collect();
        assert_eq!(rows, [json!([own, 0, left["ring"]])]);
        workload.signal(Signal::SIGKILL)?;
        workload.wait_exit(SOON)?;
        events::wait(stream, "process_release", own, life + 1)?;
    }
    Ok(pid)
}

const LIVES: usize = 6;

#[test]
fn a_pid_given_again_is_a_process_of_its_own() -> Result<()> {
    // one stream per try: events of a lost PID do not affect the next
    for _ in 0..5 {
        let stream = Stream::shared()?;
        if let Some(pid) = lives_of_one_pid(&stream)? {
            are_distinguished(&stream, pid)?;
            return stream.end();
        }
        stream.end()?;
    }
    bail!("each of the PIDs was lost to another task")
}

/// Every process of this PID is reported as a separate one, with its own queues.
fn are_distinguished(stream: &JsonLines, pid: u32) -> Result<()> {
    let lines = stream.lines();
    let seen = of(&lines, "process_seen", pid);
    assert_eq!(seen.len(), LIVES, "{seen:?}");
    let differ = |name: &str| seen.iter().map(|seen| seen[name].to_string()).collect::<BTreeSet<_>>().len();
    assert_eq!((differ("kfd_process"), differ("start_boottime_ns")), (LIVES, LIVES), "{seen:?}");
    for (life, seen) in seen.iter().enumerate() {
        let own = &seen["kfd_process"];
        assert_eq!(in_pairs(&lines, own), life + 2);
        let causes: Vec<Value> = of(&lines, "queue_destroy", pid)
            .into_iter()
            .filter(|end| end["kfd_process"] == *own)
            .map(|end| end["cause"].clone())
            .collect();
        assert_eq!(causes.iter().filter(|cause| *cause == "process_death").count(), 1, "{causes:?}");
        let release = of(&lines, "process_release", pid);
        assert_eq!(release[life]["kfd_process"], *own, "{release:?}");
    }
    let queues: usize = (0..LIVES).map(|life| life + 2).sum();
    assert_eq!((stream.events("queue_create").len(), stream.events("queue_destroy").len()), (queues, queues));
    Ok(())
}
