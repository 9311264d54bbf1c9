//! `ps --url`, `top --url` and `doctor --url`, as a user without any capability: what a daemon knows is what it shows.

use super::doctor::{HIDDEN, WRONG, kinds, ready, report, row};
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::{FEW, program, run};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Daemon, Steered, TerminalProcess, capable, until};
use nix::sys::signal::Signal;
use rustix::thread::CapabilitySet;
use serde_json::{Value, json};
use std::process::Output;

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

/// By the daemon, as a user without any capability.
fn doctor(daemon: &Daemon, args: &[&str]) -> Result<Output> {
    capable::run(&CapabilitySet::empty(), &[&["doctor", "--url", &url(daemon)], args].concat())
}

/// Until the daemon has read the pointers of both queues twice.
fn measured(daemon: &Daemon, pid: u32) -> Result<()> {
    until("samples of both queues", SOON, || {
        let queues = daemon.json("/api/v1/queues")?;
        let own = queues["queues"].as_array().into_iter().flatten().filter(|row| row["pid"] == pid);
        let rates = own.filter(|row| row["activity"]["retired_per_second"].is_number()).count();
        Ok((rates == 2).then_some(()))
    })
}

#[test]
fn doctor_of_a_daemon_prints_what_doctor_prints_on_its_node() -> Result<()> {
    let mut daemon = Daemon::quick(&FEW)?;
    let workload = ready(&["hold", "--hidden"])?;
    let (pid, words) = (workload.host_pid(), workload.host_pid().to_string());
    measured(&daemon, pid)?;
    for args in [&["--json"][..], &["--json", "--pid", &words]] {
        let mut here = report(&run(&[&["doctor"], args].concat())?, HIDDEN)?;
        let mut there = report(&doctor(&daemon, args)?, HIDDEN)?;
        assert_eq!(kinds(row(&there, pid)?), ["own_node", "other_pid_namespace"], "{there}");
        assert_eq!(row(&there, pid)?["activity"]["queues_measured"], 2, "{there}");
        assert_eq!((&there["complete"], &there["not_permitted"]), (&json!(true), &json!(0)), "{there}");
        // Others come and go.
        for report in [&mut here, &mut there] {
            report["looked_at"].take();
        }
        assert_eq!(there, here);
    }
    let (here, there) = (run(&["doctor", "--pid", &words])?, doctor(&daemon, &["--pid", &words])?);
    let text = String::from_utf8(there.stdout)?;
    assert_eq!(text, String::from_utf8(here.stdout)?);
    assert!(
        text.contains("  Hidden from lsof and fuser: descriptor ") && text.contains(" is another node of"),
        "{text}"
    );
    println!("{text}");
    let stderr = String::from_utf8(there.stderr)?;
    let hidden = format!("kfd-trace: {}: something is hidden from the usual checks\n", url(&daemon));
    assert_eq!((there.status.code(), stderr), (Some(HIDDEN), hidden));
    // Of processes without a part in KFD clients do not learn whether they exist.
    for pid in ["1", "2147483647"] {
        let output = doctor(&daemon, &["--pid", pid])?;
        let stderr = String::from_utf8(output.stderr)?;
        let line = format!("pid {pid}: KFD has no such process");
        assert!(output.status.code() == Some(2) && stderr.contains(&line), "{stderr}");
    }
    drop(workload);
    daemon.stop()
}

#[test]
fn what_a_dead_process_left_is_wrong_by_a_daemon_too() -> Result<()> {
    let mut daemon = Daemon::quick(&FEW)?;
    let mut workload = ready(&["hold", "--fork"])?;
    let pid = workload.pid();
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    let there = report(&doctor(&daemon, &["--json"])?, WRONG)?;
    let here = report(&run(&["doctor", "--json"])?, WRONG)?;
    assert_eq!(kinds(row(&there, pid)?), ["kept_by_descriptor"], "{there}");
    assert_eq!(row(&there, pid)?["findings"], row(&here, pid)?["findings"]);
    workload.close_stdin();
    daemon.stop()
}

#[test]
fn a_daemon_that_may_not_look_says_so() -> Result<()> {
    let mut daemon = Daemon::quick(&[&FEW[..], &["--sample.interval=0"]].concat())?;
    let workload = ready(&["hold"])?;
    let pid = workload.pid();
    let there = report(&doctor(&daemon, &["--json"])?, HIDDEN)?;
    let own = row(&there, pid)?;
    assert_eq!(kinds(own), ["not_permitted"], "{there}");
    assert_eq!(
        json!([own["seen_by"]["lsof"], own["activity"], own["seen_by"]["kernel"]]),
        json!([null, null, true])
    );
    assert_eq!(there["complete"], false, "{there}");
    assert!(there["not_permitted"].as_u64().is_some_and(|count| count > 0), "{there}");
    let sampled = there["views"].as_array().into_iter().flatten().find(|view| view["view"] == "sampled");
    let why = sampled.and_then(|view| view["why"].as_str()).context("a reason")?;
    assert!(why.contains("--sample.interval=0"), "{why}");
    let text = String::from_utf8(doctor(&daemon, &[])?.stdout)?;
    assert!(text.contains("\nthe daemon cannot look into ") && !text.contains("all is well"), "{text}");
    drop(workload);
    daemon.stop()
}
