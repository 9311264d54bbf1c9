//! The alerts of what queues do, as those of alerts.rs. KfdTraceSamplesStuck takes a reading that hangs, which nothing here can bring
//! about: promtool alone tests its rule.

use super::alerts::{Again, Cause, fire};
use anyhow::Result;
use kfd_trace_tests::harness::Steered;
use kfd_trace_tests::harness::prometheus::{Prometheus, RULES};
use kfd_trace_tests::harness::service::{ADDRESS, Changed, tracing};
use kfd_trace_tests::harness::workload::kfdsim;
use std::time::Duration;

/// Packets that nobody retires.
fn stalled() -> Result<Cause> {
    Ok(Box::new(Steered::having(&["create aql", "submit 0 5", "retire 0 2"])?))
}

/// The same, of a process whose queues are off the GPU.
fn stalled_by_eviction() -> Result<Cause> {
    let workload = Steered::having(&["create aql", "submit 0 5"])?;
    kfdsim("quiesce", workload.pid())?;
    Ok(Box::new(workload))
}

/// Packets that are retired as they come, some at a time.
fn busy() -> Result<Cause> {
    let mut workload = Steered::having(&["create aql", "create sdma", "submit 0 100"])?;
    let work = Again::and_again(Duration::from_secs(1), move || {
        ["submit 0 7", "retire 0 7", "submit 1 64", "retire 1 64"]
            .iter()
            .try_for_each(|what| workload.must(what))
    });
    Ok(Box::new(work))
}

/// It did something once.
fn idle() -> Result<Cause> {
    Ok(Box::new(Steered::having(&["create aql", "create aql gpu=1", "submit 0 1", "retire 0 1"])?))
}

/// The memory of one of its queues is none of a queue's.
fn scribbled() -> Result<Cause> {
    Ok(Box::new(Steered::having(&["create aql", "create aql", "submit 0 1", "retire 0 1", "scribble 1"])?))
}

#[test]
fn of_what_queues_do() -> Result<()> {
    tracing()?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    fire(&server, &[], busy)?;
    fire(&server, &[], stalled_by_eviction)?;
    fire(&server, &["KfdQueueStalled"], stalled)?;
    fire(&server, &["KfdProcessIdle"], idle)?;
    fire(&server, &["KfdTraceSamplesFail"], scribbled)
}

/// What the unit has without what it takes to look into processes; they are another user's.
const NO_LOOK: &str = "CapabilityBoundingSet=\nCapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_SYSLOG CAP_SYS_ADMIN\n\
    AmbientCapabilities=\nAmbientCapabilities=CAP_BPF CAP_PERFMON CAP_SYSLOG CAP_SYS_ADMIN";

#[test]
fn of_a_tracer_that_may_not_look_into_processes() -> Result<()> {
    tracing()?;
    let denied = Changed::with("denied", NO_LOOK)?;
    tracing()?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    // nobody has a queue
    fire(&server, &[], || Ok(Box::new(Steered::start()?)))?;
    fire(&server, &["KfdTraceSamplesFail"], stalled)?;
    drop(server);

    // nor is it asked to look
    let off = Changed::arguments("off", &["--sample.interval=0"])?;
    tracing()?;
    fire(&Prometheus::scraping(ADDRESS, RULES)?, &[], stalled)?;
    off.undo()?;
    denied.undo()
}
