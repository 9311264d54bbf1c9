//! An AMD_LOG_LEVEL log checked against the driver: its queues are the existing ones, and those of a recorded
//! stream.

use crate::timeline::{address, mono_us};
use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Steered, Stream};
use serde_json::{Value, json};
use std::fs;

/// From `hsa_queue_t` to `write_dispatch_id`.
const WRITE_DISPATCH_ID: u64 = 0x38;

/// Above every address that mmap returns, and so the last of the report, which is sorted by address.
const ELSEWHERE: u64 = 0x7fff_f000_0000;

/// What ROCm 7.2 writes for this queue, and for one that is not a KFD queue; the PID is that of a container.
fn log(created: &Value) -> Result<String> {
    let us = mono_us()?;
    let line = |text: String| format!(":4:rocvirtual.cpp:1177: {us:010} us: [pid:7 tid: 0x1a2b3] {text}\n");
    let queue = |swq: u64, hwq: u64| {
        let created = format!(
            "Created SWq={swq:#x} to map on HWq={hwq:#x} with size 16384 with priority 1, cooperative: 0"
        );
        let dispatch = format!(
            "SWq={swq:#x}, HWq={hwq:#x}, id=1, Dispatch Header = 0xb02 (type=2, barrier=1, acquire=1, release=1), setup=3, \
             grid=[256, 1, 1], workgroup=[256, 1, 1], private_seg_size=0, group_seg_size=0, kernel_obj=0x7f0000000000, \
             kernarg_address=0x7f0000001000, completion_signal=0x0, correlation_id=0, rptr=0, wptr=0"
        );
        line(created) + &line(dispatch)
    };
    let own = queue(address(created, "wptr")? - WRITE_DISPATCH_ID, address(created, "ring")?);
    Ok(own + &queue(ELSEWHERE, ELSEWHERE + 0x10_0000))
}

/// `[hwq, state, pid on the host, queue id]` of each queue of the log.
fn joined(report: &Value) -> Result<Vec<Value>> {
    let queues = report["queues"].as_array().with_context(|| format!("queues: {report}"))?;
    let reported =
        |queue: &Value| json!([queue["hwq"], queue["join"], queue["kfd"]["pid"], queue["kfd"]["queue_id"]]);
    Ok(queues.iter().map(reported).collect())
}

#[test]
fn its_queues_are_found_by_their_addresses() -> Result<()> {
    let stream = Stream::shared()?;
    let folder = tempfile::tempdir()?;
    let mut workload = Steered::having(&["create aql"])?;
    let pid = workload.pid();
    let created = workload.act("create aql")?;
    let (path, recorded) = (folder.path().join("app.log"), folder.path().join("stream.json"));
    fs::write(&path, log(&created)?)?;
    let path = path.to_str().context("a path of text")?;
    let expected = [
        json!([created["ring"], "joined", pid, created["queue_id"]]),
        json!([format!("{:#x}", ELSEWHERE + 0x10_0000), "not_found", null, null]),
    ];
    let live = run_json(&["amd-log", "--live", "--json", path])?.pop().context("one object")?;
    assert_eq!(joined(&live)?, expected, "{live}");
    let others = live["join"]["not_in_log"].as_array().context("others")?;
    assert!(others.contains(&json!({"pid": pid, "queues": 1})), "{others:?}");

    workload.must(&format!("destroy id={}", created["queue_id"]))?;
    stream.wait_line("its end", SOON, |line| {
        line["event"] == "queue_destroy" && line["pid"] == pid && line["queue_id"] == created["queue_id"]
    })?;
    let lines: Vec<String> =
        stream.lines().iter().filter(|line| line["pid"] == pid).map(Value::to_string).collect();
    fs::write(&recorded, lines.join("\n") + "\n")?;
    let stream = recorded.to_str().context("a path of text")?;
    let past = run_json(&["amd-log", "--stream", stream, "--json", path])?.pop().context("one object")?;
    assert_eq!(joined(&past)?, expected, "it has ended: {past}");
    let live = run_json(&["amd-log", "--live", "--json", path])?.pop().context("one object")?;
    assert_eq!(joined(&live)?[0][1], "not_found", "{live}");
    workload.finish().map(drop)
}
