//! A process that exits before its /proc entry can be read: the tracer is stopped meanwhile.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{JsonProcess, SharedStream, Stream, Workload, workload};
use serde_json::{Value, json};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Starts and ends the process while the stream is stopped; returns what the stream reports about it.
fn seen_too_late(mut process: JsonProcess, stream: &mut SharedStream) -> Result<(JsonProcess, Value)> {
    process.close_stdin();
    process.wait_success(SOON)?;
    assert!(!Path::new(&format!("/proc/{}", process.pid())).exists());
    stream.go_on()?;
    let seen = stream.wait_line("the process", SOON, |line| line["event"] == "process_seen")?;
    Ok((process, seen))
}

fn stopped() -> Result<SharedStream> {
    let mut stream = Stream::shared()?;
    stream.pause()?;
    Ok(stream)
}

#[test]
fn uid_name_and_cgroup_come_from_the_kernel() -> Result<()> {
    set_permissions("/dev/kfd", Permissions::from_mode(0o666))?;
    let mut stream = stopped()?;
    // The shell becomes the workload by exec, so its PID is the one that joins the cgroup.
    let id = "5d".repeat(32);
    let leaf = format!("cri-containerd-{id}.scope");
    let script = format!("exec {} short --cgroup=pods/{leaf}", workload::program());
    let (process, seen) = seen_too_late(JsonProcess::spawn("sh", &["-c", &script])?, &mut stream)?;
    let pid = process.pid();
    let reported =
        json!([seen["pid"], seen["ns_pid"], seen["uid"], seen["comm"], seen["cgroup"], seen["standing"]]);
    assert_eq!(reported, json!([pid, pid, 0, "kfd-workload", leaf, false]), "the path could not be read");
    assert_eq!(json!([seen["container_id"], seen["runtime"]]), json!([id, "containerd"]));
    let birth = stream.wait_line("its queue", SOON, |line| line["event"] == "queue_create")?;
    assert_eq!((&birth["pid"], &birth["comm"]), (&json!(pid), &json!("kfd-workload")));
    stream.end()
}

#[test]
fn another_uid_is_reported() -> Result<()> {
    set_permissions("/dev/kfd", Permissions::from_mode(0o666))?;
    let mut stream = stopped()?;
    let mut nobody = Workload::spawn_as(65534, &["short"])?;
    nobody.finish()?;
    stream.go_on()?;
    let seen = stream.wait_line("the process", SOON, |line| line["event"] == "process_seen")?;
    assert_eq!(json!([seen["pid"], seen["uid"]]), json!([nobody.pid(), 65534]));
    stream.end()
}

#[test]
fn the_pid_inside_a_namespace_is_reported() -> Result<()> {
    let mut stream = stopped()?;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", &workload::program(), "short"]);
    let process = JsonProcess::start(&mut command).context("a PID namespace")?;
    let (process, seen) = seen_too_late(process, &mut stream)?;
    assert_eq!((&seen["ns_pid"], &seen["comm"]), (&json!(1), &json!("kfd-workload")));
    assert_ne!(seen["pid"], process.pid(), "the process inside is unshare's child");
    let inside = process.lines().iter().find(|line| line["op"] == "open").cloned().context("it opened")?;
    assert_eq!(inside["pid"], 1);
    stream.end()
}
