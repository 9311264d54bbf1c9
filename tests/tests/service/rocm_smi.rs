//! Debian's rocm-smi beside the doctor: whom it lists, and how it names them.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::service::tracing;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Workload, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Names by PID, in rows of `PID  PROCESS NAME  GPU(s)  ...`. Where there is no render node it cannot tell on which GPU a process is,
/// which its exit code says.
fn listed() -> Result<BTreeMap<u32, String>> {
    let output = Command::new("rocm-smi").arg("--showpids").output().context("run rocm-smi")?;
    let told = String::from_utf8(output.stdout)?;
    ensure!(told.contains("KFD Processes"), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
    };
    Ok(told.lines().filter_map(row).collect())
}

/// The doctor's word for what rocm-smi says.
fn said(name: Option<&String>) -> &'static str {
    match name.map(String::as_str) {
        None => "missed",
        Some("UNKNOWN") => "unknown",
        Some(_) => "named",
    }
}

/// That both say the same of a process.
fn check(pid: u32, expected: &str) -> Result<()> {
    // Its exit code is that of what it finds.
    let output = Command::new("kfd-trace").args(["doctor", "--json"]).output().context("run kfd-trace")?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let rows = report["processes"].as_array().context("processes")?;
    let row =
        rows.iter().find(|row| row["pid"] == pid).with_context(|| format!("no row of {pid}: {report}"))?;
    let listed = listed()?;
    assert_eq!((&row["rocm_smi"], said(listed.get(&pid))), (&json!(expected), expected), "{listed:?}, {row}");
    Ok(())
}

fn is_zombie(pid: u32) -> Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

#[test]
fn is_what_the_doctor_says_that_it_is() -> Result<()> {
    tracing()?;
    ensure!(listed()?.is_empty(), "somebody uses KFD: {:?}", listed()?);
    let plain = Workload::ready(&["hold"])?;
    check(plain.pid(), "named")?;
    // it is as blind as lsof to nobody whom KFD has
    for words in [
        &["hold", "--hidden"][..],
        &["hold", "--apart=node"],
        &["hold", "--apart=bind"],
        &["hold", "--apart=pids"],
        &["hold", "--close-fd"],
        &["hold", "--close-fd", "--map"],
        &["hold", "--dead-leader"],
        &["hold", "--exec"],
    ] {
        let workload = Workload::ready(words)?;
        check(workload.host_pid(), "named").with_context(|| format!("{words:?}"))?;
    }
    let mut parent = Workload::ready(&["hold", "--fork"])?;
    let forked = parent.operations("fork").pop().context("no child")?;
    let child = u32::try_from(forked["child"].as_u64().context("a PID")?)?;
    assert!(!listed()?.contains_key(&child), "KFD does not serve it");
    parent.signal(Signal::SIGKILL)?;
    until("its end", SOON, || Ok(is_zombie(parent.pid())?.then_some(())))?;
    // ps has its name until it is reaped
    check(parent.pid(), "named").context("a zombie")?;
    parent.wait_exit(SOON)?;
    check(parent.pid(), "unknown").context("reaped")?;
    parent.close_stdin();
    Ok(())
}
