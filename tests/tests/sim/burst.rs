//! More ioctls than records could carry: the counts stay exact, and what is missing is counted.

use std::time::Duration;

use anyhow::{Context, Result};
use kfd_trace_tests::harness::{Daemon, Stream, Workload, counts, shared};
use nix::sys::signal::Signal;

/// 100,000 ioctls on an emulated CPU.
const LONG: Duration = Duration::from_secs(150);

/// The stream that tests share would have to tell each.
fn quiet() -> Result<()> {
    shared::end_stream()
}

#[test]
fn counts_are_exact() -> Result<()> {
    quiet()?;
    let daemon = Daemon::shared()?;
    let mut burst = Workload::spawn(&["burst", "--threads=4", "--count=100000"])?;
    let truth = burst.finish_within(LONG)?;
    assert_eq!(counts::total(&truth), 100_000);
    let metrics = daemon.scrape()?;
    assert_eq!(counts::by_label(&metrics, "kfd_ioctls_total", "ioctl")?, counts::calls(&truth));
    let measured = counts::by_label(&metrics, "kfd_ioctl_duration_seconds_count", "ioctl")?;
    assert_eq!(measured, counts::calls(&truth), "every return was seen");
    assert_eq!(counts::metric_errors(&metrics)?, counts::errors(&truth));
    assert_eq!(metrics.sum("kfd_trace_records_total", &[("kind", "ioctl")]), Some(0.0), "none was asked for");
    daemon.end()
}

/// With a record for each: those seen, and those that found the buffer full, make the whole.
fn seen_and_lost(stream: &mut Stream, total: u64) -> Result<(u64, u64)> {
    let summary = stream.finish()?;
    assert_eq!(counts::summary_calls(&summary)?.values().sum::<u64>(), total);
    let seen = u64::try_from(stream.events("ioctl").len())?;
    let lost = counts::object(&summary["lost"])?.remove("records lost, ioctl").unwrap_or(0);
    assert_eq!(summary["records"]["ioctl"].as_u64().context("records")?, seen);
    assert_eq!(seen + lost, total);
    Ok((seen, lost))
}

#[test]
fn seen_and_lost_records_make_the_whole() -> Result<()> {
    quiet()?;
    let mut stream = Stream::tracing(&["--event", "ioctl", "--buffer-size", "64KiB"])?;
    let mut burst = Workload::spawn(&["burst", "--threads=4", "--count=100000"])?;
    let truth = burst.finish_within(LONG)?;
    let (seen, _) = seen_and_lost(&mut stream, counts::total(&truth))?;
    assert!(seen > 0);
    Ok(())
}

#[test]
fn a_reader_that_stands_still_loses_and_says_how_much() -> Result<()> {
    quiet()?;
    let mut stream = Stream::tracing(&["--event", "ioctl", "--buffer-size", "64KiB"])?;
    stream.signal(Signal::SIGSTOP)?;
    let (_, truth) = Workload::run(&["burst", "--threads=2", "--count=2000"])?;
    stream.signal(Signal::SIGCONT)?;
    let (seen, lost) = seen_and_lost(&mut stream, counts::total(&truth))?;
    // a record is larger than 64 bytes, so that 64 KiB cannot hold more than 1024
    assert!(seen > 0 && seen <= 1024 && lost > 0, "{seen} {lost}");
    Ok(())
}
