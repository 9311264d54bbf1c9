//! More callers inside the driver than a kretprobe has instances: two per CPU, 10 at least.
//!
//! What is counted at the entry is exact. A result needs a return: it is counted right, or reported as not seen.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::setting::{Hang, PREEMPTION_TIMEOUT, Setting};
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::{Daemon, Metrics, Steered, Stream, shared};
use serde_json::{Value, json};

/// Threads that wait in CREATE_QUEUE, for the first of them or for the process's lock.
const CALLERS: u32 = 400;

/// Processes that wait in `update_queue`, for the lock of the GPU's scheduler.
const UPDATERS: usize = 20;

fn calls(metrics: &Metrics, name: &str, ioctl: &str) -> f64 {
    metrics.sum(name, &[("ioctl", ioctl)]).unwrap_or(0.0)
}

fn in_flight(daemon: &Daemon, ioctl: &str, wanted: f64) -> Result<()> {
    daemon.scrape_until("calls in flight", |metrics| {
        (calls(metrics, "kfd_ioctls_in_flight", ioctl) == wanted).then_some(())
    })
}

/// What the driver replied to a crowd that waited together: queues created, and calls without room for one.
fn crowd(daemon: &Daemon) -> Result<(Steered, f64, f64)> {
    // a tracer without links (6.1) would miss their returns
    shared::end()?;
    let mut process = Steered::having(&["create aql"])?;
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "600000")?;
    let hang = Hang::begin()?;
    let begun = process.begin(&format!("create-crowd {CALLERS}"))?;
    in_flight(daemon, "CREATE_QUEUE", f64::from(CALLERS))?;
    drop(hang);
    let reply = process.answer(&begun)?;
    drop(timeout);
    let (created, full) = (reply["created"].as_f64(), reply["errnos"]["ENOMEM"].as_f64());
    let (created, full) = (created.context("queues")?, full.context("SDMA queues are few")?);
    assert_eq!(created + full, f64::from(CALLERS), "{reply}");
    // its threads end
    process.act("sleep 0")?;
    in_flight(daemon, "CREATE_QUEUE", 0.0)?;
    Ok((process, created, full))
}

#[test]
fn a_crowd_that_waits_is_counted_or_known_not_to_be() -> Result<()> {
    let mut daemon = Daemon::ready(&FEW)?;
    let (process, created, full) = crowd(&daemon)?;
    let metrics = daemon.scrape()?;
    let of = |name| calls(&metrics, name, "CREATE_QUEUE");
    let all = created + full + 1.0;
    assert_eq!(of("kfd_ioctls_total"), all);
    assert_eq!(metrics.sum("kfd_queues_created_total", &[]), Some(created + 1.0));
    let returned = of("kfd_ioctl_duration_seconds_count");
    let unknown = of("kfd_ioctls_no_return_seen_total") + of("kfd_trace_ioctl_returns_missed");
    assert_eq!(returned + unknown, all);
    assert!(unknown > f64::from(CALLERS / 2), "the kretprobe has room for 10: {unknown}");
    let failed = of("kfd_ioctl_errors_total");
    assert!(failed <= full && full <= failed + unknown, "{failed} and {unknown} of {full}");
    process.kill()?;
    daemon.stop()
}

/// Links on many functions: Linux 5.18 and later.
fn has_links() -> Result<bool> {
    let symbols = std::fs::read_to_string("/proc/kallsyms").context("read /proc/kallsyms")?;
    Ok(symbols.lines().any(|line| line.ends_with(" register_fprobe_ips")))
}

#[test]
fn a_link_has_room_for_a_crowd() -> Result<()> {
    if !has_links()? {
        return Ok(());
    }
    let mut daemon = Daemon::quick(&FEW)?;
    let (process, created, full) = crowd(&daemon)?;
    let metrics = daemon.scrape()?;
    let of = |name| calls(&metrics, name, "CREATE_QUEUE");
    assert_eq!(of("kfd_ioctl_duration_seconds_count"), created + full + 1.0);
    assert_eq!(of("kfd_ioctl_errors_total"), full);
    assert_eq!(of("kfd_ioctls_no_return_seen_total") + of("kfd_trace_ioctl_returns_missed"), 0.0);
    process.kill()?;
    daemon.stop()
}

/// Processes with one queue each, whose updates wait for each other.
fn updaters(daemon: &Daemon) -> Result<Vec<Steered>> {
    // a tracer on kprobes would miss their returns
    shared::end()?;
    let mut all = (0..UPDATERS).map(|_| Steered::having(&["create aql"])).collect::<Result<Vec<_>>>()?;
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "600000")?;
    let hang = Hang::begin()?;
    let begun = all.iter_mut().map(|one| one.begin("update 0 50")).collect::<Result<Vec<_>>>()?;
    in_flight(daemon, "UPDATE_QUEUE", UPDATERS as f64)?;
    drop(hang);
    for (one, begun) in all.iter().zip(&begun) {
        assert_eq!(one.answer(begun)?["errno"], Value::Null);
    }
    drop(timeout);
    Ok(all)
}

#[test]
fn updates_whose_return_was_missed_are_counted_and_named() -> Result<()> {
    let mut daemon = Daemon::ready(&FEW)?;
    let mut all = updaters(&daemon)?;
    // at its next call it is seen that the update is over
    all.iter_mut().try_for_each(|one| one.must("version"))?;
    let total = |metrics: &Metrics, name| metrics.sum(name, &[]).unwrap_or(0.0);
    daemon.scrape_until("all updates", |metrics| {
        (total(metrics, "kfd_queue_updates_total") == UPDATERS as f64).then_some(())
    })?;
    let metrics = daemon.scrape()?;
    let unknown = total(&metrics, "kfd_queue_updates_no_return_seen_total");
    let of_ioctl = calls(&metrics, "kfd_ioctls_no_return_seen_total", "UPDATE_QUEUE");
    assert!((1.0..=of_ioctl).contains(&unknown), "the kretprobe has room for 10: {unknown} of {of_ioctl}");
    assert_eq!(total(&metrics, "kfd_queue_update_errors_total"), 0.0);
    let queues = daemon.json("/api/v1/queues")?;
    let queues = queues["queues"].as_array().context("queues")?;
    assert_eq!(queues.len(), UPDATERS);
    assert!(queues.iter().all(|queue| queue["percent"] == 50), "{queues:?}");
    all.into_iter().try_for_each(Steered::kill)?;
    daemon.stop()
}

/// The stream's ioctls are on a link, whose updates are not.
#[test]
fn an_update_whose_return_was_missed_has_its_ioctls_result() -> Result<()> {
    if !has_links()? {
        return Ok(());
    }
    let stream = Stream::tracing(&["--event", "queue_update"])?;
    let mut daemon = Daemon::quick(&FEW)?;
    let all = updaters(&daemon)?;
    for one in &all {
        let updates = events::wait(&stream, "queue_update", one.pid(), 1)?;
        let reported =
            |line: &Value| json!([line["queue_id"], line["percent"], line["result"], line["errno"]]);
        assert_eq!(updates.iter().map(reported).collect::<Vec<_>>(), [json!([0, 50, 0, null])]);
    }
    let lines = stream.lines();
    assert!(all.iter().all(|one| of(&lines, "queue_update", one.pid()).len() == 1), "each once");
    all.into_iter().try_for_each(Steered::kill)?;
    daemon.stop()
}
