//! `kfd-trace run`: a command, all that it starts, and nothing else.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::{FEW, NO_MQD, program, run};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{JsonProcess, Steered, workload};
use nix::sys::signal::Signal;
use serde_json::{Deserializer, Value};
use std::collections::BTreeSet;
use std::fs;

/// The lines that it has written to a file.
fn written(file: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("read {file}"))?;
    Ok(Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>()?)
}

#[test]
fn a_command_is_traced_with_all_that_it_starts() -> Result<()> {
    const FILE: &str = "/tmp/run.json";
    let mut neighbour = Steered::having(&["version"])?;
    let program_of = workload::program();
    // The second one opens KFD when its parent has ended, so that the tracer has inherited it.
    let script = format!(
        "{program_of} script version; sh -c '(sleep 1; {program_of} script clock) & exit 0'; \
         read go; {program_of} script apertures; exit 7"
    );
    let words = [&["run", "--json", "-o", FILE], &NO_MQD[..], &["--", "sh", "-c", &script]].concat();
    let mut traced = JsonProcess::spawn(&program(), &words)?;
    let ended = |lines: &[Value]| {
        lines
            .iter()
            .filter(|line| !line["counts"].is_null())
            .filter_map(|line| line["pid"].as_u64())
            .collect()
    };
    traced.wait_lines("the first two", ATTACH, |lines| (BTreeSet::len(&ended(lines)) == 2).then_some(()))?;
    neighbour.must("version")?;
    neighbour.must("create aql")?;
    traced.send_line("go")?;
    let status = traced.wait_exit(ATTACH)?;
    assert_eq!(status.code(), Some(7), "the command's own: {}", traced.stderr());
    neighbour.kill()?;

    let lines = written(FILE)?;
    let (summary, events) = lines.split_last().context("no line")?;
    let opened: BTreeSet<u64> = ended(&traced.lines());
    let seen: BTreeSet<u64> = events.iter().filter_map(|line| line["pid"].as_u64()).collect();
    assert_eq!((opened.len(), &seen), (3, &opened), "{lines:?}");
    let calls =
        |name: &str| events.iter().filter(|line| line["event"] == "ioctl" && line["ioctl"] == name).count();
    // Apertures take two calls: how many, and which.
    let names = ["GET_VERSION", "GET_CLOCK_COUNTERS", "GET_PROCESS_APERTURES_NEW", "CREATE_QUEUE"];
    assert_eq!(names.map(calls), [1, 1, 2, 0], "{lines:?}");
    assert_eq!((&summary["event"], &summary["records"]["process_release"]), (&"summary".into(), &3.into()));
    assert_eq!(summary["lost"], serde_json::json!({}));
    Ok(())
}

/// Runs a command of a shell to its end; returns the exit code and standard error.
fn ends(script: &str) -> Result<(Option<i32>, String)> {
    let output = run(&[&["run", "-c"], &FEW[..], &["sh", "-c", script]].concat())?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn its_end_is_that_of_the_command() -> Result<()> {
    let (code, summary) = ends("kill -9 $$")?;
    assert_eq!(code, Some(128 + 9), "{summary}");
    assert!(summary.contains("queues: 0 existing, 0 created"), "{summary}");
    assert_eq!(summary.lines().filter(|line| line.contains("summary of")).count(), 1);
    let output = run(&[&["run"], &FEW[..], &["--", "/no/such", "program"]].concat())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{errors}");
    assert!(errors.contains("kfd-trace: cannot run /no/such: No such file"), "{errors}");
    Ok(())
}

#[test]
fn it_passes_sigterm_on_and_leaves_ctrl_c_to_the_command() -> Result<()> {
    let script = "trap 'exit 3' TERM; echo '{}'; while :; do sleep 0.1; done";
    let mut traced =
        JsonProcess::spawn(&program(), &[&["run", "-c"], &FEW[..], &["--", "sh", "-c", script]].concat())?;
    traced.wait_lines("the command", ATTACH, |lines| (!lines.is_empty()).then_some(()))?;
    traced.signal(Signal::SIGINT)?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(traced.exited()?.is_none(), "the terminal would have sent it to the command, too");
    traced.signal(Signal::SIGTERM)?;
    let status = traced.wait_exit(SOON)?;
    assert_eq!(status.code(), Some(3), "{}", traced.stderr());
    Ok(())
}

/// Processes that open KFD at once and end: more than a kretprobe of perf has room for.
const CROWD: usize = 300;

#[test]
fn a_crowd_of_processes_is_seen_to_come_and_go() -> Result<()> {
    const FILE: &str = "/tmp/crowd.json";
    let script = format!(
        "for number in $(seq {CROWD}); do {} script version > /dev/null & done; wait",
        workload::program()
    );
    let words = [&["run", "--json", "-o", FILE], &NO_MQD[..], &["--", "sh", "-c", &script]].concat();
    let output = run(&words)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = written(FILE)?;
    let (summary, events) = lines.split_last().context("no line")?;
    let count = |event: &str| events.iter().filter(|line| line["event"] == event).count();
    assert_eq!(["open", "process_release"].map(count), [CROWD; 2]);
    let returned = events.iter().filter(|line| line["event"] == "ioctl" && line["outcome"] == "returned");
    assert_eq!(returned.count(), CROWD);
    assert_eq!(summary["lost"], serde_json::json!({}));
    Ok(())
}
