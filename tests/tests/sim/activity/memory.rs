//! Memory that never held or no longer holds a queue's pointers: that is reported, and no count is derived
//! from it.

use super::{
    PACKETS, act, grows, has_queues, incomplete, not_measured, of_process, reported, reported_of_queue, shows,
};
use anyhow::Result;
use kfd_trace_tests::harness::{Daemon, Metrics, Steered};

/// The read errors, some samples later.
fn errors(daemon: &Daemon, reason: &str) -> Result<Metrics> {
    grows(daemon, "kfd_trace_sample_errors_total", &[("reason", reason)], 3)
}

pub(super) fn scribbled(daemon: &Daemon) -> Result<()> {
    let mut workload = Steered::having(&["create aql", "submit 0 70"])?;
    let pid = workload.pid();
    let counts = act(&mut workload, "retire 0 60")?;
    shows(daemon, PACKETS, pid, counts)?;
    // large numbers in place of the counts, then zeros: neither must be taken for counts
    for scribble in ["scribble 0", "scribble 0 0"] {
        workload.must(scribble)?;
        let metrics = errors(daemon, "foreign")?;
        assert_eq!(reported(&metrics, PACKETS, pid), Some(counts), "{scribble}");
        assert_eq!(reported_of_queue(&metrics, PACKETS, &workload, 0)?, Some(counts), "{scribble}");
        assert_eq!(not_measured(&metrics, pid), 1.0, "{scribble}");
        for gauge in ["kfd_queue_packets_backlog", "kfd_queue_stalled", "kfd_process_idle_seconds"] {
            assert_eq!(of_process(&metrics, gauge, pid), None, "{gauge} of now, after {scribble}");
        }
        workload.must("restore 0")?;
        daemon.scrape_until("it to be measured again", |metrics| {
            (not_measured(metrics, pid) == 0.0).then_some(())
        })?;
    }
    let counts = act(&mut workload, "submit 0 5")?;
    shows(daemon, PACKETS, pid, counts)?;
    workload.must("scribble 0")?;
    workload.must("destroy 0")?;
    let metrics = has_queues(daemon, pid, 0)?;
    assert_eq!((reported(&metrics, PACKETS, pid), incomplete(&metrics, pid)), (Some(counts), 1.0));
    workload.finish().map(drop)
}

pub(super) fn unmapped(daemon: &Daemon) -> Result<()> {
    let mut workload = Steered::having(&["create aql", "create aql"])?;
    let pid = workload.pid();
    act(&mut workload, "submit 0 3")?;
    shows(daemon, PACKETS, pid, (3.0, 0.0))?;
    workload.must("unmap-pointers 0")?;
    let metrics = errors(daemon, "unreadable")?;
    assert_eq!((reported(&metrics, PACKETS, pid), not_measured(&metrics, pid)), (Some((3.0, 0.0)), 1.0));
    // the other one continues
    act(&mut workload, "submit 1 8")?;
    shows(daemon, PACKETS, pid, (11.0, 0.0))?;
    workload.must("destroy 0")?;
    workload.must("destroy 1")?;
    let metrics = has_queues(daemon, pid, 0)?;
    assert_eq!((reported(&metrics, PACKETS, pid), incomplete(&metrics, pid)), (Some((11.0, 0.0)), 1.0));
    workload.finish().map(drop)
}

/// Pointers in page frames without pages, which cannot be read from outside.
pub(super) fn unreadable(daemon: &Daemon) -> Result<()> {
    let mut workload = Steered::having(&["create aql unreadable"])?;
    let pid = workload.pid();
    let metrics = errors(daemon, "unreadable")?;
    assert_eq!(not_measured(&metrics, pid), 1.0);
    assert_eq!(reported(&metrics, PACKETS, pid).unwrap_or_default(), (0.0, 0.0));
    workload.must("destroy 0")?;
    let metrics = has_queues(daemon, pid, 0)?;
    assert_eq!(incomplete(&metrics, pid), 1.0);
    workload.finish().map(drop)
}
