//! Priority and CU mask of a queue, and who changed them: the API, `ps --wide` and the stream, checked against the
//! workload, and the mask against what the driver wrote into the MQD.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::run;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, Stream, events, hw, nodes, until};
use serde_json::{Value, json};
use std::path::Path;

/// Bit 32 of the mask is the ninth CU of the first of four engines.
const OPERATIONS: [&str; 3] = ["create aql priority=7", "update 0 50 priority=11", "cu-mask 0 0xff 0x1"];

#[test]
fn priority_and_mask_are_shown_as_they_were_set() -> Result<()> {
    let stream = Stream::tracing(&[])?;
    let mut daemon = Daemon::quick(&[])?;
    let mut workload = Steered::having(&OPERATIONS)?;
    let pid = workload.pid();
    let engines = json!([[3, 2, 2, 2]]);

    let updates = events::wait(&stream, "queue_update", pid, 2)?;
    let shown = |fields: [&str; 4]| -> Vec<Value> {
        updates.iter().map(|update| json!(fields.map(|field| update[field].clone()))).collect()
    };
    assert_eq!(
        shown(["priority_before", "priority_before_level", "priority", "priority_level"]),
        [json!([7, "normal", 11, "high"]), json!([null, null, 11, "high"])]
    );
    let masks = shown(["cu_mask", "cus_per_engine", "result", "percent"]);
    assert_eq!(masks, [json!([null, null, 0, 50]), json!([["0x000000ff", "0x00000001"], engines, 0, 50])]);

    let row = until("the mask", SOON, || {
        let queues = daemon.json("/api/v1/queues")?["queues"].clone();
        let own = queues.as_array().context("queues")?.iter().find(|row| row["pid"] == pid).cloned();
        Ok(own.filter(|row| !row["cu_mask"].is_null()))
    })?;
    let fields = ["priority", "priority_level", "priority_created", "priority_changed_by", "cus_per_engine"];
    let values = fields.map(|field| row[field].clone());
    assert_eq!(json!(values), json!([11, "high", 7, pid, engines]), "{row}");
    assert!(row["priority_changed_ns"].as_u64() > Some(0), "{row}");

    let url = format!("http://{}", daemon.address);
    let text = String::from_utf8(run(&["ps", "--wide", "--ages-from", &url])?.stdout)?;
    let own = text.lines().find(|line| line.contains("compute_aql")).context("its row")?;
    assert!(own.contains(&format!("  11 (high), created 7 (normal), set by {pid} ")), "{text}");
    assert!(own.contains("  9 of 64 CUs (per SE 3+2+2+2)  "), "{text}");

    let written = hw::rows(pid)?.pop().context("the queue")?;
    // 5.10 does not report the generation, which the places of the masks depend on.
    let gpu = nodes(Path::new("/sys"))?.into_iter().next().context("a GPU")?;
    if gpu.property("gfx_target_version").is_ok() {
        assert_eq!(hw::enabled(&written)?, engines, "{written}");
    }
    daemon.stop()?;
    workload.finish().map(drop)
}
