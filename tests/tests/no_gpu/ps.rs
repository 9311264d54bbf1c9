//! `kfd-trace ps` where no queue can exist: processes are listed all the same.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::{VmKernel, Workload};
use serde_json::{Value, json};

#[test]
fn a_process_without_queues_is_listed() -> Result<()> {
    let pids = |ps: &Value| -> Vec<Value> {
        ps["processes"].as_array().into_iter().flatten().map(|row| row["pid"].clone()).collect()
    };
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    assert_eq!((&ps["queues"], pids(&ps)), (&json!([]), Vec::new()));
    if VmKernel::from_env()?.driver_is_from("7.2") {
        // kfd_open refuses without a GPU: there can be no process
        return Ok(());
    }
    let workload = Workload::ready(&["script", "version", "wait"])?;
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    assert_eq!((&ps["queues"], pids(&ps)), (&json!([]), vec![json!(workload.pid())]));
    Ok(())
}
