//! The GPUs as `/sys/class/kfd/kfd/topology` lists them.

use super::save_area::{Sizes, sizes};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// A topology node with a GPU behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub gpu_id: u32,
    /// Bytes that CREATE_QUEUE must pass exactly to drivers that check it. Mainline's do so from 6.12 on, and
    /// show it; others do not show it, and it is computed. `None`: neither.
    pub ctl_stack_size: Option<u32>,
    /// Bytes per XCC that CREATE_QUEUE must pass at least, in the same way.
    pub cwsr_size: Option<u32>,
    pub num_xcc: u32,
}

/// The gpu_id of kfdsim's N-th GPU.
pub fn gpu_id(number: usize) -> Result<u64> {
    let gpus = gpus(Path::new("/sys"))?;
    Ok(gpus.get(number).context("this GPU")?.gpu_id.into())
}

/// All GPU nodes in node order; CPU nodes have gpu_id 0 and are left out.
pub fn gpus(sysfs: &Path) -> Result<Vec<Gpu>> {
    let nodes = sysfs.join("class/kfd/kfd/topology/nodes");
    let mut numbers: Vec<u32> = fs::read_dir(&nodes)
        .with_context(|| format!("list {}", nodes.display()))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let mut gpus = Vec::new();
    for number in numbers {
        gpus.extend(gpu(&nodes.join(number.to_string()))?);
    }
    Ok(gpus)
}

fn gpu(node: &Path) -> Result<Option<Gpu>> {
    let read = |name: &str| {
        let path = node.join(name);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    let gpu_id: u32 = read("gpu_id")?.trim().parse().context("gpu_id is no number")?;
    if gpu_id == 0 {
        return Ok(None);
    }
    let properties = read("properties")?;
    let property = |name: &str| {
        properties.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let computed = sizes(property);
    let or_computed = |shown: Option<u32>, of: fn(Sizes) -> u32| shown.or(computed.map(of));
    Ok(Some(Gpu {
        gpu_id,
        ctl_stack_size: or_computed(property("ctl_stack_size"), |sizes| sizes.ctl_stack),
        cwsr_size: or_computed(property("cwsr_size"), |sizes| sizes.save_area),
        num_xcc: property("num_xcc").unwrap_or(1),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(sysfs: &Path, number: &str, gpu_id: &str, properties: &str) {
        let dir = sysfs.join("class/kfd/kfd/topology/nodes").join(number);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("gpu_id"), gpu_id).unwrap();
        fs::write(dir.join("properties"), properties).unwrap();
    }

    #[test]
    fn cpu_nodes_are_left_out_and_properties_read_where_the_driver_shows_them() {
        let sysfs = tempfile::tempdir().unwrap();
        node(sysfs.path(), "0", "0\n", "cpu_cores_count 2\n");
        node(sysfs.path(), "1", "77\n", "simd_count 256\n");
        node(sysfs.path(), "2", "1234\n", "cwsr_size 8192\nctl_stack_size 4096\nnum_xcc 2\n");
        assert_eq!(
            gpus(sysfs.path()).unwrap(),
            [
                Gpu { gpu_id: 77, ctl_stack_size: None, cwsr_size: None, num_xcc: 1 },
                Gpu { gpu_id: 1234, ctl_stack_size: Some(4096), cwsr_size: Some(8192), num_xcc: 2 },
            ]
        );
    }

    #[test]
    fn sizes_that_the_driver_does_not_show_are_computed() {
        let sysfs = tempfile::tempdir().unwrap();
        let units = "gfx_target_version 90402\nnum_xcc 8\nsimd_count 1216\nsimd_per_cu 4\narray_count 32\n\
                     simd_arrays_per_engine 1\n";
        node(sysfs.path(), "1", "1", units);
        node(sysfs.path(), "2", "2", &format!("{units}cwsr_size 8192\nctl_stack_size 4096\n"));
        let found: Vec<_> =
            gpus(sysfs.path()).unwrap().iter().map(|gpu| (gpu.ctl_stack_size, gpu.cwsr_size)).collect();
        assert_eq!(found, [(Some(0x3000), Some(0x3000 + 38 * 0x9_5000)), (Some(4096), Some(8192))]);
    }

    #[test]
    fn nodes_come_in_the_order_of_their_numbers() {
        let sysfs = tempfile::tempdir().unwrap();
        for number in ["9", "3", "12", "1", "10", "2", "7", "11"] {
            node(sysfs.path(), number, number, "");
        }
        let ids: Vec<u32> = gpus(sysfs.path()).unwrap().iter().map(|gpu| gpu.gpu_id).collect();
        assert_eq!(ids, [1, 2, 3, 7, 9, 10, 11, 12]);
    }

    #[test]
    fn without_the_driver_the_missing_folder_is_named() {
        let sysfs = tempfile::tempdir().unwrap();
        let error = format!("{:#}", gpus(sysfs.path()).unwrap_err());
        assert!(error.contains("topology/nodes"), "{error}");
    }
}
