//! Partitions by name: they share the address of their chip.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::Workload;
use kfd_trace_tests::harness::tracer::run_json;
use serde_json::json;
use std::collections::BTreeSet;

#[test]
fn each_partition_has_a_name_and_a_budget_of_its_own() -> Result<()> {
    let _workload = Workload::ready(&["script", "create aql gpu=2", "wait"])?;
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    let gpus = ps["gpus"].as_array().context("GPUs")?;
    assert_eq!(gpus.len(), 8);
    let pci: BTreeSet<_> = gpus.iter().map(|gpu| gpu["pci"].as_str()).collect();
    let pci = pci.into_iter().collect::<Option<Vec<_>>>().context("addresses")?;
    assert_eq!(pci.len(), 1, "{pci:?}");
    assert!(std::path::Path::new("/sys/bus/pci/devices").join(pci[0]).exists(), "{pci:?}");
    for (index, gpu) in gpus.iter().enumerate() {
        assert_eq!(json!([gpu["index"], gpu["partition"]]), json!([index, index]));
        assert_eq!(gpu["gpu"], json!(format!("gpu {index} ({} partition {index}, gfx942)", pci[0])));
        assert_eq!(gpu["queues"]["cp"], json!(u32::from(index == 2)), "{gpu}");
    }
    assert_eq!(ps["queues"][0]["gpu"], gpus[2]["gpu"]);
    Ok(())
}
