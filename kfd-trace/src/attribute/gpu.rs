//! The GPUs that KFD knows. In: sysfs. Out: one [`Gpu`] per topology node that is a GPU. Names and units of
//! the properties: drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show.

use super::sysfs_file::{self, Reader, Unreadable};
use crate::model::compute_units::ComputeUnits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

mod compute_units;
mod place;
mod slots;

pub use slots::{Pool, Slots};

/// One GPU, or one partition of a GPU. `None`: not reported by this kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Position among the GPUs in the order of their topology nodes, from 0. ROCr creates its agents in that
    /// order, so HIP devices have the same numbers as long as no *_VISIBLE_DEVICES is set.
    pub index: u32,
    /// Number of the topology node.
    pub node: u32,
    /// KFD's own id, as used in ioctls and sysfs; never 0.
    pub gpu_id: u32,
    /// Name of the chip: `aqua_vanjaram`.
    pub name: Option<String>,
    /// Product name: `AMD Instinct MI300X OAM`. Only boards with a FRU EEPROM report it
    /// (amdgpu_fru_eeprom.c).
    pub product_name: Option<String>,
    /// Of the board, from the same EEPROM.
    pub serial_number: Option<String>,
    /// major * 10000 + minor * 100 + stepping: 90402.
    pub gfx_target_version: Option<u32>,
    pub vendor_id: Option<u32>,
    pub device_id: Option<u32>,
    /// PCI address: `0000:c1:00.0`. Partitions of one chip share it.
    pub pci: Option<String>,
    /// Partition of the chip, from 0; `None` for a chip that is not partitioned.
    pub partition: Option<u32>,
    /// N of /dev/dri/renderDN.
    pub render_minor: Option<u32>,
    /// The chip's factory-assigned number, never 0; in 7.2 each partition has its own.
    pub unique_id: Option<u64>,
    /// Hardware compute queues.
    pub num_cp_queues: Option<u32>,
    /// SDMA engines for PCIe.
    pub num_sdma_engines: Option<u32>,
    /// SDMA engines for xGMI, numbered after those for PCIe.
    pub num_sdma_xgmi_engines: Option<u32>,
    /// Excludes queues that the driver reserves for itself.
    pub num_sdma_queues_per_engine: Option<u32>,
    /// Compute dies in this node; 6.1 does not report it.
    pub num_xcc: Option<u32>,
    /// SIMD units; four per compute unit on gfx9.
    pub simd_count: Option<u32>,
    /// `None` also where they were not requested, and where the driver's own mapping of masks to them is not known.
    pub compute_units: Option<ComputeUnits>,
}

impl Gpu {
    /// `gfx942`, as compilers and ROCm name it: stepping (and minor) in hex, so 90010 is `gfx90a`.
    #[must_use]
    pub fn gfx_name(&self) -> Option<String> {
        let version = self.gfx_target_version.filter(|version| *version != 0)?;
        Some(format!("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100))
    }

    /// Whether the firmware scheduler MES runs its queues: from gfx11 on (amdgpu_discovery.c,
    /// amdgpu_discovery_set_mes_ip_blocks).
    #[must_use]
    pub fn has_mes(&self) -> bool {
        self.gfx_target_version.is_some_and(|version| version >= 110_000)
    }

    /// The name in every output: `gpu 3 (0000:c1:00.0, gfx942)`; for a partition `gpu 3 (0000:c1:00.0
    /// partition 2, gfx942)`.
    #[must_use]
    pub fn label(&self) -> String {
        let place = match (&self.pci, self.partition) {
            (Some(pci), Some(partition)) => Some(format!("{pci} partition {partition}")),
            (Some(pci), None) => Some(pci.clone()),
            (None, _) => None,
        };
        let known: Vec<String> = [place, self.gfx_name()].into_iter().flatten().collect();
        if known.is_empty() {
            format!("gpu {}", self.index)
        } else {
            format!("gpu {} ({})", self.index, known.join(", "))
        }
    }

    /// For example `/dev/dri/renderD128`.
    #[must_use]
    pub fn render_node(&self) -> Option<String> {
        self.render_minor.map(|minor| format!("/dev/dri/renderD{minor}"))
    }

    /// Reads what takes many files, unless `known` is the same GPU and has it.
    fn read_compute_units(
        &mut self,
        reader: &mut Reader,
        known: &Topology,
        folder: &Path,
        shape: &compute_units::Shape,
    ) {
        let known = known.gpu(self.gpu_id).filter(|known| known.is_still(self));
        let known = known.and_then(|known| known.compute_units.clone());
        self.compute_units = known.or_else(|| compute_units::read(reader, folder, shape));
    }

    /// The same chip, partitioned in the same way: then its compute units are the same ones.
    fn is_still(&self, other: &Gpu) -> bool {
        let chip = |gpu: &Gpu| (gpu.gpu_id, gpu.node, gpu.unique_id, gpu.device_id, gpu.gfx_target_version);
        let part = |gpu: &Gpu| (gpu.num_xcc, gpu.simd_count);
        chip(self) == chip(other) && part(self) == part(other)
    }
}

/// The order of GPUs in every list that people read: by their numbers ([`Gpu::index`]), since a gpu_id is a hash. Those
/// that the topology does not have come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuOrder(u32, u32);

/// All GPUs by node number, and the read errors. A container may see nodes that it may not use: those are
/// errors here (EPERM from the device cgroup).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    pub gpus: Vec<Gpu>,
    pub errors: Vec<Unreadable>,
}

impl Topology {
    /// Reads `<sysfs>/class/kfd/kfd/topology/nodes`, and the board's names from `<sysfs>/bus/pci/devices`.
    /// Nodes without a GPU (gpu_id 0: CPUs) are skipped. Without KFD: no GPUs and no error.
    #[must_use]
    pub fn read(sysfs: &Path) -> Topology {
        Self::read_nodes(sysfs, None)
    }

    /// The same with the compute units, which are in hundreds of files for a GPU: those of the GPUs that are still the ones
    /// of `known` are kept.
    #[must_use]
    pub fn read_with_compute_units(sysfs: &Path, known: &Topology) -> Topology {
        Self::read_nodes(sysfs, Some(known))
    }

    /// `known`: for compute units, if these are requested.
    fn read_nodes(sysfs: &Path, known: Option<&Topology>) -> Topology {
        let mut reader = Reader::default();
        let nodes = reader.numbered(&sysfs.join("class/kfd/kfd/topology/nodes"));
        let read = nodes.iter().filter_map(|(node, folder)| read_gpu(&mut reader, known, *node, folder));
        let (mut gpus, locations): (Vec<Gpu>, Vec<_>) = read.unzip();
        let devices = sysfs.join("bus/pci/devices");
        let places = place::places(&locations, |address| devices.join(address).exists());
        for ((index, gpu), place) in (0..).zip(&mut gpus).zip(places) {
            gpu.index = index;
            (gpu.pci, gpu.partition) = place.map_or((None, None), |place| (Some(place.pci), place.partition));
            if let Some(pci) = &gpu.pci {
                let mut text =
                    |name| reader.text(&devices.join(pci).join(name)).filter(|text| !text.is_empty());
                gpu.product_name = text("product_name");
                gpu.serial_number = text("serial_number");
            }
        }
        Topology { gpus, errors: reader.errors }
    }

    #[must_use]
    pub fn gpu(&self, gpu_id: u32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.gpu_id == gpu_id)
    }

    /// Where a GPU of this gpu_id comes in a list; `None` for one that is not known.
    #[must_use]
    pub fn order(&self, gpu_id: impl Into<Option<u32>>) -> GpuOrder {
        let gpu_id = gpu_id.into();
        let index = gpu_id.and_then(|gpu_id| self.gpu(gpu_id)).map_or(u32::MAX, |gpu| gpu.index);
        GpuOrder(index, gpu_id.unwrap_or(u32::MAX))
    }

    /// These GPUs in that order.
    #[must_use]
    pub fn ordered(&self, gpu_ids: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let mut all: Vec<u32> = gpu_ids.into_iter().collect();
        all.sort_by_key(|gpu_id| self.order(*gpu_id));
        all
    }

    /// The entries of a map by gpu_id in that order.
    #[must_use]
    pub fn in_order<'m, K: Copy + Into<Option<u32>>, V>(
        &self,
        map: &'m BTreeMap<K, V>,
    ) -> Vec<(&'m K, &'m V)> {
        let mut all: Vec<_> = map.iter().collect();
        all.sort_by_key(|(gpu_id, _)| self.order(**gpu_id));
        all
    }

    /// [`Gpu::label`] of a gpu_id; `None` for one that the topology does not have.
    #[must_use]
    pub fn label(&self, gpu_id: u32) -> Option<String> {
        self.gpu(gpu_id).map(Gpu::label)
    }
}

fn read_gpu(
    reader: &mut Reader,
    known: Option<&Topology>,
    node: u32,
    folder: &Path,
) -> Option<(Gpu, Option<place::Location>)> {
    let gpu_id = reader.number(&folder.join("gpu_id")).filter(|id| *id != 0)?;
    let name = reader.text(&folder.join("name")).filter(|name| !name.is_empty());
    let properties = folder.join("properties");
    let text = reader.text(&properties).unwrap_or_default();
    let mut wide = |wanted: &str| -> Option<u64> {
        let value = sysfs_file::property(&text, wanted)?;
        value
            .trim()
            .parse()
            .ok()
            .or_else(|| reader.fail(&properties, format!("{wanted} is {:?}", sysfs_file::begin(value))))
    };
    let unique_id = wide("unique_id").filter(|id| *id != 0);
    let mut number = |wanted: &str| wide(wanted).and_then(|value| u32::try_from(value).ok());
    let (domain, location_id) = (number("domain"), number("location_id"));
    let units = known.and_then(|known| Some((known, compute_units::shape(&mut number)?)));
    let mut gpu = Gpu {
        index: 0,
        node,
        gpu_id,
        name,
        product_name: None,
        serial_number: None,
        gfx_target_version: number("gfx_target_version"),
        vendor_id: number("vendor_id"),
        device_id: number("device_id"),
        pci: None,
        partition: None,
        render_minor: number("drm_render_minor"),
        unique_id,
        num_cp_queues: number("num_cp_queues"),
        num_sdma_engines: number("num_sdma_engines"),
        num_sdma_xgmi_engines: number("num_sdma_xgmi_engines"),
        num_sdma_queues_per_engine: number("num_sdma_queues_per_engine"),
        num_xcc: number("num_xcc"),
        simd_count: number("simd_count"),
        compute_units: None,
    };
    if let Some((known, shape)) = units {
        gpu.read_compute_units(reader, known, folder, &shape);
    }
    // A kernel that does not report the domain has only domain 0.
    let location = location_id.map(|id| place::Location { domain: domain.unwrap_or(0), id });
    Some((gpu, location))
}

#[cfg(test)]
mod tests;
