//! What all views reported in one scan: plain data.

use super::evicted::AllEvicted;
use super::sampled::AllSampled;
use crate::attribute::process::Life;
use crate::state::ProcessDetails;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Identity of a file: file system (st_dev) and inode, which lsof and fuser compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    pub filesystem: Device,
    pub inode: u64,
}

/// An open descriptor of /dev/kfd, at any path: its st_rdev is the driver's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KfdDescriptor {
    pub fd: u32,
    pub node: Node,
    /// exec closes it (O_CLOEXEC); `None`: not in fdinfo.
    pub cloexec: Option<bool>,
}

/// What fdinfo reports for an open descriptor of an amdgpu DRM node (Documentation/gpu/drm-usage-stats.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DrmDescriptor {
    pub fd: u32,
    pub driver: Option<String>,
    /// PCI address.
    pub pdev: Option<String>,
    pub client_id: Option<u64>,
    pub vram_bytes: Option<u64>,
}

/// What all open descriptors of a process add up to, also of those that are not kept one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorTotals {
    /// Number of descriptors of /dev/kfd.
    pub kfd: usize,
    /// Number of descriptors of DRM nodes.
    pub drm: usize,
    /// Bytes of its DRM clients by PCI address, each client once.
    pub vram: BTreeMap<String, u64>,
    /// There are too many to read fdinfo of each.
    pub vram_incomplete: bool,
}

/// Mappings of interest in the address space of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// Files of the mappings of /dev/kfd (doorbells, events), each once.
    pub kfd: BTreeSet<Node>,
    /// Number of mappings of /dev/dri/renderD*.
    pub render: u32,
    /// The ROCm libraries that are mapped.
    pub libraries: BTreeSet<&'static str>,
}

/// One process of procfs.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenProcess {
    pub comm: String,
    pub uid: u32,
    /// Its PID in its own namespace, if different.
    pub inner_pid: Option<u32>,
    pub life: Life,
    pub details: ProcessDetails,
    /// Its mount namespace differs from that of the host's first process; `None`: not permitted to read.
    pub own_mounts: Option<bool>,
    /// Its descriptors may not be read.
    pub closed: bool,
    /// Those with the lowest numbers, and one of the host's node if there is any.
    pub kfd: Vec<KfdDescriptor>,
    /// Those with the lowest numbers.
    pub drm: Vec<DrmDescriptor>,
    pub totals: DescriptorTotals,
    /// `None`: they may not be read.
    pub mappings: Option<Mappings>,
}

impl SeenProcess {
    /// Whether what is not found in it may be in it all the same.
    pub(super) fn is_unread(&self) -> bool {
        self.kfd.is_empty() && (self.closed || self.mappings.is_none())
    }
}

/// What KFD has for a PID, from one source. The contexts of a PID (7.2) are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KfdProcess {
    /// Ids of further contexts.
    pub contexts: Vec<u32>,
    pub queues: usize,
    /// Bytes by gpu_id. Only sysfs reports them.
    pub vram: BTreeMap<u32, u64>,
    /// The leader's start time differs from that of the process that has the PID in procfs now. Only the
    /// kernel's table reports it.
    pub reused: bool,
}

/// By PID, in the initial PID namespace.
pub type KfdProcesses = BTreeMap<u32, KfdProcess>;

/// A chip: all GPUs (partitions) of one PCI address share its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chip {
    pub pci: String,
    pub gpu_ids: BTreeSet<u32>,
    /// Bytes, `mem_info_vram_used`.
    pub vram_used: Option<u64>,
}

/// Everything that one scan found.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Number of /dev/kfd, by sysfs.
    pub device: Option<Device>,
    /// /dev/kfd of the host, as lsof and fuser see it.
    pub host_node: Option<Node>,
    /// class/kfd/kfd/proc; `None`: it cannot be read.
    pub sysfs: Option<KfdProcesses>,
    /// The driver's table, or why it cannot be read.
    pub kernel: Result<KfdProcesses, String>,
    /// Activity of queues, by PID, or why it cannot be read.
    pub sampled: Result<AllSampled, String>,
    /// Evictions that run.
    pub evicted: AllEvicted,
    /// Processes that use KFD or amdgpu, that KFD has, or that were requested, by PID.
    pub processes: BTreeMap<u32, SeenProcess>,
    /// Number of processes inspected, without kernel threads.
    pub looked_at: usize,
    /// Processes that may not be inspected.
    pub closed: BTreeSet<u32>,
    /// procfs hides other users' processes from this one (hidepid).
    pub hides: bool,
    pub chips: Vec<Chip>,
}
