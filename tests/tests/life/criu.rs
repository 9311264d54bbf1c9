//! Queues that CRIU restores: the driver creates them in another process, from what it saved of the first,
//! without CREATE_QUEUE.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, gpu_id, of};
use kfd_trace_tests::harness::mqd_calls::{MqdCalls, traced};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{
    Daemon, Metrics, Steered, Stream, VmKernel, Workload, driver_has, sysfs, until,
};
use serde_json::{Value, json};
use std::path::Path;

/// Queues of each type on both GPUs, with no default property. Queue 0 ends before the checkpoint, so that
/// the remaining queues do not have the ids that new queues would get.
const QUEUES: [&str; 5] = [
    "create aql",
    "create aql gpu=1 percent=50 priority=3",
    "create sdma gpu=1",
    "create compute ring=4096 priority=11",
    "destroy 0",
];
const SAVED: usize = 3;

const SAVE: [&str; 3] = ["criu info", "criu checkpoint /tmp/checkpoint", "criu unpause"];
const RESTORE: &str = "criu restore /tmp/checkpoint";

/// The properties that a queue keeps.
const KEPT: [&str; 10] = [
    "queue_id",
    "gpu_id",
    "queue_type",
    "ring_address",
    "ring_size",
    "write_pointer_address",
    "read_pointer_address",
    "priority",
    "percent",
    "sdma_engine_id",
];

/// Whether the driver has CRIU_OP.
fn has_criu() -> bool {
    driver_has("kfd_ioctl_criu")
}

/// Whether it restores the processes of these tests.
fn restores() -> Result<bool> {
    Ok(has_criu() && VmKernel::from_env()?.restores)
}

/// [`KEPT`] of each queue, in the order of their ids.
fn kept(queues: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> =
        queues.iter().map(|queue| KEPT.iter().map(|name| queue[name].clone()).collect()).collect();
    kept.sort_by_key(|queue| queue[0].as_u64());
    kept
}

/// Saves a process with [`QUEUES`], ends it, and returns its PID. SDMA queues are slots of the GPU, which
/// must be free again.
fn saved() -> Result<u32> {
    let first = Steered::having(&[&QUEUES[..], &SAVE].concat())?;
    let pid = first.pid();
    first.kill()?;
    Ok(pid)
}

/// CRIU_OP calls of a process that succeeded.
fn criu_ops(lines: &[Value], pid: u32) -> usize {
    let calls = of(lines, "ioctl", pid);
    calls.iter().filter(|call| call["ioctl"] == "CRIU_OP" && call["errno"].is_null()).count()
}

#[test]
fn a_restored_queue_is_the_one_that_was_saved() -> Result<()> {
    if !restores()? {
        return Ok(());
    }
    let stream = Stream::shared()?;
    let witness = MqdCalls::start()?;
    let first = saved()?;
    let mut second = Steered::start()?;
    second.must(RESTORE)?;
    let listed = sysfs::queues(Path::new("/sys"))?;
    let pid = second.pid();
    let standing = events::so_far(&stream, &mut second)?;
    second.must("criu resume")?;
    let restores = events::wait(&stream, "restore", pid, 2)?;
    second.must("destroy 2")?;
    let lines = events::so_far(&stream, &mut second)?;
    let reported = witness.reported()?;

    // The saved process: its queues were stopped for it, on each GPU, and resumed.
    let evicts = of(&lines, "evict", first);
    assert_eq!(evicts.len(), 2, "{evicts:?}");
    assert!(evicts.iter().all(|evict| evict["trigger"] == "criu_checkpoint"), "{evicts:?}");
    assert_eq!(of(&lines, "restore", first).len(), 2);
    assert_eq!((criu_ops(&lines, first), criu_ops(&lines, pid)), (SAVE.len(), 2));

    // The restored process: its queues are those, made by CRIU, and do not run yet.
    let births = of(&standing, "queue_create", pid);
    let before = of(&lines, "queue_create", first);
    let saved: Vec<Value> = before.iter().filter(|birth| birth["queue_id"] != 0).cloned().collect();
    assert_eq!((kept(&births), births.len()), (kept(&saved), SAVED));
    let seen = of(&lines, "process_seen", pid).pop().context("the restored process")?;
    for birth in &births {
        let how = json!([birth["origin"], birth["evicted"], birth["active"], birth["kfd_process"]]);
        assert_eq!(how, json!(["criu", true, false, seen["kfd_process"]]), "{birth}");
        let id = u32::try_from(birth["queue_id"].as_u64().context("queue_id")?)?;
        let own = listed.get(&(pid, id)).with_context(|| format!("not in sysfs: {birth}: {listed:?}"))?;
        assert_eq!((u64::from(own.gpu_id), &json!(own.size)), (gpu_id(birth), &birth["ring_size"]));
    }
    assert!(before.iter().all(|birth| birth["origin"] == "ioctl"), "{before:?}");
    // RESTORE evicts the process while it has no VM yet: that touches no queue, and is not reported
    assert_eq!(of(&lines, "evict", pid), Vec::<Value>::new());
    assert!(restores.iter().all(|restore| restore["errno"].is_null()), "{restores:?}");
    let ends = of(&lines, "queue_destroy", pid);
    let end = json!([ends[0]["queue_id"], ends[0]["queue_type"], ends[0]["cause"]]);
    assert_eq!((end, ends.len()), (json!([2, "sdma", "ioctl"]), 1));

    // Each MQD is restored once, and neither initialised nor updated.
    let mut counted = reported.writes();
    counted.retain(|write| write[0] == pid);
    assert_eq!(traced(&of(&lines, "mqd_write", pid)), counted);
    let expected: Vec<Value> =
        births.iter().map(|birth| json!([pid, birth["queue_id"], "restore"])).collect();
    assert_eq!(counted, expected);
    stream.end()
}

#[test]
fn a_restore_that_the_driver_refuses_makes_no_queue() -> Result<()> {
    if !has_criu() {
        return Ok(());
    }
    let stream = Stream::shared()?;
    let first = saved()?;
    let mut second = Steered::start()?;
    // Without a checkpoint no driver has anything to restore; ROCm's refuse every process without buffers.
    std::fs::write("/tmp/empty", r#"{"devices":[],"objects":0,"private":[]}"#)?;
    let restore = if restores()? { "criu restore /tmp/empty" } else { RESTORE };
    assert_eq!(second.act(restore)?["errno"], "EINVAL");
    second.must("create aql")?;
    let lines = events::so_far(&stream, &mut second)?;
    let calls = of(&lines, "ioctl", second.pid());
    let calls: Vec<&Value> = calls.iter().filter(|call| call["ioctl"] == "CRIU_OP").collect();
    assert!(calls.len() == 1 && calls[0]["errno"] == "EINVAL", "{calls:?}");
    let births = of(&lines, "queue_create", second.pid());
    assert!(births.len() == 1 && births[0]["origin"] == "ioctl", "{births:?}");
    assert_eq!((criu_ops(&lines, first), criu_ops(&lines, second.pid())), (SAVE.len(), 0));
    second.kill()?;
    stream.end()
}

#[test]
fn the_api_shows_by_whom_a_queue_was_made() -> Result<()> {
    if !restores()? {
        return Ok(());
    }
    let daemon = Daemon::shared()?;
    saved()?;
    let mut second = Steered::start()?;
    second.must(RESTORE)?;
    let state = |evicted: bool| {
        until("the restored queues", SOON, || {
            let page = daemon.json("/api/v1/queues")?;
            let queues = page["queues"].as_array().context("queues")?;
            let so = queues.len() == SAVED && queues.iter().all(|queue| queue["evicted"] == evicted);
            Ok(so.then(|| queues.clone()))
        })
    };
    for queue in state(true)? {
        assert_eq!(json!([queue["pid"], queue["origin"]]), json!([second.pid(), "criu"]), "{queue}");
        assert_eq!(queue["mqd_writes"], json!({"init": 0, "update": 0, "restore": 1}), "{queue}");
    }
    second.must("criu resume")?;
    assert!(state(false)?.iter().all(|queue| queue["active"] == true));
    let restored = daemon.scrape()?.sum("kfd_mqd_writes_total", &[("function", "restore")]);
    assert_eq!(restored, Some(3.0));
    daemon.end()
}

#[test]
fn a_call_by_the_tracer_of_a_process_is_under_way_until_it_returns() -> Result<()> {
    if !has_criu() {
        return Ok(());
    }
    let daemon = Daemon::shared()?;
    let saved = Steered::having(&["create aql"])?;
    let mut criu = Workload::ready(&["criu-tracer", &saved.pid().to_string()])?;
    let reported = |metrics: &Metrics| {
        let names = ["kfd_ioctls_in_flight", "kfd_ioctls_no_return_seen_total", "kfd_ioctls_total"];
        names.map(|name| metrics.sum(name, &[("ioctl", "CRIU_OP")]))
    };
    let called = |metrics: &Metrics| Some(reported(metrics)).filter(|reported| reported[2] == Some(2.0));
    let during = daemon.scrape_until("CHECKPOINT to begin", called)?;
    assert_eq!(during, [Some(1.0), Some(0.0), Some(2.0)], "under way, not returned, made");
    criu.finish()?;
    let after = daemon.scrape()?;
    assert_eq!(reported(&after), [Some(0.0), Some(0.0), Some(3.0)]);
    let of =
        |pid: u32| after.sum("kfd_process_ioctls_total", &[("pid", &pid.to_string()), ("ioctl", "CRIU_OP")]);
    assert_eq!(
        (of(saved.pid()), of(criu.pid())),
        (Some(3.0), None),
        "they count for the process that is saved"
    );
    daemon.end()
}
