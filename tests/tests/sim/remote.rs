//! `ps --url` and `top --url`, as a user without any capability: what a daemon knows is what it shows.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::{FEW, program};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Daemon, Steered, TerminalProcess, capable};
use rustix::thread::CapabilitySet;
use serde_json::Value;

fn url(daemon: &Daemon) -> String {
    format!("http://{}", daemon.address)
}

#[test]
fn ps_of_a_daemon_has_its_rows_without_any_privilege() -> Result<()> {
    let mut daemon = Daemon::quick(&FEW)?;
    let mut workload = Steered::having(&["create aql", "create sdma"])?;
    let pid = workload.pid();
    let fields =
        ["queue_id", "queue_type", "gpu_id", "gpu", "ring_address", "priority", "kfd_process", "active"];
    let own = |document: &Value| -> Result<Vec<Vec<Value>>> {
        let rows = document["queues"].as_array().context("queues")?.iter().filter(|row| row["pid"] == pid);
        Ok(rows.map(|row| fields.map(|field| row[field].clone()).to_vec()).collect())
    };
    let output = capable::run(&CapabilitySet::empty(), &["ps", "--json", "--url", &url(&daemon)])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed: Value = serde_json::from_slice(&output.stdout)?;
    let expected = own(&daemon.json("/api/v1/queues")?)?;
    assert_eq!(own(&listed)?, expected);
    assert_eq!(expected.len(), 2);
    assert_eq!(listed["gpus"].as_array().map(Vec::len), Some(2), "{listed}");
    let output = capable::run(&CapabilitySet::empty(), &["ps", "--wide", "--url", &url(&daemon)])?;
    let text = String::from_utf8(output.stdout)?;
    assert_eq!(
        text.lines().filter(|line| line.trim_start().starts_with(&format!("{pid} "))).count(),
        2,
        "{text}"
    );
    daemon.stop()?;
    let output = capable::run(&CapabilitySet::empty(), &["ps", "--url", &url(&daemon)])?;
    let stderr = String::from_utf8(output.stderr)?;
    assert!(output.status.code() == Some(1) && stderr.contains("it refuses the connection; "), "{stderr}");
    workload.finish().map(drop)
}

#[test]
fn top_follows_a_daemon_and_shows_that_it_is_gone() -> Result<()> {
    let mut daemon = Daemon::quick(&FEW)?;
    let mut workload = Steered::having(&["create aql"])?;
    let pid = workload.pid().to_string();
    let mut top = TerminalProcess::spawn(&program(), &["top", "--url", &url(&daemon)], (160, 50))?;
    top.wait_text("COMPUTE", ATTACH)?;
    top.press(&format!("/{pid}\r"))?;
    top.wait_text(&format!("Queues of {pid} "), SOON)?;
    workload.must("create sdma")?;
    let rows = |screen: &str| (screen.matches(" sdma ").count() == 1).then_some(());
    top.wait("the second queue", SOON, rows)?;
    daemon.stop()?;
    top.wait_text("no answer for ", SOON)?;
    assert!(top.text().contains("  OLD  "), "{}", top.text());
    top.press("q")?;
    top.wait_restored(ATTACH)?;
    workload.finish().map(drop)
}
