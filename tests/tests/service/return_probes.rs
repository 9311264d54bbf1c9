//! The daemon of the unit sees returns by the probes that root defines for it: of threads that sleep in WAIT_EVENTS, and of
//! calls beside hundreds of them.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::service::{ADDRESS, SERVICE_PROBES, scrape, scrape_until, tracing};
use kfd_trace_tests::harness::tracefs::defined;
use kfd_trace_tests::harness::{Metrics, Steered, http};
use serde_json::{Value, json};

/// Threads that sleep: more than a kretprobe of perf has room for, however many CPUs there are.
const SLEEPERS: u32 = 300;
/// Calls of another process meanwhile.
const CALLS: u32 = 50;

/// What the service has attached one row of the table to.
fn row(name: &str) -> Result<Value> {
    let status: Value = serde_json::from_str(&http::get(ADDRESS, "/api/v1/status")?.body)?;
    let rows = status["probes"].as_array().context("probes")?;
    let row = rows.iter().find(|row| row["probe"] == name).with_context(|| status.to_string())?;
    Ok(json!([row["functions"], row["verdict"]]))
}

#[test]
fn are_what_the_service_sees_sleepers_and_their_neighbours_by() -> Result<()> {
    tracing()?;
    assert_eq!(row("ioctl_return")?, json!([["kfd_ioctl"], "attached"]));
    let probes = defined(SERVICE_PROBES)?;
    ensure!(probes.contains(&"kfd_ioctl".to_owned()), "{probes:?}");
    let versions = |metrics: &Metrics| {
        metrics.sum("kfd_ioctl_duration_seconds_count", &[("ioctl", "GET_VERSION")]).unwrap_or(0.0)
    };
    let sum = |metrics: &Metrics, name| metrics.sum(name, &[]).unwrap_or(0.0);
    let not_seen = ["kfd_ioctls_no_return_seen_total", "kfd_trace_ioctl_returns_missed"];
    let before = scrape()?;

    let mut sleeping = Steered::having(&[])?;
    sleeping.must(&format!("sleepers {SLEEPERS}"))?;
    scrape_until("all of them asleep", |metrics| {
        (sum(metrics, "kfd_event_waits_in_flight") == f64::from(SLEEPERS)).then_some(())
    })?;
    let mut other = Steered::having(&[])?;
    (0..CALLS).try_for_each(|_| other.must("version"))?;
    let asleep = scrape()?;
    ensure!(versions(&asleep) - versions(&before) == f64::from(CALLS), "{}", versions(&asleep));
    ensure!(sum(&asleep, "kfd_ioctls_in_flight") == 0.0, "a wait is not work");

    ensure!(sleeping.act("wake")?["woken"] == SLEEPERS, "all return");
    let after = scrape()?;
    let waits = |metrics: &Metrics| sum(metrics, "kfd_event_wait_duration_seconds_count");
    ensure!(waits(&after) - waits(&before) == f64::from(SLEEPERS), "{}", waits(&after));
    for name in not_seen {
        ensure!(sum(&after, name) == sum(&before, name), "{name}: {}", sum(&after, name));
    }
    sleeping.kill()?;
    other.kill()
}
