//! The service and the driver: it waits for one, follows it, and says so when it may not trace what has come.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::Metrics;
use kfd_trace_tests::harness::driver::Driver;
use kfd_trace_tests::harness::footprint::Footprint;
use kfd_trace_tests::harness::prometheus::{Prometheus, RULES};
use kfd_trace_tests::harness::service::{ADDRESS, command, main_pid, scrape_until, tracing};

use crate::installed;

/// How many descriptors it may have: too few for the probes, or as many as it likes.
fn descriptors(pid: u32, limit: &str) -> Result<()> {
    command("prlimit", &["--pid", &pid.to_string(), &format!("--nofile={limit}:")]).map(drop)
}

#[test]
fn that_comes_later_is_traced() -> Result<()> {
    installed()?;
    let pid = main_pid()?.context("it runs")?;
    let driver = Driver::of_job()?;
    driver.load()?;
    tracing()?;

    let removed = driver.remove()?;
    let none =
        |metrics: &Metrics| metrics.sum("kfd_trace_driver_loaded", &[]).filter(|loaded| *loaded == 0.0);
    scrape_until("the driver to go", none)?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    descriptors(pid, &(Footprint::of(pid)?.descriptors + 10).to_string())?;
    removed.insert()?;
    let alert = "KfdTraceNothingTraced";
    server.until(alert, |firing| Ok(firing == [alert]))?;
    descriptors(pid, "4096")?;
    tracing()?;
    server.until("its end", |firing| Ok(firing.is_empty()))?;
    assert_eq!(main_pid()?, Some(pid), "no restart was needed");
    command("dpkg", &["--purge", "kfd-trace"]).map(drop)
}
