//! Processes of procfs that use KFD or amdgpu: what each has open and mapped.

use super::descriptors::{self, DescriptorReader, KEPT, OpenDescriptor};
use super::devices::Devices;
use super::mappings;
use super::progress::{Progress, Step};
use super::seen::{KfdProcess, KfdProcesses, Mappings, Node, SeenProcess};
use crate::attribute::process;
use crate::attribute::task;
use crate::attribute::{KfdSysfs, ProcessInfo, SysfsProcess};
use crate::state::ProcessDetails;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub use super::files::{Files, Real, Stat};

/// Descriptors of each kind that are kept of all processes together; beyond that each process has its first one. So the
/// diagnosis stays small, whatever users of GPUs open.
const KEPT_OF_ALL: usize = 16_384;

/// Result of the procfs scan.
#[derive(Debug, Default)]
pub struct ScannedProcfs {
    pub processes: BTreeMap<u32, SeenProcess>,
    pub looked_at: usize,
    pub closed: BTreeSet<u32>,
}

/// Reads processes of procfs.
pub struct ProcfsReader<'a, F> {
    pub files: &'a F,
    pub procfs: &'a Path,
    pub devices: &'a Devices,
    /// The host's /dev/kfd.
    pub host_node: Option<Node>,
    /// Supplies further details of a process.
    pub details: &'a dyn Fn(&ProcessInfo) -> ProcessDetails,
    /// Has the process that is being read: its memory lock may be held for long.
    pub progress: &'a Progress,
}

impl<F: Files> ProcfsReader<'_, F> {
    /// Scans all processes. Keeps those that have KFD or amdgpu open or mapped, and the `wanted` ones.
    pub fn all(&self, wanted: &BTreeSet<u32>) -> ScannedProcfs {
        self.scan(numbers(self.procfs), wanted)
    }

    /// Reads this process alone, and keeps it.
    pub fn one(&self, tgid: u32) -> ScannedProcfs {
        let alone = BTreeSet::from([tgid]);
        self.scan(alone.clone(), &alone)
    }

    fn scan(&self, tgids: BTreeSet<u32>, wanted: &BTreeSet<u32>) -> ScannedProcfs {
        self.scan_within(tgids, wanted, KEPT_OF_ALL)
    }

    /// `left`: so many descriptors of each kind are kept.
    fn scan_within(&self, tgids: BTreeSet<u32>, wanted: &BTreeSet<u32>, mut left: usize) -> ScannedProcfs {
        let mut read = ScannedProcfs::default();
        let first_mounts = mounts(&self.procfs.join("1"));
        for tgid in tgids {
            if self.progress.is_cancelled() {
                break;
            }
            self.progress.begin(Step::Process(tgid));
            // Ended meanwhile, or hidden: then the caller has it from another source.
            let Ok(life) = process::life(self.procfs, tgid) else { continue };
            if life.of_kernel {
                continue;
            }
            read.looked_at += 1;
            let task = task::living(self.procfs, tgid, &life);
            // A dead process has no descriptors, and procfs shows root as its owner.
            let reader = DescriptorReader {
                files: self.files,
                devices: self.devices,
                host_node: self.host_node,
                progress: self.progress,
                keep: left.clamp(1, KEPT),
            };
            let OpenDescriptor { kfd, drm, totals, closed } = match &task {
                Some(task) => descriptors::read(&reader, task),
                None => OpenDescriptor::default(),
            };
            left = left.saturating_sub(kfd.len().max(drm.len()));
            if closed {
                read.closed.insert(tgid);
            }
            let nodes: BTreeSet<Node> = kfd.iter().map(|open| open.node).chain(self.host_node).collect();
            let mappings = match &task {
                Some(task) => mappings::read(task, &nodes),
                None => Some(Mappings::default()),
            };
            let empty = mappings.as_ref().is_none_or(|mappings| *mappings == Mappings::default());
            if kfd.is_empty() && drm.is_empty() && empty && !wanted.contains(&tgid) {
                continue;
            }
            let Ok(info) = process::read(self.procfs, tgid, None) else { continue };
            let own_mounts = first_mounts
                .as_ref()
                .zip(mounts(&self.procfs.join(tgid.to_string())))
                .map(|(first, own)| *first != own);
            let seen = SeenProcess {
                comm: info.who.comm.clone(),
                uid: info.who.uid,
                inner_pid: info.who.inner_pid(),
                life,
                details: (self.details)(&info),
                own_mounts,
                closed,
                kfd,
                drm,
                totals,
                mappings,
            };
            if seen.mappings.is_none() {
                read.closed.insert(tgid);
            }
            read.processes.insert(tgid, seen);
        }
        self.progress.begin(Step::Comparing);
        read
    }
}

fn numbers(folder: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn mounts(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("ns/mnt")).ok()
}

/// Processes that sysfs lists, by PID. `None`: the folder cannot be read.
#[must_use]
pub fn of_sysfs(listed: &KfdSysfs) -> Option<KfdProcesses> {
    let mut processes = KfdProcesses::new();
    for SysfsProcess { tgid, context_id, queues, vram, .. } in &listed.processes {
        let process = processes.entry(*tgid).or_default();
        process.contexts.extend(context_id);
        process.queues += queues.len();
        for (gpu, bytes) in vram {
            let sum = process.vram.entry(*gpu).or_default();
            *sum = sum.saturating_add(*bytes);
        }
    }
    listed.there.then_some(processes)
}

/// Adds one `kfd_process` of the driver's table. `reused`: procfs has another process with that PID.
pub fn add_standing(all: &mut KfdProcesses, tgid: u32, context: Option<u32>, queues: usize, reused: bool) {
    let process: &mut KfdProcess = all.entry(tgid).or_default();
    process.contexts.extend(context);
    process.queues += queues;
    process.reused |= reused;
}

#[cfg(test)]
mod tests;
