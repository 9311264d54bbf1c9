//! What a user without any capability can see, and which messages it gets.

use anyhow::Result;
use kfd_trace_tests::harness::Workload;
use kfd_trace_tests::harness::tracer::run_as;
use serde_json::{Value, json};

const NOBODY: u32 = 65534;

#[test]
fn ps_shows_what_sysfs_shows_and_says_what_it_lacks() -> Result<()> {
    let workload = Workload::ready(&["hold", "--aql=1", "--sdma=1", "--gpus=all"])?;
    let output = run_as(NOBODY, &["ps", "--json"])?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("no addresses") && stderr.contains("not root (uid 65534)"), "{stderr}");

    let ps: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(ps["asked"], json!(["sysfs"]));
    let reported: Vec<Value> = ps["queues"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| json!([row["pid"], row["gpu_id"], row["queue_id"], row["ring_size"], row["ring_address"]]))
        .collect();
    // By PID, number of the GPU, and queue, as the workload proceeds, too.
    let queues = workload.queues();
    let expected: Vec<Value> = queues
        .iter()
        .map(|queue| json!([workload.pid(), queue["gpu_id"], queue["queue_id"], queue["ring_size"], null]))
        .collect();
    assert_eq!(expected.len(), 4);
    assert_eq!(reported, expected);
    Ok(())
}

#[test]
fn tracing_needs_root_and_says_so() -> Result<()> {
    for command in [&[][..], &["--json"], &["daemon", "--web.listen-address=127.0.0.1:0"]] {
        let output = run_as(NOBODY, command)?;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{command:?}: {stderr}");
        let why: Vec<&str> = stderr.lines().filter(|line| !line.contains("serving http://")).collect();
        assert_eq!(why.len(), 1, "{command:?}: {stderr}");
        assert!(why[0].contains("not root (uid 65534)") && why[0].contains("run with sudo"), "{why:?}");
        assert_eq!(output.stdout, b"", "{command:?}");
    }
    Ok(())
}

#[test]
fn status_shows_what_blocks() -> Result<()> {
    let output = run_as(NOBODY, &["status"])?;
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8(output.stdout)?;
    assert!(
        report.contains("blocks: not root (uid 65534)") && report.contains("no probe was tried"),
        "{report}"
    );
    Ok(())
}
