//! Evictions without the hardware scheduler: the driver removes queues from their hardware slots and puts
//! them back itself, with separate functions.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::evictions::{ON_BOTH, death_while_evicted, gpus, own_gpus, spared, trigger};
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::kfdsim;
use kfd_trace_tests::harness::{Calls, Daemon, Steered, Stream, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Each driver has one copy of each; without the hardware scheduler's functions, the others do their work.
const WITNESSED: [&str; 4] = [
    "evict_process_queues_nocpsch",
    "restore_process_queues_nocpsch",
    "evict_process_queues_cpsch",
    "restore_process_queues_cpsch",
];

/// Calls of each of [`WITNESSED`].
fn called(calls: &Calls) -> Result<[usize; 4]> {
    let seen = calls.seen()?;
    Ok(WITNESSED.map(|name| seen.iter().filter(|call| call.function == name).count()))
}

/// Queue, `evicted`, `active` and number of evictions of each queue of a process, from the daemon.
fn reported(daemon: &Daemon, pid: u32) -> Result<Vec<Value>> {
    let page = daemon.json("/api/v1/queues")?;
    let rows = page["queues"].as_array().context("queues")?.iter().filter(|row| row["pid"] == pid);
    let fields = |row: &Value| json!([row["queue_id"], row["evicted"], row["active"], row["evictions"]]);
    let mut reported: Vec<Value> = rows.map(fields).collect();
    reported.sort_by_key(|row| row[0].as_u64());
    Ok(reported)
}

/// Waits until the daemon shows all four as evicted, or as active, after this many evictions.
fn wait_reported(daemon: &Daemon, pid: u32, evicted: bool, evictions: u64) -> Result<()> {
    let expected: Vec<Value> = (0..4).map(|id| json!([id, evicted, !evicted, evictions])).collect();
    let mut last = Vec::new();
    until("the state of the queues", SOON, || {
        last = reported(daemon, pid)?;
        Ok((last == expected).then_some(()))
    })
    .with_context(|| format!("the last was {last:?}"))
}

/// `evicted` and `active` of each queue of a process, from a tracer that starts now and queries the kernel.
fn standing(pid: u32) -> Result<BTreeSet<(Option<bool>, Option<bool>)>> {
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    let rows = ps["queues"].as_array().context("queues")?.iter().filter(|row| row["pid"] == pid);
    Ok(rows.map(|row| (row["evicted"].as_bool(), row["active"].as_bool())).collect())
}

#[test]
fn one_of_two_processes_is_quiesced_and_resumed_on_both_gpus() -> Result<()> {
    let daemon = Daemon::shared()?;
    let stream = Stream::shared()?;
    let calls = Calls::of(&WITNESSED)?;
    let mut workload = Steered::having(&ON_BOTH)?;
    let other = Steered::having(&ON_BOTH)?;
    let pid = workload.pid();
    wait_reported(&daemon, pid, false, 0)?;

    kfdsim("quiesce", pid)?;
    wait_reported(&daemon, pid, true, 1)?;
    assert_eq!(standing(pid)?, [(Some(true), Some(false))].into(), "by the kernel's own table");
    assert_eq!(called(&calls)?, [2, 0, 0, 0], "one call for each GPU");
    kfdsim("resume", pid)?;
    wait_reported(&daemon, pid, false, 1)?;
    assert_eq!(standing(pid)?, [(Some(false), Some(true))].into(), "by the kernel's own table");
    assert_eq!(called(&calls)?, [2, 2, 0, 0]);

    let lines = events::so_far(&stream, &mut workload)?;
    let (evicts, restores) = (of(&lines, "evict", pid), of(&lines, "restore", pid));
    assert_eq!(own_gpus(&workload).len(), 2);
    assert_eq!((gpus(&evicts), gpus(&restores)), (own_gpus(&workload), own_gpus(&workload)));
    let seen = of(&lines, "process_seen", pid);
    for event in evicts.iter().chain(&restores) {
        assert_eq!(event["kfd_process"], seen[0]["kfd_process"], "{event}");
        assert_eq!(event["errno"], Value::Null, "{event}");
        assert_eq!(event["task_pid"], std::process::id(), "this test wrote to the control: {event}");
    }
    assert!(evicts.iter().all(|evict| evict["trigger"] == trigger("userptr")), "{evicts:?}");
    assert!(restores.iter().all(|line| line["evicted_ns"].as_u64() > Some(0)), "{restores:?}");
    spared(&lines, other.pid());
    wait_reported(&daemon, other.pid(), false, 0)?;
    drop((workload, other));
    stream.end()?;
    daemon.end()
}

#[test]
fn nested_evictions_are_one_transition() -> Result<()> {
    let stream = Stream::shared()?;
    let calls = Calls::of(&WITNESSED)?;
    let mut workload = Steered::having(&ON_BOTH)?;
    let pid = workload.pid();
    kfdsim("quiesce", pid)?;
    kfdsim("quiesce", pid)?;
    kfdsim("resume", pid)?;
    let lines = events::so_far(&stream, &mut workload)?;
    assert_eq!(called(&calls)?, [4, 2, 0, 0]);
    assert_eq!(gpus(&of(&lines, "evict", pid)), own_gpus(&workload));
    assert_eq!(of(&lines, "restore", pid), Vec::<Value>::new(), "it is still evicted once");
    kfdsim("resume", pid)?;
    let lines = events::so_far(&stream, &mut workload)?;
    assert_eq!(called(&calls)?, [4, 4, 0, 0]);
    assert_eq!(gpus(&of(&lines, "evict", pid)), own_gpus(&workload));
    assert_eq!(gpus(&of(&lines, "restore", pid)), own_gpus(&workload));
    stream.end()
}

#[test]
fn a_ttm_eviction_is_restored_by_the_driver() -> Result<()> {
    let daemon = Daemon::shared()?;
    let stream = Stream::shared()?;
    let calls = Calls::of(&WITNESSED)?;
    let workload = Steered::having(&ON_BOTH)?;
    let pid = workload.pid();
    kfdsim("evict", pid)?;
    let restores = events::wait(&stream, "restore", pid, 2)?;
    let evicts = of(&stream.lines(), "evict", pid);
    assert_eq!((gpus(&evicts), gpus(&restores)), (own_gpus(&workload), own_gpus(&workload)));
    assert!(evicts.iter().all(|evict| evict["trigger"] == trigger("ttm")), "{evicts:?}");
    assert_eq!(called(&calls)?, [2, 2, 0, 0]);
    wait_reported(&daemon, pid, false, 1)?;
    drop(workload);
    stream.end()?;
    daemon.end()
}

#[test]
fn who_dies_evicted_is_never_restored() -> Result<()> {
    let stream = Stream::shared()?;
    let calls = Calls::of(&WITNESSED)?;
    death_while_evicted(&stream)?;
    assert_eq!(called(&calls)?, [2, 0, 0, 0]);
    stream.end()
}
