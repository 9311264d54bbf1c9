//! Queue activity: a daemon's counts, compared with the ledgers of the workloads that own the queues.
//!
//! Counts of a process are sums over its GPUs, in packets of AQL queues or in bytes of commands of SDMA
//! queues.

mod counts;
mod ends;
mod many;
mod memory;
mod ps;

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Metrics, Steered, until};
use serde_json::Value;

/// AQL queues, in metric names.
const PACKETS: &str = "packets";
/// SDMA queues.
const RING_BYTES: &str = "sdma_ring_bytes";

/// Submitted, retired.
type Counts = (f64, f64);

/// Processes that have ended keep their series to the end of the test.
fn daemon(flags: &[&str]) -> Result<Daemon> {
    Daemon::quick(&[&FEW[..], &["--metrics.linger=1h"], flags].concat())
}

/// On one daemon, since its start and end take longer than most of these.
#[test]
fn samples_are_those_of_the_ledger() -> Result<()> {
    let mut daemon = daemon(&["--sample.interval=200ms", "--metrics.per-queue"])?;
    // it stalls while the others run
    let mut slow = counts::Slow::begin()?;
    counts::of_the_living(&daemon)?;
    slow.reported(&daemon).context("a backlog")?;
    ends::killed(&daemon).context("killed")?;
    ends::exec(&daemon).context("exec")?;
    memory::scribbled(&daemon).context("scribbled")?;
    memory::unmapped(&daemon).context("unmapped")?;
    memory::unreadable(&daemon).context("unreadable")?;
    slow.stalled(&daemon).context("stalled")?;
    daemon.stop()
}

/// The totals in a workload's line.
fn ledger(line: &Value) -> Result<Counts> {
    let number = |key: &str| {
        let value = line[key].as_u64().with_context(|| format!("no {key}: {line}"))?;
        Ok::<_, anyhow::Error>(f64::from(u32::try_from(value)?))
    };
    Ok((number("write")?, number("read")?))
}

/// One operation on pointers, and the totals after it.
fn act(workload: &mut Steered, operation: &str) -> Result<Counts> {
    ledger(&workload.act(operation)?)
}

/// The reported counts of a process; `None` where there is no series.
fn reported(metrics: &Metrics, unit: &str, pid: u32) -> Option<Counts> {
    let of = |what| of_process(metrics, &format!("kfd_process_{unit}_{what}_total"), pid);
    Some((of("submitted")?, of("retired")?))
}

/// The reported counts of a process's queue with this number; `None` where there is no series.
fn reported_of_queue(
    metrics: &Metrics,
    unit: &str,
    workload: &Steered,
    number: u64,
) -> Result<Option<Counts>> {
    let (pid, queue_id) = (workload.pid().to_string(), workload.queue_id(number)?.to_string());
    let labels = [("pid", &*pid), ("queue_id", &*queue_id)];
    let of = |what| metrics.sum(&format!("kfd_queue_{unit}_{what}_total"), &labels);
    Ok(of("submitted").zip(of("retired")))
}

fn of_process(metrics: &Metrics, name: &str, pid: u32) -> Option<f64> {
    metrics.sum(name, &[("pid", &pid.to_string())])
}

/// A counter or a gauge that may have no series where it is 0.
fn or_none(metrics: &Metrics, name: &str, pid: u32) -> f64 {
    of_process(metrics, name, pid).unwrap_or(0.0)
}

fn incomplete(metrics: &Metrics, pid: u32) -> f64 {
    or_none(metrics, "kfd_process_queues_incomplete_total", pid)
}

fn not_measured(metrics: &Metrics, pid: u32) -> f64 {
    or_none(metrics, "kfd_process_queues_not_measured", pid)
}

/// Waits until these counts are reported for a process, and nothing above them before.
fn shows(daemon: &Daemon, unit: &str, pid: u32, counts: Counts) -> Result<Metrics> {
    let mut last = None;
    let reached = until("the counts of the ledger", SOON, || {
        let metrics = daemon.scrape()?;
        last = reported(&metrics, unit, pid);
        if let Some((submitted, retired)) = last {
            let (most, most_retired) = counts;
            ensure!(
                submitted <= most && retired <= most_retired,
                "{last:?} is above the ledger's {counts:?}"
            );
        }
        Ok((last == Some(counts)).then_some(metrics))
    });
    reached.with_context(|| format!("{unit} of process {pid}: {last:?} instead of {counts:?}"))
}

/// Waits until a process has this many queues, whether or not it has ended itself.
fn has_queues(daemon: &Daemon, pid: u32, wanted: u32) -> Result<Metrics> {
    daemon.scrape_until(&format!("process {pid} to have {wanted} queues"), |metrics| {
        (or_none(metrics, "kfd_process_queues", pid) == f64::from(wanted)).then(|| metrics.clone())
    })
}

/// Waits until a counter of the tracer itself has grown by this much.
fn grows(daemon: &Daemon, name: &str, labels: &[(&str, &str)], more: u32) -> Result<Metrics> {
    let count = |metrics: &Metrics| metrics.sum(name, labels).unwrap_or(0.0);
    let before = count(&daemon.scrape()?);
    daemon.scrape_until(&format!("{name} {labels:?} to grow by {more}"), |metrics| {
        (count(metrics) >= before + f64::from(more)).then(|| metrics.clone())
    })
}

/// Waits until the queues were read this many more times.
fn samples(daemon: &Daemon, more: u32) -> Result<Metrics> {
    grows(daemon, "kfd_trace_samples_total", &[], more)
}
