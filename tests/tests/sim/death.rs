//! Queues that end with their process: whichever task frees them in the driver, the tracer names the owner.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::{FEW, run_json};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{JsonLines, Stream, VmKernel, Workload};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn of(lines: &[Value], event: &str, pid: u32) -> Vec<Value> {
    lines.iter().filter(|line| line["event"] == event && line["pid"] == pid).cloned().collect()
}

fn place(line: &Value) -> (u64, u64) {
    (line["gpu_id"].as_u64().unwrap_or(0), line["queue_id"].as_u64().unwrap_or(u64::MAX))
}

/// Sends SIGKILL, and returns all events that follow.
fn killed(stream: &JsonLines, workload: &mut Workload) -> Result<Vec<Value>> {
    let pid = workload.pid();
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    stream.wait_line("the release of the process", SOON, |line| {
        line["event"] == "process_release" && line["pid"] == pid
    })?;
    Ok(stream.lines())
}

/// A kworker did it, since it releases the process on every kernel (kfd_process_wq_release).
fn by_a_kworker(end: &Value, pid: u32) {
    let task = end["task_pid"].as_u64().expect("a task");
    assert!(task != u64::from(pid) && task != 0, "{end}");
}

/// Up to 6.12 that kworker frees the queues, too; later the exiting task does it itself
/// (kfd_process_notifier_release_internal).
fn freed(end: &Value, pid: u32) -> Result<()> {
    if VmKernel::from_env()?.frees_in_exiting_task() {
        assert_eq!(end["task_pid"], pid, "{end}");
    } else {
        by_a_kworker(end, pid);
    }
    Ok(())
}

#[test]
fn every_queue_of_a_killed_process_ends() -> Result<()> {
    let stream = Stream::shared()?;
    let mut workload = Workload::ready(&["kill-me", "--gpus=2", "--queues=8"])?;
    let pid = workload.pid();
    let queues: BTreeSet<_> = workload.queues().iter().map(place).collect();
    let gpus: BTreeSet<_> = queues.iter().map(|(gpu, _)| gpu).collect();
    assert_eq!((queues.len(), gpus.len()), (8, 2));

    let lines = killed(&stream, &mut workload)?;
    let ends = of(&lines, "queue_destroy", pid);
    assert_eq!(ends.len(), 8, "{ends:?}");
    assert_eq!(ends.iter().map(place).collect::<BTreeSet<_>>(), queues);
    for end in &ends {
        assert_eq!(end["cause"], "process_death", "{end}");
        assert_eq!(end["comm"], "kfd-workload", "{end}");
        assert!(end["lifetime_ns"].as_u64().is_some_and(|ns| ns > 0), "{end}");
        freed(end, pid)?;
    }
    assert_eq!(of(&lines, "mm_release", pid).len(), 1);
    let release = of(&lines, "process_release", pid);
    assert_eq!(release.len(), 1);
    by_a_kworker(&release[0], pid);

    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    assert_eq!((&ps["queues"], &ps["processes"]), (&json!([]), &json!([])));
    stream.end()
}

#[test]
fn the_filter_goes_by_the_owner_and_not_by_who_runs() -> Result<()> {
    let mut wanted = Workload::ready(&["kill-me", "--queues=8"])?;
    let mut other = Workload::ready(&["kill-me", "--queues=4"])?;
    let pid = wanted.pid();
    let mut stream = Stream::tracing(&[&FEW[..], &["--pid", &pid.to_string()]].concat())?;
    other.signal(Signal::SIGKILL)?;
    other.wait_exit(SOON)?;
    let lines = killed(&stream, &mut wanted)?;
    let ends = of(&lines, "queue_destroy", pid);
    assert_eq!(ends.len(), 8, "{lines:?}");
    ends.iter().try_for_each(|end| freed(end, pid))?;
    assert_eq!(of(&lines, "queue_destroy", other.pid()), Vec::<Value>::new());
    // it ends by itself, since the watched process has ended
    stream.wait_success(ATTACH)?;
    let summary = stream.summary()?;
    assert_eq!(summary["queues"]["standing"], 8);
    assert_eq!(summary["records"]["queue_destroy"], 8, "the other one's four cost no record: {summary}");
    Ok(())
}
