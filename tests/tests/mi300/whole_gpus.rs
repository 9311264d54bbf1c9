//! The test bed itself: how the driver presents a GPU with several XCCs.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::{Node, Stage, VmKernel, Workload, nodes, sysfs};
use std::collections::BTreeSet;
use std::path::Path;

const SYSFS: &str = "/sys";

#[test]
fn two_nodes_of_eight_xccs_are_two_pci_devices() -> Result<()> {
    assert_eq!(VmKernel::from_env()?.stage, Stage::Mi300);
    let nodes = nodes(Path::new(SYSFS))?;
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        assert_eq!(node.property("num_xcc")?, 8, "{node:?}");
        assert_eq!(node.property("gfx_target_version")?, 90_402, "{node:?}");
        let (computed, shown) = node.save_area();
        assert!(computed.is_some() && (shown.is_none() || shown == computed), "{node:?}");
    }
    let devices: BTreeSet<_> = nodes.iter().map(Node::pci_device).collect::<Result<_>>()?;
    assert_eq!(devices.len(), 2, "{devices:?}");
    Ok(())
}

#[test]
fn a_queue_over_all_xccs_is_one_queue() -> Result<()> {
    let second = nodes(Path::new(SYSFS))?.get(1).context("a second GPU")?.gpu_id;
    let operations = ["create aql gpu=1", "update 0 50", "cu-mask 0", "wait"];
    let mut workload = Workload::ready(&[&["script"], &operations[..]].concat())?;
    assert!(workload.ioctls().iter().all(|line| line["errno"].is_null()), "{:?}", workload.ioctls());
    let standing = sysfs::queues(Path::new(SYSFS))?;
    let places: Vec<_> = standing.iter().map(|(key, queue)| (*key, queue.gpu_id)).collect();
    assert_eq!(places, [((workload.pid(), 0), second)]);
    workload.finish()?;
    Ok(())
}
