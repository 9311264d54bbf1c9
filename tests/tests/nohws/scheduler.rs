//! The test bed itself: the driver works without the hardware scheduler.

use anyhow::Result;
use kfd_trace_tests::harness::{Stage, VmKernel, Workload, nodes, sysfs, tracer, workload};
use std::fs;
use std::path::Path;

#[test]
fn queues_live_without_the_hardware_scheduler() -> Result<()> {
    assert_eq!(VmKernel::from_env()?.stage, Stage::NoHws);
    assert_eq!(fs::read_to_string("/sys/module/amdgpu/parameters/sched_policy")?.trim(), "2");
    assert_eq!(nodes(Path::new("/sys"))?.len(), 2);

    // With a scheduler each of these would wait for a command processor that hangs, and fail.
    workload::kfdsim("hang", 1)?;
    let operations = ["create aql gpu=1", "create sdma gpu=0", "update 0 0", "cu-mask 0", "wait"];
    let mut workload = Workload::ready(&[&["script"], &operations[..]].concat())?;
    assert!(workload.ioctls().iter().all(|line| line["errno"].is_null()), "{:?}", workload.ioctls());
    assert_eq!(sysfs::queues(Path::new("/sys"))?.len(), 2);
    workload.finish()?;
    workload::kfdsim("hang", 0)
}

#[test]
fn there_are_no_runlists() -> Result<()> {
    let done = tracer::run(&["runlist"])?;
    let errors = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.contains("sched_policy=2"), "{errors}");
    Ok(())
}
