//! The test bed itself: the driver hands queues to kfdsim's firmware.

use anyhow::Result;
use kfd_trace_tests::harness::mes::MesCalls;
use kfd_trace_tests::harness::{Calls, Stage, VmKernel, Workload, nodes, sysfs};
use std::path::Path;

const SYSFS: &str = "/sys";

#[test]
fn two_gpus_of_gfx11_run_queues_of_both_types() -> Result<()> {
    assert_eq!(VmKernel::from_env()?.stage, Stage::Mes);
    let nodes = nodes(Path::new(SYSFS))?;
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert_eq!(node.property("gfx_target_version")?, 110_000, "{node:?}");
        let (computed, shown) = node.save_area();
        assert!(computed.is_some() && (shown.is_none() || shown == computed), "{node:?}");
    }
    let (witness, before) = (Calls::of(&["pm_send_runlist", "add_queue_mes"])?, MesCalls::so_far()?);
    let operations =
        ["create aql gpu=1", "create sdma gpu=0", "update 0 0", "update 0 40", "cu-mask 0", "wait"];
    let mut workload = Workload::ready(&[&["script"], &operations[..]].concat())?;
    assert!(workload.ioctls().iter().all(|line| line["errno"].is_null()), "{:?}", workload.ioctls());
    assert_eq!(sysfs::queues(Path::new(SYSFS))?.len(), 2);
    workload.finish()?;
    let called = |name: &str| -> Result<usize> {
        Ok(witness.seen()?.iter().filter(|call| call.function == name).count())
    };
    let asked = MesCalls::so_far()?.since(&before);
    assert_eq!((called("pm_send_runlist")?, u64::try_from(called("add_queue_mes")?)), (0, Ok(asked.added)));
    assert_eq!(asked.failed, 0, "{asked:?}");
    Ok(())
}
