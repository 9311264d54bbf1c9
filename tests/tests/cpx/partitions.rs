//! The test bed itself: how the driver presents a partitioned GPU.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::kfdsim_at;
use kfd_trace_tests::harness::{Calls, Node, Stage, VmKernel, Workload, nodes, sysfs, until};
use std::collections::BTreeSet;
use std::path::Path;

const SYSFS: &str = "/sys";

#[test]
fn eight_nodes_of_one_xcc_are_one_pci_device() -> Result<()> {
    assert_eq!(VmKernel::from_env()?.stage, Stage::Cpx);
    let nodes = nodes(Path::new(SYSFS))?;
    assert_eq!(nodes.len(), 8);
    for (index, node) in (0..).zip(&nodes) {
        assert_eq!(node.property("num_xcc")?, 1, "{node:?}");
        assert_eq!(node.property("gfx_target_version")?, 90_402, "{node:?}");
        assert_eq!(node.property("location_id")? & 7, index, "{node:?}");
    }
    let devices: BTreeSet<_> = nodes.iter().map(Node::pci_device).collect::<Result<_>>()?;
    assert_eq!(devices.len(), 1, "{devices:?}");
    let ids: BTreeSet<_> = nodes.iter().map(|node| node.gpu_id).collect();
    assert_eq!(ids.len(), 8, "{ids:?}");
    let minors: BTreeSet<_> =
        nodes.iter().map(|node| node.property("drm_render_minor")).collect::<Result<_>>()?;
    assert_eq!(minors.len(), 8, "{minors:?}");
    Ok(())
}

#[test]
fn a_queue_is_on_the_partition_it_was_made_on() -> Result<()> {
    let third = nodes(Path::new(SYSFS))?.get(2).context("a third partition")?.gpu_id;
    let mut workload = Workload::ready(&["script", "create aql gpu=2", "create sdma gpu=2", "wait"])?;
    let queues = workload.queues();
    assert_eq!(queues.len(), 2, "{queues:?}");
    let standing = sysfs::queues(Path::new(SYSFS))?;
    for queue in &queues {
        let id = queue["queue_id"].as_u64().context("an id")?.try_into()?;
        let standing = standing.get(&(workload.pid(), id)).with_context(|| format!("{queue} in sysfs"))?;
        assert_eq!(standing.gpu_id, third, "{queue}");
    }
    workload.finish()?;
    Ok(())
}

#[test]
fn a_vm_fault_reaches_each_partition() -> Result<()> {
    let workload = Workload::ready(&["hold", "--gpus=all"])?;
    let calls = Calls::of(&["evict_process_queues_cpsch"])?;
    for node in 0..8 {
        kfdsim_at("vmfault", workload.pid(), node)?;
        let wanted = usize::try_from(node)? + 1;
        until("the eviction on its node", SOON, || Ok((calls.seen()?.len() == wanted).then_some(())))?;
    }
    Ok(())
}
