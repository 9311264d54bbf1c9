//! The GPUs that KFD knows: takes in sysfs, gives one [`Gpu`] for each node of the topology that is a GPU.
//! Names and units of the properties: drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show.

use std::path::Path;

use super::sysfs_file::{Reader, Unreadable};

/// One GPU, or one partition of a GPU. None: this kernel does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Number of the topology node.
    pub node: u32,
    /// KFD's own id, as in ioctls and in sysfs; never 0.
    pub gpu_id: u32,
    /// The chip's name: `aqua_vanjaram`.
    pub name: Option<String>,
    /// major * 10000 + minor * 100 + stepping: 90402.
    pub gfx_target_version: Option<u32>,
    pub vendor_id: Option<u32>,
    pub device_id: Option<u32>,
    /// PCI domain.
    pub domain: Option<u32>,
    /// Bits 0-15 bus, device and function; bits 28-31 the partition.
    pub location_id: Option<u32>,
    /// N of /dev/dri/renderDN.
    pub render_minor: Option<u32>,
    /// The serial number of the chip; the same for all of its partitions.
    pub unique_id: Option<u64>,
    /// Hardware compute queues.
    pub num_cp_queues: Option<u32>,
    pub num_sdma_engines: Option<u32>,
    pub num_sdma_queues_per_engine: Option<u32>,
    /// Compute dies in this node; 6.1 does not tell.
    pub num_xcc: Option<u32>,
    /// SIMD units; four a compute unit on gfx9.
    pub simd_count: Option<u32>,
}

impl Gpu {
    /// `gfx942`, as compilers and ROCm name it: stepping (and minor) in hex, so 90010 is `gfx90a`.
    #[must_use]
    pub fn gfx_name(&self) -> Option<String> {
        let version = self.gfx_target_version.filter(|version| *version != 0)?;
        Some(format!("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100))
    }

    /// `0000:c1:00.0`. A kernel that does not tell the domain has only domain 0.
    #[must_use]
    pub fn pci_address(&self) -> Option<String> {
        let location = self.location_id?;
        let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
        Some(format!("{:04x}:{bus:02x}:{device:02x}.{function}", self.domain.unwrap_or(0)))
    }

    /// Which partition of the chip this node is; 0 for a chip that is not partitioned.
    #[must_use]
    pub fn partition(&self) -> Option<u32> {
        self.location_id.map(|location| location >> 28)
    }
}

/// All GPUs by node number, and what could not be read. A container may see nodes that it may not use: those
/// are errors here (EPERM by the device cgroup).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub gpus: Vec<Gpu>,
    pub errors: Vec<Unreadable>,
}

impl Topology {
    /// Reads `<sysfs>/class/kfd/kfd/topology/nodes`. Nodes without a GPU (gpu_id 0: CPUs) are left out; no
    /// KFD gives no GPUs and no error.
    #[must_use]
    pub fn read(sysfs: &Path) -> Topology {
        let mut reader = Reader::default();
        let nodes = reader.numbered(&sysfs.join("class/kfd/kfd/topology/nodes"));
        let gpus = nodes.iter().filter_map(|(node, folder)| read_gpu(&mut reader, *node, folder)).collect();
        Topology { gpus, errors: reader.errors }
    }

    #[must_use]
    pub fn gpu(&self, gpu_id: u32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.gpu_id == gpu_id)
    }
}

fn read_gpu(reader: &mut Reader, node: u32, folder: &Path) -> Option<Gpu> {
    let gpu_id = reader.number(&folder.join("gpu_id")).filter(|id| *id != 0)?;
    let name = reader.text(&folder.join("name")).filter(|name| !name.is_empty());
    let properties = folder.join("properties");
    let text = reader.text(&properties).unwrap_or_default();
    let mut wide = |wanted: &str| -> Option<u64> {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(wanted)?.strip_prefix(' '))?;
        value.trim().parse().ok().or_else(|| reader.fail(&properties, format!("{wanted} is {value:?}")))
    };
    let unique_id = wide("unique_id");
    let mut number = |wanted| wide(wanted).and_then(|value| u32::try_from(value).ok());
    Some(Gpu {
        node,
        gpu_id,
        name,
        gfx_target_version: number("gfx_target_version"),
        vendor_id: number("vendor_id"),
        device_id: number("device_id"),
        domain: number("domain"),
        location_id: number("location_id"),
        render_minor: number("drm_render_minor"),
        unique_id,
        num_cp_queues: number("num_cp_queues"),
        num_sdma_engines: number("num_sdma_engines"),
        num_sdma_queues_per_engine: number("num_sdma_queues_per_engine"),
        num_xcc: number("num_xcc"),
        simd_count: number("simd_count"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn node(sysfs: &Path, number: u32, files: &[(&str, &str)]) {
        let folder = sysfs.join("class/kfd/kfd/topology/nodes").join(number.to_string());
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    const MI300: &str = "cpu_cores_count 0\nsimd_count 320\ngfx_target_version 90402\nvendor_id 4098\n\
device_id 29857\nlocation_id 805355776\ndomain 1\ndrm_render_minor 128\nnum_sdma_engines 2\n\
num_sdma_queues_per_engine 8\nnum_cp_queues 24\nunique_id 18446744073709551615\nsome_future_thing yes\n\
num_xcc 8\n";

    #[test]
    fn gpus_are_read_and_cpus_left_out() {
        let sysfs = tempfile::tempdir().unwrap();
        node(sysfs.path(), 0, &[("gpu_id", "0\n"), ("name", "\n"), ("properties", "cpu_cores_count 64\n")]);
        node(
            sysfs.path(),
            10,
            &[("gpu_id", "7\n"), ("name", "vega10\n"), ("properties", "location_id 49408\n")],
        );
        node(sysfs.path(), 2, &[("gpu_id", "51610\n"), ("name", "aqua_vanjaram\n"), ("properties", MI300)]);
        let topology = Topology::read(sysfs.path());
        assert_eq!(topology.errors, []);
        assert_eq!(topology.gpus.iter().map(|gpu| gpu.node).collect::<Vec<_>>(), [2, 10]);
        let gpu = topology.gpu(51610).unwrap();
        assert_eq!(gpu.name.as_deref(), Some("aqua_vanjaram"));
        assert_eq!(gpu.gfx_name().as_deref(), Some("gfx942"));
        assert_eq!(gpu.pci_address().as_deref(), Some("0001:c1:00.0"));
        assert_eq!((gpu.partition(), gpu.render_minor), (Some(3), Some(128)));
        assert_eq!((gpu.vendor_id, gpu.device_id), (Some(0x1002), Some(29857)));
        assert_eq!((gpu.num_xcc, gpu.num_cp_queues, gpu.simd_count), (Some(8), Some(24), Some(320)));
        assert_eq!((gpu.num_sdma_engines, gpu.num_sdma_queues_per_engine), (Some(2), Some(8)));
        assert_eq!(gpu.unique_id, Some(u64::MAX));
    }

    #[test]
    fn what_a_kernel_does_not_tell_is_none() {
        let sysfs = tempfile::tempdir().unwrap();
        node(sysfs.path(), 1, &[("gpu_id", "7"), ("name", ""), ("properties", "location_id 49408\n")]);
        let topology = Topology::read(sysfs.path());
        let gpu = topology.gpu(7).unwrap();
        assert_eq!(gpu.pci_address().as_deref(), Some("0000:c1:00.0"));
        assert_eq!((gpu.num_xcc, gpu.gfx_name(), &gpu.name), (None, None, &None));
        assert!(topology.gpu(0).is_none());
    }

    #[test]
    fn names_have_hex_steps() {
        let sysfs = tempfile::tempdir().unwrap();
        for (id, (version, name)) in
            (1..).zip([(90010, "gfx90a"), (90001, "gfx901"), (110_000, "gfx1100"), (120_501, "gfx1251")])
        {
            node(
                sysfs.path(),
                id,
                &[("gpu_id", &id.to_string()), ("properties", &format!("gfx_target_version {version}\n"))],
            );
            assert_eq!(Topology::read(sysfs.path()).gpu(id).unwrap().gfx_name().as_deref(), Some(name));
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let sysfs = tempfile::tempdir().unwrap();
        assert_eq!(Topology::read(sysfs.path()), Topology::default());
        node(sysfs.path(), 1, &[("gpu_id", "none\n")]);
        node(sysfs.path(), 2, &[("gpu_id", "9\n"), ("properties", "simd_count many\n")]);
        let topology = Topology::read(sysfs.path());
        let lines: Vec<_> = topology.errors.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("nodes/1/gpu_id") && lines[1].contains("simd_count is \"many\""));
        assert_eq!(topology.gpu(9).unwrap().simd_count, None);
    }
}
