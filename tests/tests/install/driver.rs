//! How the service follows the driver: it waits for one, detaches when it is unloaded, and traces the next.

use crate::installed;
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::driver::Driver;
use kfd_trace_tests::harness::prometheus::{Prometheus, RULES};
use kfd_trace_tests::harness::service::{ADDRESS, command, main_pid, scrape_until, tracing};
use kfd_trace_tests::harness::wait::ATTACH;
use kfd_trace_tests::harness::{Metrics, until};
use std::fs;

/// How many descriptors a process has open.
fn descriptors(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// The soft and the hard limit of a process's descriptors.
fn limit(pid: u32, limits: &str) -> Result<()> {
    command("prlimit", &["--pid", &pid.to_string(), &format!("--nofile={limits}")]).map(drop)
}

/// Enough for the pages, and not for a probe each.
const FEW: usize = 20;

/// The service waits for a driver, traces it, and detaches from it. For the next driver it has no descriptors
/// for the probes: it keeps trying, an alert fires, and no restart is needed. (A next driver without such
/// trouble: tests/tests/no_gpu/reload.rs.)
#[test]
fn that_comes_later_is_traced_and_one_that_cannot_be_is_an_alert() -> Result<()> {
    installed()?;
    let pid = main_pid()?.context("it runs")?;
    let none =
        |metrics: &Metrics| metrics.sum("kfd_trace_driver_loaded", &[]).filter(|loaded| *loaded == 0.0);
    scrape_until("it to wait for a driver", none)?;
    let limited = descriptors(pid)? + FEW;
    let driver = Driver::of_job()?;
    driver.load()?;
    tracing()?;
    let removed = driver.remove()?;
    scrape_until("the driver to go", none)?;
    until("the probes to be taken off", ATTACH, || Ok((descriptors(pid)? < limited).then_some(())))?;
    let before =
        command("prlimit", &["--pid", &pid.to_string(), "--nofile", "--noheadings", "--output=SOFT,HARD"])?;
    limit(pid, &format!("{limited}:{limited}"))?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    removed.insert()?;
    server.until("KfdTraceNothingTraced to fire", |firing| {
        ensure!(firing.iter().all(|name| name == "KfdTraceNothingTraced"), "{firing:?}");
        Ok(firing.len() == 1)
    })?;

    limit(pid, &Vec::from_iter(before.split_whitespace()).join(":"))?;
    tracing()?;
    server.until("it to end", |firing| Ok(firing.is_empty()))?;
    assert_eq!(main_pid()?, Some(pid), "no restart was needed");
    command("dpkg", &["--purge", "kfd-trace"]).map(drop)
}
