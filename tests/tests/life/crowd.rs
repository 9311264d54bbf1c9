//! More callers inside the driver than a kretprobe of perf has instances: two per CPU, 10 at least.
//!
//! What is counted at the entry is exact. A result needs a return: an event of tracefs has room for all of them. Without
//! tracefs, a result is counted right, or reported as not seen.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::other_sysfs::{flag, lacking};
use kfd_trace_tests::harness::setting::{Hang, PREEMPTION_TIMEOUT, Setting};
use kfd_trace_tests::harness::tracer::{FEW, NO_MQD};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Metrics, Steered, Stream, shared};
use serde_json::{Value, json};
use tempfile::TempDir;

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
fn a_crowd_that_waits_is_counted() -> Result<()> {
    let mut daemon = Daemon::ready(&FEW)?;
    sees_all_of_a_crowd(&mut daemon)
}

fn sees_all_of_a_crowd(daemon: &mut Daemon) -> Result<()> {
    let (process, created, full) = crowd(daemon)?;
    let metrics = daemon.scrape()?;
    let of = |name| calls(&metrics, name, "CREATE_QUEUE");
    assert_eq!(of("kfd_ioctl_duration_seconds_count"), created + full + 1.0);
    assert_eq!(of("kfd_ioctl_errors_total"), full);
    assert_eq!(of("kfd_ioctls_no_return_seen_total") + of("kfd_trace_ioctl_returns_missed"), 0.0);
    process.kill()?;
    daemon.stop()
}

/// Arguments of a daemon that finds no tracefs below this sysfs.
fn without_tracefs(sysfs: &TempDir) -> Vec<String> {
    FEW.iter().map(|argument| (*argument).to_owned()).chain([flag(sysfs)]).collect()
}

/// Tracefs, at both of its places.
const TRACEFS: [&str; 2] = ["kernel/tracing", "kernel/debug"];

#[test]
fn a_crowd_without_tracefs_is_counted_or_known_not_to_be() -> Result<()> {
    let sysfs = lacking(&TRACEFS)?;
    let arguments = without_tracefs(&sysfs);
    let mut daemon = Daemon::ready(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
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
    sees_all_of_a_crowd(&mut daemon)
}

/// Threads that sleep in WAIT_EVENTS.
const SLEEPERS: u32 = 1_000;

/// Calls of another process, while the others sleep.
const CALLS: u32 = 50;

/// Neither the sleepers nor their neighbours are missed by a daemon.
fn sleepers_are_seen(daemon: &Daemon) -> Result<()> {
    let mut sleeping = Steered::having(&[])?;
    sleeping.must(&format!("sleepers {SLEEPERS}"))?;
    let total = |metrics: &Metrics, name| metrics.sum(name, &[]).unwrap_or(0.0);
    let waits = |metrics: &Metrics| calls(metrics, "kfd_ioctls_total", "WAIT_EVENTS");
    daemon.scrape_until("all of them asleep", |metrics| {
        (waits(metrics) == f64::from(SLEEPERS)).then_some(())
    })?;
    let mut other = Steered::having(&[])?;
    (0..CALLS).try_for_each(|_| other.must("version"))?;
    let metrics = daemon.scrape()?;
    let returned = calls(&metrics, "kfd_ioctl_duration_seconds_count", "GET_VERSION");
    assert_eq!(returned, f64::from(CALLS));
    assert_eq!(calls(&metrics, "kfd_ioctls_total", "GET_VERSION"), f64::from(CALLS));
    assert_eq!(total(&metrics, "kfd_event_waits_in_flight"), f64::from(SLEEPERS));
    assert_eq!(metrics.sum("kfd_ioctls_in_flight", &[]), Some(0.0), "a wait is not work");
    let reply = sleeping.act("wake")?;
    assert_eq!(reply["woken"], SLEEPERS);
    let metrics = daemon.scrape()?;
    assert_eq!(waits(&metrics), f64::from(SLEEPERS));
    assert_eq!(total(&metrics, "kfd_event_wait_duration_seconds_count"), f64::from(SLEEPERS));
    for missed in ["kfd_ioctls_no_return_seen_total", "kfd_trace_ioctl_returns_missed"] {
        assert_eq!(total(&metrics, missed), 0.0, "{missed}");
    }
    let failed = metrics.sum("kfd_ioctl_errors_total", &[("ioctl", "WAIT_EVENTS")]);
    assert_eq!(failed.unwrap_or(0.0), reply["errnos"]["EIO"].as_f64().unwrap_or(0.0), "{reply}");
    sleeping.kill()?;
    other.kill()
}

#[test]
fn sleepers_keep_no_return_from_being_seen() -> Result<()> {
    shared::end()?;
    let mut daemon = Daemon::ready(&FEW)?;
    sleepers_are_seen(&daemon)?;
    daemon.stop()
}

/// One link holds the entry and the return of all calls where the kernel has such links (6.10 and later).
#[test]
fn sleepers_under_one_link_keep_no_call_from_being_seen() -> Result<()> {
    if !has_links()? {
        return Ok(());
    }
    shared::end()?;
    let mut stream = Stream::tracing(&NO_MQD)?;
    let mut daemon = Daemon::quick(&FEW)?;
    sleepers_are_seen(&daemon)?;
    let summary = stream.finish()?;
    assert_eq!(summary["lost"], json!({}));
    let lines = stream.lines();
    let returned = |name: &str| {
        let ended = |line: &&Value| line["ioctl"] == name && line["outcome"] == "returned";
        lines.iter().filter(ended).count()
    };
    assert_eq!(["WAIT_EVENTS", "GET_VERSION"].map(returned), [SLEEPERS as usize, CALLS as usize]);
    daemon.stop()
}

/// A tracer that begins while threads sleep sees neither their entries nor their returns, and the tracer before it sees both.
#[test]
fn tracers_beside_each_other_have_returns_of_their_own() -> Result<()> {
    shared::end()?;
    let mut first = Daemon::ready(&FEW)?;
    let mut sleeping = Steered::having(&["sleepers 100"])?;
    let waiting = |daemon: &Daemon, wanted: f64| {
        daemon.scrape_until("threads asleep", |metrics| {
            (metrics.sum("kfd_event_waits_in_flight", &[]) == Some(wanted)).then_some(())
        })
    };
    waiting(&first, 100.0)?;
    let mut second = Daemon::ready(&FEW)?;
    let mut stream = Stream::tracing(&[&["--attach=single"][..], &NO_MQD].concat())?;
    assert_eq!(sleeping.act("wake")?["woken"], 100);
    sleeping.must("sleepers 100")?;
    for daemon in [&first, &second] {
        waiting(daemon, 100.0)?;
    }
    assert_eq!(sleeping.act("wake")?["woken"], 100);
    sleeping.must("version")?;
    for (daemon, waits) in [(&first, 200.0), (&second, 100.0)] {
        let metrics = daemon.scrape()?;
        assert_eq!(metrics.sum("kfd_event_wait_duration_seconds_count", &[]), Some(waits));
        assert_eq!(calls(&metrics, "kfd_ioctl_duration_seconds_count", "GET_VERSION"), 1.0);
        let without_entry = [("reason", "return_without_entry")];
        assert_eq!(metrics.sum("kfd_trace_trouble_total", &without_entry), Some(0.0));
    }
    let summary = stream.finish()?;
    assert_eq!((&summary["lost"], &summary["event_waits"]), (&json!({}), &json!(0)));
    let waits = stream.lines().iter().filter(|line| line["ioctl"] == "WAIT_EVENTS").count();
    assert_eq!(waits, 100);
    sleeping.kill()?;
    second.stop()?;
    first.stop()
}

#[test]
fn arguments_are_those_that_the_driver_got() -> Result<()> {
    shared::end()?;
    let mut stream = Stream::tracing(&NO_MQD)?;
    let mut daemon = Daemon::quick(&FEW)?;
    let mut process = Steered::having(&["create aql"])?;
    let timeout = Setting::of(PREEMPTION_TIMEOUT, "600000")?;
    let hang = Hang::begin()?;
    process.act("begin-update 0 50")?;
    in_flight(&daemon, "UPDATE_QUEUE", 1.0)?;
    process.act("rewrite")?;
    drop(hang);
    assert_eq!(process.act("end-update")?["failed"], Value::Null);
    drop(timeout);
    let call = stream.wait_lines("the call", SOON, |lines| {
        lines.iter().find(|line| line["ioctl"] == "UPDATE_QUEUE").cloned()
    })?;
    let args = &call["args"];
    let reported = json!([call["errno"], args["queue_percentage"], args["queue_priority"]]);
    assert_eq!(reported, json!([null, 50, 7]), "{call}");
    process.kill()?;
    stream.interrupt()?;
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
fn updates_of_a_crowd_are_counted() -> Result<()> {
    let mut daemon = Daemon::ready(&FEW)?;
    let all = updaters(&daemon)?;
    let metrics = daemon.scrape()?;
    let total = |name| metrics.sum(name, &[]).unwrap_or(0.0);
    assert_eq!(total("kfd_queue_updates_total"), UPDATERS as f64);
    assert_eq!(total("kfd_queue_updates_no_return_seen_total"), 0.0);
    assert_eq!(total("kfd_queue_update_errors_total"), 0.0);
    all.into_iter().try_for_each(Steered::kill)?;
    daemon.stop()
}

#[test]
fn updates_whose_return_was_missed_are_counted_and_named() -> Result<()> {
    let sysfs = lacking(&TRACEFS)?;
    let arguments = without_tracefs(&sysfs);
    let mut daemon = Daemon::ready(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
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
