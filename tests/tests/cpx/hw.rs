//! `kfd-trace hw` on the partitions of one GPU: a queue has one MQD, on the partition that it was made on.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::{Steered, hw};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[test]
fn a_queue_has_one_mqd_on_its_partition() -> Result<()> {
    let mut workload =
        Steered::having(&["create sdma gpu=2", "create aql gpu=2", "create aql gpu=7", "create compute"])?;
    let rows = hw::rows(workload.pid())?;
    assert_eq!(hw::rings(&rows)?, hw::ledger(&workload)?);
    let places = |rows: &[Value], ring: &str| -> Result<BTreeMap<String, Value>> {
        let place =
            |row: &Value| Ok((row[ring].as_str().context("a ring")?.to_owned(), row["gpu_id"].clone()));
        rows.iter().map(place).collect()
    };
    assert_eq!(places(&rows, "ring_address")?, places(&workload.queues(), "ring")?);
    for row in &rows {
        assert_eq!((&row["xccs"], &row["comm"]), (&json!(1), &json!("kfd-workload")), "{row}");
    }
    workload.finish().map(drop)
}
