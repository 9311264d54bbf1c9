//! Which processes and queues have their own series, and for how long after their end.

use anyhow::Result;
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Metrics, Steered, Workload};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn daemon(flags: &[&str]) -> Result<Daemon> {
    Daemon::quick(&[&FEW[..], flags].concat())
}

fn success(metrics: &Metrics, collector: &str) -> Option<f64> {
    metrics.sum("kfd_trace_collector_success", &[("collector", collector)])
}

#[test]
fn nothing_has_a_pid_where_processes_are_switched_off() -> Result<()> {
    let mut workload = Workload::ready(&["hold", "--aql=2", "--sdma=1"])?;
    let mut daemon = daemon(&["--no-metrics.per-process"])?;
    let text = daemon.get("/metrics")?.body;
    assert!(!text.contains("pid="), "{text}");
    let metrics = Metrics::parse(&text)?;
    assert_eq!((metrics.sum("kfd_queues", &[]), metrics.sum("kfd_processes", &[])), (Some(3.0), Some(1.0)));
    let collectors = ["bpf_maps", "state", "sysfs"].map(|collector| success(&metrics, collector));
    assert_eq!(
        collectors,
        [Some(1.0), None, None],
        "state cannot fail; queues are probed: sysfs is not read"
    );
    for (labels, seconds) in metrics.series("kfd_trace_collector_duration_seconds") {
        assert!(seconds > 0.0 && seconds < 10.0, "{labels:?} {seconds}");
    }
    workload.finish()?;
    daemon.stop()
}

fn unix_seconds() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

#[test]
fn each_queue_has_series_where_that_is_asked_for() -> Result<()> {
    let mut daemon = daemon(&["--metrics.per-queue", "--metrics.max-queues=2"])?;
    let before = unix_seconds()?;
    let mut workload =
        Steered::having(&["create aql", "create aql gpu=1 percent=40 priority=3", "create sdma"])?;
    let after = unix_seconds()?;
    let pid = workload.pid().to_string();
    let metrics = daemon.scrape_until("the queues", |metrics| {
        (metrics.sum("kfd_queues", &[]) == Some(3.0)).then(|| metrics.clone())
    })?;
    let of = |queue_id: &str, name: &str| metrics.sum(name, &[("pid", &pid), ("queue_id", queue_id)]);
    assert_eq!(metrics.sum("kfd_queue_info", &[("queue_type", "compute_aql")]), Some(2.0), "the oldest two");
    assert_eq!(metrics.sum("kfd_queue_info", &[]), Some(2.0));
    assert_eq!(metrics.sum("kfd_trace_metrics_queues_dropped", &[]), Some(1.0));
    let names = ["kfd_queue_share_ratio", "kfd_queue_priority", "kfd_queue_active", "kfd_queue_evicted"];
    assert_eq!(names.map(|name| of("1", name)), [0.4, 3.0, 1.0, 0.0].map(Some));
    for queue_id in ["0", "1"] {
        let created = of(queue_id, "kfd_queue_created_timestamp_seconds");
        // The guest's wall clock is not set meanwhile; the time is truncated to milliseconds.
        assert!(created.is_some_and(|at| at > before - 0.01 && at < after), "{before} {created:?} {after}");
    }
    workload.finish()?;
    daemon.scrape_until("the end of their series", |metrics| {
        let none =
            metrics.sum("kfd_queue_info", &[]).is_none() && metrics.sum("kfd_queue_active", &[]).is_none();
        (none && metrics.sum("kfd_trace_metrics_queues_dropped", &[]) == Some(0.0)).then_some(())
    })?;
    daemon.stop()
}

/// Long enough for an emulated machine to scrape within it.
const LINGER: Duration = Duration::from_secs(30);

#[test]
fn a_dead_process_is_shown_for_as_long_as_was_said() -> Result<()> {
    let mut daemon = daemon(&["--metrics.linger=30s"])?;
    let mut workload = Workload::ready(&["kill-me", "--queues=4"])?;
    let pid = workload.pid().to_string();
    let reported = |metrics: &Metrics| {
        let own = [("pid", pid.as_str())];
        let created = [own[0], ("ioctl", "CREATE_QUEUE")];
        [
            metrics.sum("kfd_process_info", &own),
            metrics.sum("kfd_process_ioctls_total", &created),
            metrics.sum("kfd_process_queues", &own),
            metrics.sum("kfd_ioctls_total", &created[1..]),
        ]
    };
    daemon.scrape_until("the process", |metrics| {
        (reported(metrics) == [1.0, 4.0, 4.0, 4.0].map(Some)).then_some(())
    })?;
    let killed = Instant::now();
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    let dead = daemon.scrape_until("its end", |metrics| {
        (metrics.sum("kfd_processes_ended_total", &[]) == Some(1.0)).then(|| metrics.clone())
    })?;
    assert_eq!(reported(&dead), [Some(1.0), Some(4.0), None, Some(4.0)]);
    let after = daemon.scrape_until("the end of its series", |metrics| {
        metrics.sum("kfd_process_info", &[]).is_none().then(|| metrics.clone())
    })?;
    assert!(killed.elapsed() >= LINGER, "{:?}", killed.elapsed());
    assert_eq!(reported(&after), [None, None, None, Some(4.0)]);
    assert_eq!(after.samples.keys().find(|(_, labels)| labels.contains_key("pid")), None);
    assert_eq!(after.sum("kfd_trace_processes_remembered", &[]), Some(1.0));
    daemon.stop()
}
