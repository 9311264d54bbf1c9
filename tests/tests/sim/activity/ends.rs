//! Queues that end with their process: the last sample remains, and each of them is counted as incomplete.

use super::{PACKETS, RING_BYTES, act, has_queues, incomplete, of_process, reported, shows};
use anyhow::{Context, Result};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered};

pub(super) fn killed(daemon: &Daemon) -> Result<()> {
    let mut workload = Steered::having(&["create aql", "create aql gpu=1", "create sdma"])?;
    let pid = workload.pid();
    for operation in ["submit 0 500", "retire 0 300", "submit 1 40", "submit 2 4096"] {
        act(&mut workload, operation)?;
    }
    let sampled = (540.0, 300.0);
    shows(daemon, PACKETS, pid, sampled)?;
    shows(daemon, RING_BYTES, pid, (4096.0, 0.0))?;
    act(&mut workload, "submit 0 7")?;
    workload.kill()?;
    let metrics = has_queues(daemon, pid, 0)?;
    let (submitted, retired) = reported(&metrics, PACKETS, pid).context("its counts")?;
    assert!(submitted == 540.0 || submitted == 547.0, "with the last 7 or without: {submitted}");
    assert_eq!((retired, reported(&metrics, RING_BYTES, pid)), (300.0, Some((4096.0, 0.0))));
    assert_eq!(incomplete(&metrics, pid), 3.0);
    for gauge in ["kfd_process_packets_backlog", "kfd_process_queues_stalled", "kfd_process_idle_seconds"] {
        assert_eq!(of_process(&metrics, gauge, pid), None, "{gauge} of a dead process");
    }
    Ok(())
}

/// One PID, two address spaces.
pub(super) fn exec(daemon: &Daemon) -> Result<()> {
    let mut workload = Steered::having(&["create aql", "submit 0 500"])?;
    let pid = workload.pid();
    let first = act(&mut workload, "retire 0 300")?;
    shows(daemon, PACKETS, pid, first)?;
    workload.act("exec")?;
    workload.wait_lines("the second life", SOON, |lines| {
        lines.iter().filter(|line| line["ready"] == true).nth(1).map(drop)
    })?;
    let metrics = has_queues(daemon, pid, 0)?;
    assert_eq!((reported(&metrics, PACKETS, pid), incomplete(&metrics, pid)), (Some(first), 1.0));

    workload.must("create aql")?;
    let second = act(&mut workload, "submit 0 9")?;
    let both = (first.0 + second.0, first.1 + second.1);
    shows(daemon, PACKETS, pid, both)?;
    workload.must("destroy 0")?;
    let metrics = has_queues(daemon, pid, 0)?;
    assert_eq!((reported(&metrics, PACKETS, pid), incomplete(&metrics, pid)), (Some(both), 1.0));
    workload.finish().map(drop)
}
