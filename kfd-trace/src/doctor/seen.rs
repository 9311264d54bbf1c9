//! What all views told at one look: plain data.

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

/// Which file it is: file system (st_dev) and inode, which lsof and fuser compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    pub filesystem: Device,
    pub inode: u64,
}

/// An open descriptor of /dev/kfd, whatever its path: its st_rdev is the driver's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KfdDescriptor {
    pub fd: u32,
    pub node: Node,
    /// It is closed by exec (O_CLOEXEC); `None`: fdinfo does not tell.
    pub cloexec: Option<bool>,
}

/// What fdinfo tells of an open descriptor of a DRM node of amdgpu (Documentation/gpu/drm-usage-stats.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DrmDescriptor {
    pub fd: u32,
    pub driver: Option<String>,
    /// PCI address.
    pub pdev: Option<String>,
    pub client_id: Option<u64>,
    pub vram_bytes: Option<u64>,
}

/// Mappings of interest in the address space of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// Files of the mappings of /dev/kfd (doorbells, events), each once.
    pub kfd: BTreeSet<Node>,
    /// Number of mappings of /dev/dri/renderD*.
    pub render: u32,
    /// Of ROCm's libraries those that are mapped.
    pub libraries: BTreeSet<&'static str>,
}

/// One process of procfs.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenProcess {
    pub comm: String,
    pub uid: u32,
    /// Its PID for itself, where that is another one.
    pub inner_pid: Option<u32>,
    pub life: Life,
    pub details: ProcessDetails,
    /// Its mount namespace is another one than that of the host's first process; `None`: it may not be asked.
    pub own_mounts: Option<bool>,
    /// Its descriptors may not be looked at.
    pub closed: bool,
    pub kfd: Vec<KfdDescriptor>,
    pub drm: Vec<DrmDescriptor>,
    /// `None`: they may not be looked at.
    pub mappings: Option<Mappings>,
}

/// What KFD has of a PID, by one source; the contexts of a PID (7.2) are taken together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KfdProcess {
    /// Of further contexts.
    pub contexts: Vec<u32>,
    pub queues: usize,
    /// Bytes by gpu_id. sysfs alone tells them.
    pub vram: BTreeMap<u32, u64>,
    /// The leader started at another time than the process that has the PID in procfs now. The kernel's table alone tells it.
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

/// All that was seen at one look.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Number of /dev/kfd, by sysfs.
    pub device: Option<Device>,
    /// /dev/kfd of the host, as lsof and fuser take it.
    pub host_node: Option<Node>,
    /// class/kfd/kfd/proc; `None`: it cannot be read.
    pub sysfs: Option<KfdProcesses>,
    /// The driver's table, or why it cannot be read.
    pub kernel: Result<KfdProcesses, String>,
    /// What queues did, by PID, or why that cannot be read.
    pub sampled: Result<AllSampled, String>,
    /// Those with a part in it, and those that KFD has or that are asked for, by PID.
    pub processes: BTreeMap<u32, SeenProcess>,
    /// How many were looked at, without the kernel's own threads.
    pub looked_at: usize,
    /// Those that may not be looked into.
    pub closed: BTreeSet<u32>,
    /// procfs hides other users' processes from this one (hidepid).
    pub hides: bool,
    pub chips: Vec<Chip>,
}
