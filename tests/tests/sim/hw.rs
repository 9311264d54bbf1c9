//! `kfd-trace hw` on the driver's own dump of MQDs: the rings are those of the workload's ledger.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::hw;
use kfd_trace_tests::harness::tracer::run;
use kfd_trace_tests::harness::{Steered, VmKernel};

#[test]
fn rings_are_those_of_the_workload() -> Result<()> {
    let mut workload = Steered::having(&["create aql", "create sdma gpu=1", "create compute"])?;
    let mut others = Steered::having(&["create aql gpu=1"])?;
    for workload in [&workload, &others] {
        let rows = hw::rows(workload.pid())?;
        assert_eq!(hw::rings(&rows)?, hw::ledger(workload)?);
        for row in &rows {
            assert_eq!((&row["comm"], &row["xccs"]), (&"kfd-workload".into(), &1.into()), "{row}");
            assert!(row["gpu"] == "0" || row["gpu"] == "1", "{row}");
            assert_eq!(row["active_xccs"], serde_json::Value::Null, "no slots were read: {row}");
        }
    }
    others.must("destroy 0")?;
    assert_eq!(hw::rows(others.pid())?, Vec::<serde_json::Value>::new());
    let text = String::from_utf8(run(&["hw"])?.stdout)?;
    assert!(text.contains(&format!("Processes without a queue: {}", others.pid())), "{text}");
    // The same from a copy, without this machine's names.
    let copy = tempfile::NamedTempFile::new()?;
    std::fs::copy("/sys/kernel/debug/kfd/mqds", copy.path())?;
    let path = copy.path().to_str().context("a path of text")?;
    let text = String::from_utf8(run(&["hw", "--mqds", path])?.stdout)?;
    assert!(text.contains(&workload.pid().to_string()) && !text.contains("kfd-workload"), "{text}");
    workload.finish()?;
    others.finish().map(drop)
}

/// kfdsim's GPUs have no registers: the driver says what it cannot read.
#[test]
fn a_missing_file_is_one_line() -> Result<()> {
    VmKernel::from_env()?;
    let output = run(&["hw", "--mqds", "/nowhere"])?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("/nowhere cannot be read"), "{stderr}");
    Ok(())
}
