//! `kfd-trace hw`: rows of a process, and what its ledger says of the same.

use super::tracer::run_json;
use super::{Steered, Workload};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;

/// The rows of this process.
pub fn rows(pid: u32) -> Result<Vec<Value>> {
    let shown = run_json(&["hw", "--json", "--pid", &pid.to_string()])?.pop().context("one object")?;
    Ok(shown["queues"].as_array().context("queues")?.clone())
}

/// CUs that the masks of a row enable, by XCC and shader engine; of engines that the GPU of kfdsim has.
pub fn enabled(row: &Value) -> Result<Value> {
    const ENGINES: usize = 4;
    let count = |mask: &Value| mask.as_u64().map(u64::count_ones).context("a mask");
    let of_xcc = |masks: &Value| -> Result<Vec<u32>> {
        let masks = masks.as_array().context("masks of an XCC")?;
        masks.iter().take(ENGINES).map(count).collect()
    };
    let all = row["cu_masks"].as_array().context("masks")?;
    Ok(Value::from(all.iter().map(|masks| of_xcc(masks).map(Value::from)).collect::<Result<Vec<_>>>()?))
}

/// Type, ring address and ring size of each queue.
pub fn rings(rows: &[Value]) -> Result<BTreeSet<(String, String, u64)>> {
    let ring = |row: &Value| -> Result<(String, String, u64)> {
        let text = |key: &str| Ok::<_, anyhow::Error>(row[key].as_str().context(key.to_owned())?.to_owned());
        Ok((text("type")?, text("ring_address")?, row["ring_size"].as_u64().context("a size")?))
    };
    rows.iter().map(ring).collect()
}

/// The same of the workload's own words.
pub fn ledger(workload: &Steered) -> Result<BTreeSet<(String, String, u64)>> {
    let ring = |queue: &Value| -> Result<(String, String, u64)> {
        let sdma = queue["queue_type"].as_str().context("a type")?.contains("sdma");
        let kind = if sdma { "sdma" } else { "compute" };
        let ring = queue["ring"].as_str().context("a ring")?;
        Ok((kind.to_owned(), ring.to_owned(), queue["ring_size"].as_u64().context("its size")?))
    };
    let workload: &Workload = workload;
    workload.queues().iter().map(ring).collect()
}
