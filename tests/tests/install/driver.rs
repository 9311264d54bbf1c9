//! The service and the driver: it waits for one, lets it go, and follows the next.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::Metrics;
use kfd_trace_tests::harness::driver::Driver;
use kfd_trace_tests::harness::service::{command, main_pid, scrape_until, tracing};

use crate::installed;

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
    removed.insert()?;
    tracing()?;
    assert_eq!(main_pid()?, Some(pid), "no restart was needed");
    command("dpkg", &["--purge", "kfd-trace"]).map(drop)
}
