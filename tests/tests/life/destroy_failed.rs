//! DESTROY_QUEUE that fails: the driver's state decides whether the queue is removed, not the errno alone.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, all, of};
use kfd_trace_tests::harness::setting::{Hang, PREEMPTION_TIMEOUT, Setting};
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::{kfdsim, kfdsim_at};
use kfd_trace_tests::harness::{Daemon, Metrics, Steered, Stream, VmKernel, sysfs, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Queue ids of a process, from the kernel's own table.
fn listed(pid: u32) -> Result<BTreeSet<u64>> {
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    let rows = ps["queues"].as_array().context("queues")?.iter().filter(|row| row["pid"] == pid);
    rows.map(|row| row["queue_id"].as_u64().context("a queue id")).collect()
}

/// A debugged process keeps its queues: destroy_queue_cpsch refuses with EBUSY. Up to 6.1 the driver has by
/// then removed the queue from sysfs (pqm_destroy_queue), later ones have not.
#[test]
fn a_refused_destroy_leaves_the_queue_alive() -> Result<()> {
    let del_comes_first = VmKernel::from_env()?.before_6_12();
    let daemon = Daemon::shared()?;
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&["create aql", "create sdma gpu=1"])?;
    let pid = workload.pid();
    kfdsim("debug", pid)?;
    assert_eq!(workload.act("destroy 0")?["errno"], "EBUSY");
    let lines = events::so_far(&stream, &mut workload)?;

    let failed = of(&lines, "queue_destroy_failed", pid);
    if del_comes_first {
        assert_eq!(of(&lines, "queue_destroy", pid).len(), 1, "reported too early, by the driver");
        let reported: Vec<Value> =
            failed.iter().map(|line| json!([line["queue_id"], line["gpu_id"], line["errno"]])).collect();
        assert_eq!(reported, [json!([0, workload.queues()[0]["gpu_id"], "EBUSY"])]);
        assert!(!sysfs::queues(Path::new("/sys"))?.contains_key(&(pid, 0)), "the driver took it out");
    } else {
        assert_eq!((of(&lines, "queue_destroy", pid), failed), (vec![], vec![]));
    }
    assert_eq!(listed(pid)?, BTreeSet::from([0, 1]));
    assert!(!daemon.stderr().contains("locks of schedulers"), "this kernel shows where they are");
    daemon
        .scrape_until("both queues", |metrics| (metrics.sum("kfd_queues", &[]) == Some(2.0)).then_some(()))?;

    // it can still be updated, and it ends once debugging stops
    assert_eq!(workload.act("update 0 50")?["errno"], Value::Null);
    kfdsim_at("debug", pid, 0)?;
    assert_eq!(workload.act("destroy 0")?["errno"], Value::Null);
    assert_eq!(listed(pid)?, BTreeSet::from([1]));
    daemon
        .scrape_until("one queue", |metrics| (metrics.sum("kfd_queues", &[]) == Some(1.0)).then_some(()))?;
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    events::wait(&stream, "process_release", pid, 1)?;
    daemon.scrape_until("none", |metrics| (metrics.sum("kfd_queues", &[]) == Some(0.0)).then_some(()))?;
    let metrics = daemon.scrape()?;
    assert_eq!(metrics.sum("kfd_queues_created_total", &[]), Some(2.0));
    // where the driver reported an end too early, it is counted as an end
    let (ended, failed) = if del_comes_first { (3.0, 1.0) } else { (2.0, 0.0) };
    assert_eq!(metrics.sum("kfd_queues_destroyed_total", &[]), Some(ended));
    assert_eq!(metrics.sum("kfd_queue_destroys_failed_total", &[]).unwrap_or(0.0), failed);
    assert_eq!(metrics.sum("kfd_trace_state_anomalies_total", &[]), Some(0.0));
    stream.end()?;
    daemon.end()
}

/// The preemption timed out: the driver reports it, and deletes the queue all the same (pqm_destroy_queue).
/// Until then the call is in flight.
#[test]
fn a_destroy_that_times_out_ends_the_queue() -> Result<()> {
    let daemon = Daemon::shared()?;
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&["create aql", "create aql"])?;
    let pid = workload.pid();
    kfdsim_at("hang", 1, 0)?;
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "5000")?;
    let destroys = [("ioctl", "DESTROY_QUEUE")];
    let in_flight = |metrics: &Metrics| metrics.sum("kfd_ioctls_in_flight", &destroys);
    let oldest = |metrics: &Metrics| metrics.sum("kfd_ioctl_in_flight_oldest_seconds", &destroys);
    // the driver waits in a busy loop, so a scrape takes long: the age was measured between the scrape's
    // start and end
    let older_than = |least: f64| {
        until("the call in flight, and older", SOON, || {
            let (begin, metrics) = (Instant::now(), daemon.scrape()?);
            let age = oldest(&metrics).filter(|age| *age > least && in_flight(&metrics) == Some(1.0));
            Ok(age.map(|age| (age, begin, Instant::now())))
        })
    };
    workload.send_line("destroy 0")?;
    let (age, begin, end) = older_than(0.0)?;
    let (later_age, later_begin, later_end) = older_than(age)?;
    let (grown, least, most) = (later_age - age, later_begin - end, later_end - begin);
    assert!(
        (least.as_secs_f64()..=most.as_secs_f64()).contains(&grown),
        "{grown} s older in {least:?} to {most:?}"
    );
    let reply = workload.wait_line("its end", SOON, |line| line["op"] == "destroy")?;
    assert_eq!(reply["errno"], "ETIME", "{reply}");
    drop(timeout);
    let metrics = daemon.scrape()?;
    assert_eq!((in_flight(&metrics), oldest(&metrics)), (Some(0.0), None), "it has returned");
    stream.wait_line("the reset that ends the hang", SOON, |line| line["event"] == "gpu_reset_end")?;
    let lines = events::so_far(&stream, &mut workload)?;
    let ends = of(&lines, "queue_destroy", pid);
    let reported: Vec<Value> = ends.iter().map(|end| json!([end["queue_id"], end["cause"]])).collect();
    assert_eq!(reported, [json!([0, "ioctl"])]);
    assert_eq!(all(&lines, "queue_destroy_failed"), Vec::<Value>::new());
    assert_eq!(listed(pid)?, BTreeSet::from([1]), "by the kernel's own table");
    assert!(!sysfs::queues(Path::new("/sys"))?.contains_key(&(pid, 0)));
    assert_eq!(workload.act("destroy 0")?["errno"], "EINVAL", "the driver has no such queue");

    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    events::wait(&stream, "process_release", pid, 1)?;
    let causes: Vec<Value> =
        of(&stream.lines(), "queue_destroy", pid).iter().map(|end| end["cause"].clone()).collect();
    assert_eq!(causes, ["ioctl", "process_death"]);
    assert_eq!(stream.events("queue_destroy_failed"), Vec::<Value>::new());
    stream.end()?;
    daemon.end()
}

/// The driver changes the queue first and reports its end last (destroy_queue_cpsch); in between it may wait
/// for seconds. Up to 6.1 it instead reports the end first and leaves the queue active meanwhile.
#[test]
fn what_a_destroy_that_waits_has_changed_is_no_difference() -> Result<()> {
    if VmKernel::from_env()?.before_6_12() {
        return Ok(());
    }
    let daemon = Daemon::shared()?;
    let walks = || {
        let walks = daemon.scrape()?.sum("kfd_trace_comparisons_total", &[("source", "kernel")]);
        walks.context("no comparisons are counted")
    };
    let mut workload = Steered::having(&["create aql", "create aql"])?;
    let pid = workload.pid();
    // The next scan of the kernel's own table is up to a minute away, and the driver waits in a busy loop,
    // which an emulated CPU takes as long for: it begins shortly before.
    let before = walks()?;
    until("a look at the kernel's own table", 2 * SOON, || {
        sleep(Duration::from_secs(2));
        Ok((walks()? > before).then_some(()))
    })?;
    sleep(Duration::from_secs(45));
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "600000")?;
    let hang = Hang::begin()?;
    workload.send_line("destroy 0")?;
    let in_flight = |metrics: &Metrics| {
        (metrics.sum("kfd_ioctls_in_flight", &[("ioctl", "DESTROY_QUEUE")]) == Some(1.0)).then_some(())
    };
    daemon.scrape_until("the call in flight", in_flight)?;
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    // after a finding the next scans come soon, and what is found twice is counted
    let enough = walks()? + 3.0;
    until("three looks at the kernel's own table", 4 * SOON, || {
        sleep(Duration::from_secs(2));
        // the host must not take the guest for hung
        println!("waiting");
        Ok((walks()? >= enough).then_some(()))
    })?;
    let metrics = daemon.scrape()?;
    let (stderr, still) = (daemon.stderr(), in_flight(&metrics));
    drop(hang);
    let done = workload.wait_line("its end", SOON, |line| line["op"] == "destroy")?;
    drop(timeout);
    assert_eq!((still, &done["errno"]), (Some(()), &Value::Null), "it waited all the time, and went on");
    let active = |row: &&Value| row["pid"] == pid && row["queue_id"] == 0 && row["active"] == false;
    assert!(ps["queues"].as_array().is_some_and(|rows| rows.iter().any(|row| active(&row))), "{ps}");
    assert_eq!(metrics.sum("kfd_trace_differences_total", &[]), Some(0.0), "{stderr}");
    assert_eq!(metrics.sum("kfd_queues", &[]), Some(2.0), "until it has ended");
    daemon
        .scrape_until("one queue", |metrics| (metrics.sum("kfd_queues", &[]) == Some(1.0)).then_some(()))?;
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    daemon.end()
}
