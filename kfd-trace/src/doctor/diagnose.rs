//! Builds the report from a scan. Pure.

use super::finding::{FindingKind, Weight};
use super::report::{Descriptor, Diagnosis, DoctorOutcome, OfNode, ProcessRow, RocmSmi, Standing, ViewName};
use super::seen::{KfdProcess, Observed, SeenProcess};
use super::{not_restored, views, vram};
use crate::output::belongs::BelongsFields;
use std::collections::BTreeSet;

/// Reports which view sees what, and why other views do not. `before`: an earlier scan; without it nothing
/// counts as left behind, because the driver frees the resources of a process some time after its end.
/// `only`: restricts the report to that process.
#[must_use]
pub fn diagnose(seen: &Observed, before: Option<&Observed>, only: Option<u32>) -> Diagnosis {
    let all = seen.kfd_pids().into_iter().chain(seen.processes.keys().copied()).collect::<BTreeSet<u32>>();
    let pids = all.into_iter().chain(only).filter(|pid| only.is_none_or(|only| only == *pid));
    let pids: BTreeSet<u32> = pids.collect();
    let rows = pids.into_iter().map(|pid| row(seen, before, pid, only.is_some()));
    let processes: Vec<ProcessRow> = rows.filter(|row| only.is_some() || row.has_part()).collect();
    let chips = if only.is_none() { vram::chips(seen) } else { Vec::new() };
    let worst = processes.iter().map(ProcessRow::weight).max().unwrap_or(Weight::Note);
    let outcome = match worst {
        _ if chips.iter().any(|chip| chip.unowned) => DoctorOutcome::Wrong,
        Weight::Note => DoctorOutcome::Well,
        Weight::Hidden => DoctorOutcome::Hidden,
        Weight::Wrong => DoctorOutcome::Wrong,
    };
    Diagnosis {
        outcome,
        complete: seen.is_complete(),
        looked_at: seen.looked_at,
        not_permitted: seen.closed.len(),
        hidepid: seen.hides,
        views: views::all(seen, only),
        unsettled: processes
            .iter()
            .any(|row| row.findings.contains(&FindingKind::Ending) || not_restored::may_end(seen, row.pid)),
        processes,
        chips,
    }
}

impl ProcessRow {
    /// Whether a node-wide report lists the process. A desktop has many users of render nodes, which are left
    /// out.
    #[must_use]
    pub fn has_part(&self) -> bool {
        self.kfd == Some(true)
            || !self.descriptors.is_empty()
            || self.findings.contains(&FindingKind::StrayMapping)
    }
}

impl Observed {
    /// Whether every process could be inspected, with all memory that it has.
    pub(super) fn is_complete(&self) -> bool {
        let incomplete = self.processes.values().any(|process| process.totals.vram_incomplete);
        self.closed.is_empty() && !self.hides && !incomplete
    }

    /// Whether sysfs lists it; `None`: sysfs could not be read.
    pub(super) fn in_sysfs(&self, pid: u32) -> Option<bool> {
        Some(self.sysfs.as_ref()?.contains_key(&pid))
    }

    pub(super) fn in_kernel(&self, pid: u32) -> Option<bool> {
        Some(self.kernel.as_ref().ok()?.contains_key(&pid))
    }

    /// Whether KFD has a process of this PID; `None`: not known.
    #[must_use]
    pub fn is_kfd(&self, pid: u32) -> Option<bool> {
        match (self.in_sysfs(pid), self.in_kernel(pid)) {
            (None, None) => None,
            (sysfs, kernel) => Some(sysfs == Some(true) || kernel == Some(true)),
        }
    }

    fn of_kfd(&self, pid: u32) -> impl Iterator<Item = &KfdProcess> {
        let sysfs = self.sysfs.as_ref().and_then(|all| all.get(&pid));
        let kernel = self.kernel.as_ref().ok().and_then(|all| all.get(&pid));
        sysfs.into_iter().chain(kernel)
    }

    fn kfd_pids(&self) -> BTreeSet<u32> {
        let sysfs = self.sysfs.iter().flat_map(|all| all.keys());
        let kernel = self.kernel.iter().flat_map(|all| all.keys());
        sysfs.chain(kernel).copied().collect()
    }

    /// The process of a PID, unless the PID is reused by another process than KFD's.
    pub(super) fn process(&self, pid: u32) -> Option<&SeenProcess> {
        let reused = self.of_kfd(pid).any(|process| process.reused);
        self.processes.get(&pid).filter(|_| !reused)
    }

    pub(super) fn standing(&self, pid: u32) -> Standing {
        match self.process(pid) {
            Some(process) if process.life.lives_without_leader() => Standing::WithoutLeader,
            Some(process) if process.life.is_over() => Standing::Ended,
            Some(_) => Standing::Lives,
            None if self.hides => Standing::Unknown,
            None => Standing::Gone,
        }
    }

    /// Whether lsof and fuser find it, for a user who may inspect it and if they compare with this host's
    /// node.
    pub(super) fn found_by_lsof(&self, pid: u32) -> Option<bool> {
        let Some(process) = self.process(pid) else { return if self.hides { None } else { Some(false) } };
        if process.life.lives_without_leader() {
            return Some(false);
        }
        let host = self.host_node?;
        let by_descriptor = process.kfd.iter().any(|open| open.node == host);
        let by_mapping = process.mappings.as_ref().is_some_and(|mappings| mappings.kfd.contains(&host));
        if by_descriptor || by_mapping { Some(true) } else { (!process.is_unread()).then_some(false) }
    }

    /// KFD has it, and it is dead, or its address space is not the one that KFD has.
    fn is_left(&self, pid: u32) -> bool {
        let is_kfd = self.is_kfd(pid) == Some(true);
        match self.standing(pid) {
            Standing::Gone | Standing::Ended => is_kfd,
            // The table omits a process whose address space is gone (kfd_process_notifier_release); sysfs has
            // it until it is freed.
            Standing::Lives | Standing::WithoutLeader => {
                self.in_sysfs(pid) == Some(true) && self.in_kernel(pid) == Some(false)
            }
            Standing::Unknown => false,
        }
    }

    /// Processes that have KFD open and are not served, except children of served ones: their descriptor is
    /// the parent's.
    fn strays(&self) -> Vec<u32> {
        let served = |pid: u32| self.is_kfd(pid) == Some(true) && !self.is_left(pid);
        let open = self.processes.iter().filter(|(_, process)| !process.kfd.is_empty());
        open.filter(|(pid, process)| self.is_kfd(**pid) == Some(false) && !served(process.life.parent))
            .map(|(pid, _)| *pid)
            .collect()
    }
}

fn row(seen: &Observed, before: Option<&Observed>, pid: u32, requested: bool) -> ProcessRow {
    let process = seen.process(pid);
    let kfd = seen.is_kfd(pid);
    let details = process.map(|process| &process.details);
    let node = |open| match seen.host_node {
        Some(host) if host == open => OfNode::Host,
        Some(_) => OfNode::Own,
        None => OfNode::Unknown,
    };
    let descriptors = process.map_or(&[][..], |process| &process.kfd).iter();
    let sysfs = seen.sysfs.as_ref().and_then(|all| all.get(&pid));
    let standing = seen.standing(pid);
    let rocm_smi = seen.in_sysfs(pid).filter(|_| kfd == Some(true)).map(|listed| match standing {
        _ if !listed => RocmSmi::Missed,
        // rocm-smi calls ps, which has the name of a zombie until it is reaped.
        Standing::Lives | Standing::WithoutLeader | Standing::Ended => RocmSmi::Named,
        Standing::Gone | Standing::Unknown => RocmSmi::Unknown,
    });
    ProcessRow {
        pid,
        ns_pid: process.and_then(|process| process.inner_pid),
        comm: process.map(|process| process.comm.clone()),
        uid: process.map(|process| process.uid),
        owner: details.and_then(|details| BelongsFields::from(details).owner()),
        standing,
        kfd,
        contexts: contexts(seen, pid),
        queues: seen.of_kfd(pid).map(|process| process.queues).max().unwrap_or(0),
        vram_bytes: sysfs.map(|process| vram::sum(process.vram.values().copied())),
        activity: seen.sampled.as_ref().ok().and_then(|all| all.get(&pid)).cloned(),
        seen_by: ViewName::ALL.into_iter().map(|view| (view, views::sees(seen, view, pid))).collect(),
        rocm_smi,
        descriptors: descriptors
            .map(|open| Descriptor { fd: open.fd, node: node(open.node), cloexec: open.cloexec })
            .collect(),
        descriptor_count: process.map(|process| process.totals.kfd),
        drm_count: process.map(|process| process.totals.drm),
        drm: process.map(|process| process.drm.clone()).unwrap_or_default(),
        libraries: process
            .and_then(|process| process.mappings.as_ref())
            .map(|mappings| mappings.libraries.iter().copied().collect())
            .unwrap_or_default(),
        findings: match kfd {
            Some(true) => of_kfd(seen, before, pid),
            kfd => beside_kfd(seen, pid, kfd, requested),
        },
    }
}

fn contexts(seen: &Observed, pid: u32) -> Vec<u32> {
    let all: BTreeSet<u32> = seen.of_kfd(pid).flat_map(|process| &process.contexts).copied().collect();
    all.into_iter().collect()
}

/// Findings for a process that KFD has.
fn of_kfd(seen: &Observed, before: Option<&Observed>, pid: u32) -> Vec<FindingKind> {
    let mut found = Vec::new();
    let process = seen.process(pid);
    if seen.is_left(pid) {
        let believed = before.is_some_and(|before| before.is_left(pid));
        found.push(if believed { left(seen, pid) } else { FindingKind::Ending });
    } else if let Some(process) = process {
        found.push(by_lsof(seen, process));
    } else {
        found.push(FindingKind::HidePid);
    }
    found.extend(
        process.and_then(|process| process.inner_pid).map(|inner| FindingKind::OtherPidNamespace { inner }),
    );
    let further = contexts(seen, pid).len();
    found.extend((further > 0).then_some(FindingKind::Contexts { further }));
    found.extend((seen.in_sysfs(pid) == Some(false)).then_some(FindingKind::NotInSysfs));
    found.extend(not_restored::findings(seen, before, pid));
    found
}

/// Why KFD still has it.
fn left(seen: &Observed, pid: u32) -> FindingKind {
    let holders = seen.strays();
    match seen.standing(pid) {
        Standing::Lives | Standing::WithoutLeader => {
            let own = seen.process(pid).is_some_and(|process| !process.kfd.is_empty());
            FindingKind::Execed { own, holders }
        }
        _ if seen.in_kernel(pid) == Some(true) => FindingKind::KeptByMemory,
        _ if !holders.is_empty() => FindingKind::KeptByDescriptor { holders },
        _ => FindingKind::Teardown { lsof: seen.found_by_lsof(pid) },
    }
}

/// Why lsof and fuser find, or do not find, a live process that is served.
fn by_lsof(seen: &Observed, process: &SeenProcess) -> FindingKind {
    if process.life.lives_without_leader() {
        return FindingKind::ZombieLeader { threads: process.life.threads };
    }
    if process.is_unread() {
        return FindingKind::NotPermitted;
    }
    let Some(host) = seen.host_node else { return FindingKind::HostNodeUnknown };
    if let Some(open) = process.kfd.iter().find(|open| open.node == host) {
        let fd = open.fd;
        return if process.own_mounts == Some(true) {
            FindingKind::BindMounted { fd }
        } else {
            FindingKind::Seen { fd }
        };
    }
    if process.mappings.as_ref().is_some_and(|mappings| mappings.kfd.contains(&host)) {
        return FindingKind::MappingOnly;
    }
    match process.kfd.first() {
        Some(open) => FindingKind::OwnNode { fd: open.fd },
        None => FindingKind::ClosedDescriptor,
    }
}

/// Findings for a process that KFD does not have (`Some(false)`), or for which that is not known.
fn beside_kfd(seen: &Observed, pid: u32, kfd: Option<bool>, requested: bool) -> Vec<FindingKind> {
    let Some(process) = seen.process(pid) else { return vec![FindingKind::NoPart] };
    let mapped = process.mappings.clone().unwrap_or_default();
    let kind = match process.kfd.first() {
        Some(_) if kfd.is_none() => FindingKind::ServiceUnknown,
        Some(open) if seen.is_kfd(process.life.parent) == Some(true) => {
            FindingKind::Inherited { parent: process.life.parent, fd: open.fd }
        }
        Some(open) => FindingKind::Stray { fd: open.fd },
        None if !mapped.kfd.is_empty() => FindingKind::StrayMapping,
        None if !mapped.libraries.is_empty() => FindingKind::NotOpened { library: true },
        None if !process.drm.is_empty() || mapped.render > 0 => FindingKind::NotOpened { library: false },
        None if requested && process.closed => FindingKind::Unlooked,
        None => FindingKind::NoPart,
    };
    let inner = process.inner_pid.map(|inner| FindingKind::OtherPidNamespace { inner });
    std::iter::once(kind).chain(inner).collect()
}
