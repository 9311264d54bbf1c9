//! `kfd-trace hw` on GPUs with eight XCCs: a queue has an MQD on each, and memory behind an SDMA queue's is left out.
//! CU masks as the driver wrote them there.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::other_sysfs::{without_btf, without_types};
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::{Steered, Stream, events, hw};
use serde_json::json;
use std::collections::BTreeMap;

#[test]
fn a_queue_has_an_mqd_on_each_xcc() -> Result<()> {
    // Newest first: the SDMA queue is listed behind a compute queue.
    let mut workload = Steered::having(&["create sdma", "create aql", "create aql gpu=1"])?;
    let rows = hw::rows(workload.pid())?;
    assert_eq!(hw::rings(&rows)?, hw::ledger(&workload)?);
    for row in &rows {
        let (xccs, masks) = if row["type"] == "compute" { (8, 8) } else { (1, 0) };
        let shown = (&row["xccs"], row["cu_masks"].as_array().map(Vec::len));
        assert_eq!(shown, (&json!(xccs), Some(masks)), "{row}");
        let mqds = row["mqd_addresses"].as_array().map_or(0, Vec::len);
        assert_eq!(mqds, if row["type"] == "compute" { 8 } else { 0 }, "{row}");
    }
    workload.finish().map(drop)
}

/// Of four engines with three, two, two and one CU in each XCC: XCC N takes bit N of each byte, for CU 0 of the four, CU 1
/// of the first three, CU 2 of the first.
#[test]
fn a_mask_enables_the_cus_that_the_driver_wrote() -> Result<()> {
    let stream = Stream::tracing(&[])?;
    let mut workload = Steered::having(&["create aql", "cu-mask 0 0x0f0f00ff 0x80000001"])?;
    let update = events::wait(&stream, "queue_update", workload.pid(), 1)?.pop().context("an update")?;
    let (first, next, rest, last) = ([2, 0, 1, 1], [1, 0, 1, 1], [1, 0, 0, 0], [2, 0, 0, 0]);
    let expected = json!([first, next, next, next, rest, rest, rest, last]);
    assert_eq!(update["cus_per_engine"], expected, "{update}");
    let row = hw::rows(workload.pid())?.pop().context("the queue")?;
    assert_eq!(hw::enabled(&row)?, expected, "{row}");
    workload.finish().map(drop)
}

/// Without types of the driver: the same on each XCC, and not what is printed behind an SDMA queue.
#[test]
fn ps_has_the_addresses_from_the_mqds() -> Result<()> {
    let created = ["create sdma", "create aql", "create aql", "destroy 1", "create sdma", "create aql"];
    let mut workload = Steered::having(&created)?;
    let root = without_btf()?;
    let [sysfs, drivers] = without_types(&root);
    let ps = run_json(&["ps", "--json", &sysfs, &drivers])?.pop().context("one object")?;
    let rows = ps["queues"].as_array().context("queues")?.iter();
    let shown: BTreeMap<u64, [&serde_json::Value; 2]> = rows
        .filter(|row| row["pid"] == workload.pid())
        .map(|row| {
            Ok((
                row["queue_id"].as_u64().context("an id")?,
                [&row["ring_address"], &row["read_pointer_address"]],
            ))
        })
        .collect::<Result<_>>()?;
    let queues = workload.queues();
    let truth: BTreeMap<u64, [&serde_json::Value; 2]> = queues
        .iter()
        .map(|queue| Ok((queue["queue_id"].as_u64().context("an id")?, [&queue["ring"], &queue["rptr"]])))
        .collect::<Result<_>>()?;
    ensure!(truth.len() == 4 && shown == truth, "{shown:?} instead of {truth:?}");
    workload.finish().map(drop)
}
