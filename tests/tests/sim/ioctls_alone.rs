//! Queues without BTF of the driver: tracked from the arguments and results of the ioctls alone.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::other_sysfs::{without_btf, without_types};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, Workload, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Fields under the daemon's names and the workload's.
const FACTS: [(&str, &str); 6] = [
    ("gpu_id", "gpu_id"),
    ("queue_type", "queue_type"),
    ("ring_address", "ring"),
    ("ring_size", "ring_size"),
    ("write_pointer_address", "wptr"),
    ("read_pointer_address", "rptr"),
];

/// By PID and queue id: what is known of the queue.
type Listed = BTreeMap<(u64, u64), Value>;

fn key(pid: &Value, queue: &Value) -> Result<(u64, u64)> {
    Ok((pid.as_u64().context("pid")?, queue["queue_id"].as_u64().context("queue_id")?))
}

/// `GET /api/v1/queues`
fn listed(daemon: &Daemon) -> Result<Listed> {
    let body = daemon.json("/api/v1/queues")?;
    let rows = body["queues"].as_array().with_context(|| format!("no queues in {body}"))?;
    let row = |row: &Value| {
        let facts: Vec<&Value> = FACTS.iter().map(|(name, _)| &row[*name]).collect();
        Ok((key(&row["pid"], row)?, json!(facts)))
    };
    rows.iter().map(row).collect()
}

/// Queues that a workload created, except those it destroyed.
fn made(workload: &Workload, destroyed: &[u64]) -> Result<Listed> {
    let mut made = Listed::new();
    for queue in workload.queues() {
        let facts: Vec<&Value> = FACTS.iter().map(|(_, name)| &queue[*name]).collect();
        made.insert(key(&json!(workload.pid()), &queue)?, json!(facts));
    }
    made.retain(|(_, queue_id), _| !destroyed.contains(queue_id));
    Ok(made)
}

/// Waits until the daemon lists these queues and no other.
fn lists(daemon: &Daemon, what: &str, expected: &Listed) -> Result<()> {
    until(what, SOON, || Ok((listed(daemon)? == *expected).then_some(())))
        .with_context(|| format!("expected {expected:?}, it lists {:?}", listed(daemon)))
}

#[test]
fn births_and_ends_are_followed() -> Result<()> {
    let root = without_btf()?;
    let mut daemon = Daemon::quick(&without_types(&root).each_ref().map(String::as_str))?;
    let mut workload =
        Steered::having(&["create aql", "create sdma", "create aql gpu=1", "create sdma gpu=1"])?;
    assert_eq!(workload.act("create aql bad")?["errno"], "EINVAL");
    lists(&daemon, "the births", &made(&workload, &[])?)?;

    for operation in ["update 2 0", "cu-mask 0", "destroy 1"] {
        assert_eq!(workload.act(operation)?["errno"], Value::Null, "{operation}");
    }
    assert_eq!(workload.act("destroy 77")?["errno"], "EINVAL");
    let second = workload.queue_id(1)?;
    lists(&daemon, "one end", &made(&workload, &[second])?)?;

    // its id is reused by a queue of another type
    assert_eq!(workload.act("create aql gpu=1")?["queue_id"], second);
    let now = made(&workload, &[])?;
    assert_eq!(now.len(), 4);
    lists(&daemon, "a queue in its place", &now)?;
    workload.finish()?;
    lists(&daemon, "the end of the process", &Listed::new())?;
    daemon.stop()
}

#[test]
fn queues_of_a_killed_process_vanish_within_seconds() -> Result<()> {
    let root = without_btf()?;
    let mut daemon = Daemon::quick(&without_types(&root).each_ref().map(String::as_str))?;
    let other = Workload::ready(&["hold"])?;
    let mut killed = Workload::ready(&["kill-me", "--gpus=2", "--queues=8"])?;
    let others = made(&other, &[])?;
    let mut all = made(&killed, &[])?;
    all.extend(others.clone());
    assert_eq!(all.len(), 10);
    lists(&daemon, "the births", &all)?;
    killed.signal(Signal::SIGKILL)?;
    killed.wait_exit(SOON)?;
    lists(&daemon, "the end of the killed one's", &others)?;
    daemon.stop()
}
