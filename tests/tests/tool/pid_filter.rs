//! `--pid`: what is traced, what costs nothing, and what is reported.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::{NO_MQD, run};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Daemon, JsonProcess, Metrics, Stream, Workload, counts, until, workload};
use serde_json::{Value, json};
use std::fs;

/// A PID above the largest on Linux (PID_MAX_LIMIT, 4 Mi).
const NOBODY: &str = "4194305";

#[test]
fn a_noisy_neighbour_costs_no_record() -> Result<()> {
    let daemon = Daemon::shared()?;
    let mut noise = Workload::ready(&["noise"])?;
    let mut wanted = Workload::ready(&["script"])?;

    let mut stream = Stream::tracing(&["--pid", &wanted.pid().to_string()])?;
    // one process that existed before the tracer, and one that starts under it
    let mut late = Workload::ready(&["noise"])?;
    let noisy = [&noise, &late].map(|one| one.pid().to_string());
    let heard = |metrics: &Metrics| {
        let calls = noisy.each_ref().map(|pid| metrics.sum("kfd_process_ioctls_total", &[("pid", pid)]));
        Some(calls[0]?.min(calls[1]?))
    };
    noise.send_line("go")?;
    late.send_line("go")?;
    let before = daemon.scrape_until("the noise", heard)?;
    for operation in ["version", "create aql", "unknown 0x82", "destroy 0"] {
        wanted.send_line(operation)?;
    }
    wanted.wait_lines("the last operation", SOON, |lines| {
        lines.iter().find(|line| line["op"] == "destroy").cloned()
    })?;
    daemon.scrape_until("the neighbours to be noisy meanwhile", |metrics| {
        heard(metrics).filter(|calls| *calls > before + 10.0)
    })?;
    // With calls under way while another tracer's probes were attached and detached, a daemon was observed to
    // miss the entry of one.
    noise.finish()?;
    late.finish()?;
    let summary = stream.finish()?;

    let lines = stream.lines();
    let foreign = lines.iter().find(|line| line["event"] != "summary" && line["pid"] != wanted.pid());
    assert_eq!(foreign, None);
    // It existed before the stream: that is reported at the start, and costs no record.
    let standing = stream.events("process_seen");
    assert_eq!(standing.iter().map(|line| &line["standing"]).collect::<Vec<_>>(), [&json!(true)]);
    let records = json!({"ioctl": 4, "mqd_write": 1, "queue_create": 1, "queue_destroy": 1});
    assert_eq!(summary["records"], records);
    assert_eq!(summary["lost"], json!({}));
    assert_eq!(counts::summary_calls(&summary)?, counts::calls(&wanted.finish()?));
    daemon.end()
}

#[test]
fn a_thread_stands_for_its_process() -> Result<()> {
    let mut noise = Workload::ready(&["noise"])?;
    let pid = noise.pid();
    let thread = until("a second thread of the noise", SOON, || {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))?.map(|task| Ok(task?.file_name()));
        let threads: Vec<_> = threads.collect::<Result<_>>()?;
        let mut names = threads.iter().filter_map(|name| name.to_str());
        Ok(names.find(|name| *name != pid.to_string()).map(str::to_owned))
    })?;
    let mut stream = Stream::tracing(&[&NO_MQD[..], &["--pid", &thread]].concat())?;
    assert!(
        stream.stderr().contains(&format!("{thread} is a thread of process {pid}")),
        "{}",
        stream.stderr()
    );
    noise.send_line("go")?;
    let call = stream.wait_line("a call of the process", SOON, |line| line["event"] == "ioctl")?;
    assert_eq!(call["pid"], pid);
    noise.finish()?;
    // it ends by itself, with the process
    stream.wait_success(ATTACH)
}

#[test]
fn exec_is_followed_and_a_child_is_not() -> Result<()> {
    let mut shell = shell()?;
    let pid = shell.pid();
    let mut stream = Stream::tracing(&["--pid", &pid.to_string()])?;
    shell.send_line("go")?;
    shell.wait_success(SOON)?;
    let opened: Vec<Value> = shell.lines().iter().filter(|line| line["op"] == "open").cloned().collect();
    let pids: Vec<bool> = opened.iter().map(|line| line["pid"] == pid).collect();
    assert_eq!(
        pids,
        [false, true, true],
        "a child, then two programs in the shell's own process: {opened:?}"
    );

    // it ends by itself, and reports why
    stream.wait_success(ATTACH)?;
    assert!(stream.stderr().contains(&format!("process {pid} has ended")), "{}", stream.stderr());
    let lines = stream.lines();
    let (summary, events) = lines.split_last().context("no line")?;
    assert!(events.iter().all(|line| line["pid"] == pid), "{events:?}");
    let calls: Vec<&Value> =
        events.iter().filter(|line| line["event"] == "ioctl").map(|line| &line["ioctl"]).collect();
    assert_eq!(
        calls,
        ["GET_CLOCK_COUNTERS", "GET_VERSION", "CREATE_QUEUE"],
        "GET_PROCESS_APERTURES_NEW is the child's"
    );
    let lives: Vec<&Value> = events
        .iter()
        .filter(|line| line["event"] == "process_seen")
        .map(|line| &line["kfd_process"])
        .collect();
    assert!(lives.len() == 2 && lives[0] != lives[1], "exec makes a new KFD process: {lives:?}");
    assert_eq!(summary["queues"]["created"], 1);
    assert_eq!(summary["records"]["open"], 2);
    Ok(())
}

/// Waits for a line; then a child of it requests the apertures, then it becomes a workload itself, which
/// execs another.
fn shell() -> Result<JsonProcess> {
    let program = workload::program();
    let script =
        format!("read go; {program} script apertures; exec {program} script clock exec version 'create aql'");
    JsonProcess::spawn("sh", &["-c", &script])
}

#[test]
fn who_is_not_there_is_bad_usage() -> Result<()> {
    let output = run(&["--pid", NOBODY])?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(NOBODY) && stderr.contains("no such process"), "{stderr}");
    assert_eq!(output.stdout, b"");
    Ok(())
}
