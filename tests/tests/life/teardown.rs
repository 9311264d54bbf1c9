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
