//! The alerts on queue activity, tested as those in alerts.rs. KfdTraceSamplesStuck needs a read that hangs,
//! which nothing here can cause: its rule is tested by promtool alone.

use super::alerts::{Again, Cause, fire};
use anyhow::Result;
use kfd_trace_tests::harness::Steered;
use kfd_trace_tests::harness::prometheus::{Prometheus, RULES};
use kfd_trace_tests::harness::service::{ADDRESS, Changed, tracing};
use kfd_trace_tests::harness::workload::kfdsim_at;
use std::time::Duration;

/// Packets that are never retired.
fn stalled() -> Result<Cause> {
    Ok(Box::new(Steered::having(&["create aql", "submit 0 5", "retire 0 2"])?))
}

/// The same, of a process whose queues are evicted from the GPU as where a buffer of theirs was reclaimed (0 is SVM).
fn stalled_by_eviction() -> Result<Cause> {
    let workload = Steered::having(&["create aql", "submit 0 5"])?;
    kfdsim_at("quiesce", workload.pid(), 0)?;
    Ok(Box::new(workload))
}

/// Packets that are retired as they arrive, some at a time.
fn busy() -> Result<Cause> {
    let mut workload = Steered::having(&["create aql", "create sdma", "submit 0 100"])?;
    let work = Again::and_again(Duration::from_secs(1), move || {
        ["submit 0 7", "retire 0 7", "submit 1 64", "retire 1 64"]
            .iter()
            .try_for_each(|what| workload.must(what))
    });
    Ok(Box::new(work))
}

/// A process that did something once.
fn idle() -> Result<Cause> {
    Ok(Box::new(Steered::having(&["create aql", "create aql gpu=1", "submit 0 1", "retire 0 1"])?))
}

/// The memory of one of its queues is overwritten and no longer a queue's.
fn scribbled() -> Result<Cause> {
    Ok(Box::new(Steered::having(&["create aql", "create aql", "submit 0 1", "retire 0 1", "scribble 1"])?))
}

#[test]
fn of_what_queues_do() -> Result<()> {
    tracing()?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    fire(&server, &[], busy)?;
    fire(&server, &["KfdProcessNotRestored"], stalled_by_eviction)?;
    fire(&server, &["KfdQueueStalled"], stalled)?;
    fire(&server, &["KfdProcessIdle"], idle)?;
    fire(&server, &["KfdTraceSamplesFail"], scribbled)
}

/// The unit's settings without the capabilities to read other processes, which belong to another user.
const NO_LOOK: &str = "CapabilityBoundingSet=\nCapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_SYSLOG CAP_SYS_ADMIN\n\
    AmbientCapabilities=\nAmbientCapabilities=CAP_BPF CAP_PERFMON CAP_SYSLOG CAP_SYS_ADMIN";

#[test]
fn of_a_tracer_that_may_not_look_into_processes() -> Result<()> {
    tracing()?;
    let denied = Changed::with("denied", NO_LOOK)?;
    tracing()?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    // no process has a queue
    fire(&server, &[], || Ok(Box::new(Steered::start()?)))?;
    fire(&server, &["KfdTraceSamplesFail"], stalled)?;
    drop(server);

    // nor is sampling enabled
    let off = Changed::arguments("off", &["--sample.interval=0"])?;
    tracing()?;
    fire(&Prometheus::scraping(ADDRESS, RULES)?, &[], stalled)?;
    off.undo()?;
    denied.undo()
}
