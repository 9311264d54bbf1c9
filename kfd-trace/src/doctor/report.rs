//! The doctor report: plain data. Its fields are those of the JSON (docs/doctor.md).

use super::finding::{FindingKind, Weight};
use super::sampled::Sampled;
use super::seen::DrmDescriptor;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Overall result. A further one is a new `schema`: clients take their exit code from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoctorOutcome {
    Well,
    /// One of the usual checks misses a process.
    Hidden,
    /// KFD or a GPU keeps something that has no owner, or a process was evicted and is not restored.
    Wrong,
}

/// A method of finding the users of KFD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewName {
    /// Descriptors by st_rdev.
    DeviceNumber,
    /// As lsof and fuser find them.
    Lsof,
    Mappings,
    Sysfs,
    /// fdinfo of amdgpu's DRM nodes.
    Drm,
    /// The driver's own table.
    Kernel,
    /// Counters of queues in the memory of processes.
    Sampled,
}

/// Result of one view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    pub view: ViewName,
    /// PIDs; `None`: the view was not tried, or returned nothing.
    pub saw: Option<Vec<u32>>,
    /// Why `saw` is `None`.
    pub why: Option<String>,
    pub can_miss: &'static str,
}

/// Liveness of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Lives,
    /// The leader is dead, other threads run.
    WithoutLeader,
    /// Dead and not reaped, or about to be dead.
    Ended,
    /// procfs has no such process.
    Gone,
    /// procfs may hide it.
    Unknown,
}

/// What `rocm-smi --showpids` shows of the process: names from class/kfd/kfd/proc, and what procfs reports
/// for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RocmSmi {
    Named,
    /// It prints UNKNOWN.
    Unknown,
    Missed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OfNode {
    Host,
    Own,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    pub fd: u32,
    pub node: OfNode,
    pub cloexec: Option<bool>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessRow {
    pub pid: u32,
    pub ns_pid: Option<u32>,
    pub comm: Option<String>,
    pub uid: Option<u32>,
    pub owner: Option<String>,
    pub standing: Standing,
    /// KFD has it; `None`: no source could be read.
    pub kfd: Option<bool>,
    pub contexts: Vec<u32>,
    /// From the source that has more.
    pub queues: usize,
    /// As reported by sysfs.
    pub vram_bytes: Option<u64>,
    /// Activity of its queues; `None`: cannot be read, or it has no queues.
    pub activity: Option<Sampled>,
    /// `None`: not known.
    pub seen_by: BTreeMap<ViewName, Option<bool>>,
    pub rocm_smi: Option<RocmSmi>,
    /// `None`: it has ended, or is hidden.
    pub descriptor_count: Option<usize>,
    /// The first ones.
    pub descriptors: Vec<Descriptor>,
    pub drm_count: Option<usize>,
    pub drm: Vec<DrmDescriptor>,
    pub libraries: Vec<&'static str>,
    #[serde(serialize_with = "findings")]
    pub findings: Vec<FindingKind>,
}

/// Memory of a chip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChipRow {
    pub pci: String,
    pub vram_used_bytes: Option<u64>,
    /// Memory that processes account for.
    pub vram_owned_bytes: u64,
    pub unowned: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    pub outcome: DoctorOutcome,
    /// All processes could be inspected.
    pub complete: bool,
    /// Number of processes that were inspected, and of those that may not be inspected.
    pub looked_at: usize,
    pub not_permitted: usize,
    pub hidepid: bool,
    pub views: Vec<View>,
    pub processes: Vec<ProcessRow>,
    pub chips: Vec<ChipRow>,
    /// A change may be in progress: scan again.
    #[serde(skip)]
    pub unsettled: bool,
}

impl ProcessRow {
    /// The worst of its findings.
    #[must_use]
    pub fn weight(&self) -> Weight {
        self.findings.iter().map(FindingKind::weight).max().unwrap_or(Weight::Note)
    }
}

#[derive(Serialize)]
struct ReportedFinding {
    kind: &'static str,
    weight: Weight,
    text: String,
}

fn findings<S: Serializer>(kinds: &[FindingKind], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(kinds.iter().map(|kind| ReportedFinding {
        kind: kind.name(),
        weight: kind.weight(),
        text: kind.sentence(),
    }))
}
