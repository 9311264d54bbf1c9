//! `kfd-trace hw` on GPUs with eight XCCs: a queue has an MQD on each, and memory behind an SDMA queue's is left out.

use anyhow::Result;
use kfd_trace_tests::harness::{Steered, hw};
use serde_json::json;

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
