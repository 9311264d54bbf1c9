//! Threads whose tids lead to the same seat of the tracer's: each call is counted for who made it.

use anyhow::{Context, Result};
use kfd_trace_common::limits::SEATS;
use kfd_trace_tests::harness::{Daemon, Metrics, Steered};

/// Calls of each kind that one process makes.
const TIMES: u32 = 40;

/// Makes and destroys a queue, and fails once in a while.
fn calls(steered: &mut Steered) -> Result<()> {
    steered.must("create aql")?;
    steered.must("destroy 0")?;
    let said = steered.act("destroy 77")?;
    assert!(!said["errno"].is_null(), "{said}");
    Ok(())
}

fn entries(metrics: &Metrics, map: &str) -> Option<f64> {
    metrics.sum("kfd_trace_map_entries", &[("map", map)])
}

#[test]
fn who_finds_the_seat_taken_is_counted_as_exactly() -> Result<()> {
    let mut daemon = Daemon::ready(&[])?;
    let mut seated = Steered::start()?;
    calls(&mut seated)?;
    let before = daemon.scrape()?;
    assert_eq!((entries(&before, "ioctl_stats"), entries(&before, "ioctl_errors")), (Some(0.0), Some(0.0)));
    let mut other = Steered::with_pid(seated.pid() + SEATS)?;
    for _ in 1..TIMES {
        calls(&mut seated)?;
        calls(&mut other)?;
    }
    calls(&mut other)?;
    let after = daemon.scrape()?;
    assert!(entries(&after, "ioctl_stats") >= Some(2.0), "the other one has no seat");
    assert!(entries(&after, "ioctl_errors") >= Some(1.0));
    for process in [&seated, &other] {
        let pid = process.pid().to_string();
        for (name, times) in [("CREATE_QUEUE", TIMES), ("DESTROY_QUEUE", 2 * TIMES)] {
            let own = after.sum("kfd_process_ioctls_total", &[("pid", &pid), ("ioctl", name)]);
            assert_eq!(own.context("its calls")?, f64::from(times), "{name} of {pid}");
        }
    }
    for (name, times) in [("CREATE_QUEUE", 2 * TIMES), ("DESTROY_QUEUE", 4 * TIMES)] {
        let measured = after.sum("kfd_ioctl_duration_seconds_count", &[("ioctl", name)]);
        assert_eq!(measured, Some(f64::from(times)), "every return of {name} was seen");
    }
    let failed = after.sum("kfd_ioctl_errors_total", &[("ioctl", "DESTROY_QUEUE")]);
    assert_eq!(failed, Some(f64::from(2 * TIMES)));
    daemon.stop()
}
