//! The service's own life: systemd restarts it after any end.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::service::{
    SERVICE_PROBES, journal, main_pid, property, scrape_until, signal, tracing,
};
use kfd_trace_tests::harness::tracefs::defined;
use kfd_trace_tests::harness::wait::ATTACH;
use kfd_trace_tests::harness::{Metrics, Steered, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::process::Command;

/// The service after an unexpected end: another process, which traces.
fn come_back(before: u32) -> Result<()> {
    until("systemd to start it again", ATTACH, || Ok(main_pid()?.filter(|pid| *pid != before)))?;
    tracing()?;
    let mut workload = Steered::having(&["create aql"])?;
    let pid = workload.pid().to_string();
    let queue = |metrics: &Metrics| metrics.sum("kfd_process_queues", &[("pid", &pid)]);
    ensure!(scrape_until("a queue", queue)? == 1.0, "one queue");
    workload.finish().map(drop)
}

#[test]
fn is_started_again_after_a_kill() -> Result<()> {
    tracing()?;
    let (pid, restarts) = (main_pid()?.context("it runs")?, property("NRestarts")?);
    let probes = defined(SERVICE_PROBES)?;
    ensure!(probes.contains(&"kfd_ioctl".to_owned()), "{probes:?}");
    signal(Signal::SIGKILL)?;
    come_back(pid)?;
    assert_eq!(defined(SERVICE_PROBES)?, probes, "removed and defined again, each once");
    ensure!(property("NRestarts")?.parse::<u32>()? == restarts.parse::<u32>()? + 1, "one restart");
    Ok(())
}

#[test]
fn another_command_of_the_package_looks_beside_it() -> Result<()> {
    tracing()?;
    let workload = Steered::having(&["create aql"])?;
    let output = Command::new("kfd-trace").args(["doctor", "--json"]).output().context("run kfd-trace")?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let reported = |row: &Value| json!([row["pid"], row["queues"], row["findings"][0]["kind"]]);
    let rows: Vec<_> = report["processes"].as_array().context("processes")?.iter().map(reported).collect();
    ensure!(rows.contains(&json!([workload.pid(), 1, "seen"])), "{report}");
    Ok(())
}

/// A stopped daemon sends no watchdog keep-alive.
#[test]
fn is_started_again_when_it_hangs() -> Result<()> {
    tracing()?;
    let pid = main_pid()?.context("it runs")?;
    signal(Signal::SIGSTOP)?;
    come_back(pid)?;
    let log = journal()?;
    ensure!(log.contains("Watchdog timeout"), "{log}");
    Ok(())
}
