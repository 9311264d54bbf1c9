//! The report: plain data; its fields are those of the JSON (docs/doctor.md).

use super::finding::{Kind, Weight};
use super::sampled::Sampled;
use super::seen::DrmDescriptor;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// What comes of it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Well,
    /// One of the usual checks misses a process.
    Hidden,
    /// KFD or a GPU keeps something that nobody has.
    Wrong,
}

/// A way to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

/// What a view told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    pub view: ViewName,
    /// PIDs; `None`: it was not asked, or told nothing.
    pub saw: Option<Vec<u32>>,
    /// Why not.
    pub why: Option<String>,
    pub can_miss: &'static str,
}

/// How a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Lives,
    /// Threads live on behind a dead leader.
    WithoutLeader,
    /// Dead and not reaped, or about to be.
    Ended,
    /// procfs has no such process.
    Gone,
    /// procfs may hide it.
    Unknown,
}

/// What rocm-smi --showpids has of it: names of class/kfd/kfd/proc, and what procfs tells of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RocmSmi {
    Named,
    /// It says UNKNOWN.
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
pub struct Row {
    pub pid: u32,
    pub ns_pid: Option<u32>,
    pub comm: Option<String>,
    pub uid: Option<u32>,
    pub owner: Option<String>,
    pub standing: Standing,
    /// KFD has it; `None`: no source could be asked.
    pub kfd: Option<bool>,
    pub contexts: Vec<u32>,
    /// By the source that has more.
    pub queues: usize,
    /// As sysfs tells.
    pub vram_bytes: Option<u64>,
    /// What its queues did; `None`: that cannot be read, or it has none.
    pub activity: Option<Sampled>,
    /// `None`: not known.
    pub seen_by: BTreeMap<ViewName, Option<bool>>,
    pub rocm_smi: Option<RocmSmi>,
    pub descriptors: Vec<Descriptor>,
    pub drm: Vec<DrmDescriptor>,
    pub libraries: Vec<&'static str>,
    #[serde(serialize_with = "findings")]
    pub findings: Vec<Kind>,
}

/// Memory of a chip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChipRow {
    pub pci: String,
    pub vram_used_bytes: Option<u64>,
    /// What processes account for.
    pub vram_owned_bytes: u64,
    pub unowned: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub outcome: Outcome,
    /// Every process could be looked into.
    pub complete: bool,
    /// Number of processes that were looked at, and of those that may not be looked into.
    pub looked_at: usize,
    pub not_permitted: usize,
    pub hidepid: bool,
    pub views: Vec<View>,
    pub processes: Vec<Row>,
    pub chips: Vec<ChipRow>,
    /// Something may be a change under way: to be looked at again.
    #[serde(skip)]
    pub doubt: bool,
}

impl Row {
    /// The worst of its findings.
    #[must_use]
    pub fn weight(&self) -> Weight {
        self.findings.iter().map(Kind::weight).max().unwrap_or(Weight::Note)
    }
}

#[derive(Serialize)]
struct Told {
    kind: &'static str,
    weight: Weight,
    text: String,
}

fn findings<S: Serializer>(kinds: &[Kind], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(kinds.iter().map(|kind| Told {
        kind: kind.name(),
        weight: kind.weight(),
        text: kind.sentence(),
    }))
}
