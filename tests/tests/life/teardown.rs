//! A process that has ended and whose queues the driver cannot remove from the GPU.

use anyhow::Result;
use kfd_trace_tests::harness::setting::{Hang, PREEMPTION_TIMEOUT, Setting};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Metrics, Steered};
use nix::sys::signal::Signal;

#[test]
fn is_reported_with_its_queues_until_it_is_over() -> Result<()> {
    let daemon = Daemon::shared()?;
    let mut workload = Steered::having(&["create aql"])?;
    let pid = workload.pid().to_string();
    let labels = [("pid", pid.as_str())];
    let since = |metrics: &Metrics| metrics.sum("kfd_process_teardown_seconds", &labels);
    let queues = |metrics: &Metrics| metrics.sum("kfd_process_queues", &labels);
    let metrics = daemon.scrape_until("its queue", |metrics| queues(metrics).map(|_| metrics.clone()))?;
    assert_eq!(since(&metrics), None, "it lives");

    let timeout = Setting::of(PREEMPTION_TIMEOUT, "600000")?;
    let hang = Hang::begin()?;
    workload.signal(Signal::SIGKILL)?;
    let first = daemon.scrape_until("its teardown", since)?;
    let later = |metrics: &Metrics| since(metrics).filter(|now| *now > first).map(|_| queues(metrics));
    let left = daemon.scrape_until("some more of it", later);
    drop(hang);
    assert_eq!(left?, Some(1.0), "its queue is left");
    workload.wait_exit(SOON)?;
    drop(timeout);
    let over = |metrics: &Metrics| (since(metrics).is_none() && queues(metrics).is_none()).then_some(());
    daemon.scrape_until("its end", over)?;
    daemon.end()
}

/// As where the kernel left out the return of the release: its kworker has no work any more, which shows that it is over.
/// What it left over is in a counter long before five minutes have passed.
#[test]
fn is_over_although_its_return_was_not_seen() -> Result<()> {
    let mut daemon = Daemon::quick(&["--without-probe=wq_release_return"])?;
    let mut workload = Steered::having(&["create aql"])?;
    let pid = workload.pid().to_string();
    let queues = |metrics: &Metrics| metrics.sum("kfd_process_queues", &[("pid", &pid)]);
    daemon.scrape_until("its queue", queues)?;
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    let labels = [("probe", "wq_release_return"), ("reason", "nested_return_missed")];
    daemon.scrape_until("the missed return", |metrics| {
        (metrics.sum("kfd_trace_probe_trouble_total", &labels) > Some(0.0)).then_some(())
    })?;
    daemon.scrape_until("its end", |metrics| queues(metrics).is_none().then_some(()))?;
    daemon.stop()
}
