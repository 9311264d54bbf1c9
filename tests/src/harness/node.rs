//! The GPU nodes of the topology with all their properties: the driver's own description of each GPU.

use crate::kfd::save_area::{Sizes, sizes};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// `/sys/class/kfd/kfd/topology/nodes/N` with a GPU behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub number: u32,
    pub gpu_id: u32,
    /// By the names of kfd_topology.c:node_show.
    pub properties: BTreeMap<String, u64>,
}

impl Node {
    /// A property; an error where the driver does not report it.
    pub fn property(&self, name: &str) -> Result<u64> {
        let value = self.properties.get(name);
        value.copied().with_context(|| format!("node {} has no {name}", self.number))
    }

    /// The sizes of a queue's save area as they are computed where the driver does not show them, and as it shows
    /// them, if it does.
    pub fn save_area(&self) -> (Option<Sizes>, Option<Sizes>) {
        let property = |name: &str| u32::try_from(*self.properties.get(name)?).ok();
        let shown = property("ctl_stack_size").zip(property("cwsr_size"));
        let shown = shown.map(|(ctl_stack, save_area)| Sizes { ctl_stack, save_area });
        (sizes(property), shown)
    }

    /// Domain, and bus and slot of `location_id`. Its lowest three bits are left out: where a GPU has several
    /// nodes they hold the node's index instead of the PCI function (kfd_topology.c:kfd_topology_add_device).
    pub fn pci_device(&self) -> Result<(u64, u64)> {
        Ok((self.property("domain")?, self.property("location_id")? >> 3))
    }
}

/// All GPU nodes by their number; CPU nodes have gpu_id 0 and are left out.
pub fn nodes(sysfs: &Path) -> Result<Vec<Node>> {
    let dir = sysfs.join("class/kfd/kfd/topology/nodes");
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        let read = |name: &str| {
            fs::read_to_string(path.join(name)).with_context(|| format!("{name} of {}", path.display()))
        };
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let number = number.with_context(|| format!("{} has no number", path.display()))?;
        let gpu_id = read("gpu_id")?.trim().parse().context("gpu_id is no number")?;
        if gpu_id == 0 {
            continue;
        }
        let properties = read("properties")?;
        let pairs = properties.lines().filter_map(|line| line.split_once(' '));
        let parsed = pairs.filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)));
        found.push(Node { number, gpu_id, properties: parsed.collect() });
    }
    found.sort_by_key(|node| node.number);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_one_gpu_are_one_pci_device() {
        let sysfs = tempfile::tempdir().unwrap();
        for (number, gpu_id, location) in [(0, 0, 0), (1, 7, 0x20), (2, 8, 0x21), (10, 9, 0x28)] {
            let dir = sysfs.path().join(format!("class/kfd/kfd/topology/nodes/{number}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("gpu_id"), format!("{gpu_id}\n")).unwrap();
            fs::write(dir.join("properties"), format!("domain 0\nlocation_id {location}\n")).unwrap();
        }
        let nodes = nodes(sysfs.path()).unwrap();
        assert_eq!(nodes.iter().map(|node| node.gpu_id).collect::<Vec<_>>(), [7, 8, 9]);
        let devices: Vec<_> = nodes.iter().map(|node| node.pci_device().unwrap()).collect();
        assert_eq!(devices, [(0, 4), (0, 4), (0, 5)]);
        assert!(nodes[0].property("num_xcc").is_err());
    }
}
