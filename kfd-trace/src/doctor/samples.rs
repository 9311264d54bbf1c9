//! Shared by the tests of this module: a node with one process that is served.

use super::evicted::AllEvicted;
use super::sampled::{AllSampled, Sampled};
use super::seen::{
    Chip, DescriptorTotals, Device, DrmDescriptor, KfdDescriptor, KfdProcess, KfdProcesses, Mappings, Node,
    Observed, SeenProcess,
};
use crate::attribute::process::Life;
use crate::state::ProcessDetails;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const PID: u32 = 318;
pub(super) const GPU: u32 = 51610;
pub(super) const PCI: &str = "0000:c1:00.0";
pub(super) const DEVICE: Device = Device { major: 511, minor: 0 };
pub(super) const HOST: Node = Node { filesystem: Device { major: 0, minor: 5 }, inode: 371 };
pub(super) const OTHER: Node = Node { filesystem: Device { major: 0, minor: 42 }, inode: 4 };

pub(super) fn life(state: char, threads: u32) -> Life {
    Life { state, parent: 1, threads, exiting: false, of_kernel: false }
}

pub(super) fn open(node: Node) -> KfdDescriptor {
    KfdDescriptor { fd: 3, node, cloexec: Some(true) }
}

/// Has the host's /dev/kfd open.
pub(super) fn process() -> SeenProcess {
    SeenProcess {
        comm: "python3".to_owned(),
        uid: 1000,
        inner_pid: None,
        life: life('S', 4),
        details: ProcessDetails::default(),
        own_mounts: Some(false),
        closed: false,
        kfd: vec![open(HOST)],
        drm: vec![DrmDescriptor {
            fd: 4,
            driver: Some("amdgpu".to_owned()),
            pdev: Some(PCI.to_owned()),
            client_id: Some(7),
            vram_bytes: Some(1 << 30),
        }],
        totals: DescriptorTotals {
            kfd: 1,
            drm: 1,
            vram: BTreeMap::from([(PCI.to_owned(), 1 << 30)]),
            vram_incomplete: false,
        },
        mappings: Some(Mappings {
            kfd: BTreeSet::from([HOST]),
            render: 2,
            libraries: BTreeSet::from(["libhsa-runtime64"]),
        }),
    }
}

/// Has nothing open or mapped.
pub(super) fn bare() -> SeenProcess {
    let mappings = Some(Mappings::default());
    let totals = DescriptorTotals::default();
    SeenProcess { kfd: Vec::new(), drm: Vec::new(), totals, mappings, ..process() }
}

pub(super) fn listed() -> KfdProcesses {
    let vram = BTreeMap::from([(GPU, 1 << 29)]);
    KfdProcesses::from([(PID, KfdProcess { queues: 2, vram, ..KfdProcess::default() })])
}

/// Sums of two queues.
pub(super) fn sampled() -> Sampled {
    Sampled { queues_measured: 2, packets_submitted: 127_644, packets_retired: 127_644, ..Sampled::default() }
}

pub(super) fn seen() -> Observed {
    let chip = Chip { pci: PCI.to_owned(), gpu_ids: BTreeSet::from([GPU]), vram_used: Some(3 << 29) };
    Observed {
        device: Some(DEVICE),
        host_node: Some(HOST),
        sysfs: Some(listed()),
        kernel: Ok(listed()),
        sampled: Ok(AllSampled::from([(PID, sampled())])),
        evicted: AllEvicted::new(),
        processes: BTreeMap::from([(PID, process())]),
        looked_at: 90,
        closed: BTreeSet::new(),
        hides: false,
        chips: vec![chip],
    }
}

/// The same node, with this process instead.
pub(super) fn with(process: SeenProcess) -> Observed {
    Observed { processes: BTreeMap::from([(PID, process)]), ..seen() }
}
