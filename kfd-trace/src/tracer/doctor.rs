//! All views of a node, read once, and where something may be a change in progress, once more.
//!
//! In: procfs and sysfs by their roots, and what [`DriverViews`] reads of the driver. Out: an [`Examination`], from which
//! the diagnosis of the node or of any of its processes follows.

use super::engine::Tracer;
use super::enrich;
use super::inventory::{self, detailed, state_of};
use super::preflight::chain;
use super::sample::twice;
use super::types::{self, Known};
use crate::attribute::process::{self, ProcessError};
use crate::attribute::{Costly, KfdSysfs, Topology};
use crate::doctor::devices::{self, Devices};
use crate::doctor::evicted::{self, AllEvicted};
use crate::doctor::json::{self, KernelSummary};
use crate::doctor::progress::{Progress, Step};
use crate::doctor::read::{self, ProcfsReader, Real};
use crate::doctor::report::ProcessRow;
use crate::doctor::sampled::AllSampled;
use crate::doctor::seen::KfdProcesses;
use crate::doctor::{Diagnosis, Observed, diagnose};
use crate::kernel::{Capabilities, Capability, Finding, FindingSeverity, Preflight, Roots, findings};
use crate::output::status;
use crate::probes::walk::DriverTable;
use crate::runtime::clock;
use crate::state::{Activity, Inventory, ReadTimes, Source, State};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval between two readings: the driver frees what a process had some time after its end, in less than that
/// if the GPU responds.
const SETTLES: Duration = Duration::from_secs(2);

/// By tgid, further context, and queue.
pub type Activities = BTreeMap<(u32, Option<u32>, u32), Activity>;

/// What is read of the driver itself.
pub struct DriverRead {
    /// Its table, or why it cannot be walked.
    pub existing: Result<Inventory, String>,
    /// What its queues did, or why that is not measured.
    pub activities: Result<Activities, String>,
    /// Evictions that run, as far as they are known.
    pub evicted: AllEvicted,
}

impl DriverRead {
    /// Nothing, for this reason.
    #[must_use]
    pub fn none(why: String) -> Self {
        DriverRead { existing: Err(why.clone()), activities: Err(why), evicted: AllEvicted::new() }
    }

    fn views(self, roots: &Roots) -> (Result<KfdProcesses, String>, Result<AllSampled, String>) {
        let DriverRead { existing, activities, .. } = self;
        let existing = match existing {
            Ok(existing) => existing,
            Err(why) => return (Err(why.clone()), Err(why)),
        };
        let mut all = KfdProcesses::new();
        for process in &existing.processes {
            let reported = process::check(&roots.procfs, process.tgid, process.start_boottime_ns);
            let reused = matches!(reported, Err(ProcessError::Reused { .. }));
            read::add_standing(&mut all, process.tgid, process.context_id, process.queues.len(), reused);
        }
        let sampled = activities.map(|activities| {
            let mut sampled = AllSampled::new();
            for process in &existing.processes {
                for queue in &process.queues {
                    let place = queue.queue_id.map(|queue_id| (process.tgid, process.context_id, queue_id));
                    let activity = place.and_then(|place| activities.get(&place));
                    sampled.entry(process.tgid).or_default().add(queue, activity);
                }
            }
            sampled
        });
        (Ok(all), sampled)
    }
}

/// Who reads the driver's table, and what its queues did.
pub trait DriverViews {
    fn read(&mut self, progress: &Progress) -> DriverRead;
}

/// A program of its own, which is loaded for each reading; and memories of processes.
pub struct OwnProgram {
    roots: Roots,
    /// What reading the driver's table requires, or why it cannot be read.
    known: Result<Known, String>,
}

impl OwnProgram {
    #[must_use]
    pub fn new(node: &Node) -> Self {
        let Node { roots, findings, .. } = node;
        let blocks = findings.iter().find(|finding| finding.severity == FindingSeverity::Blocks);
        let known = match blocks {
            Some(finding) => Err(finding.what.clone()),
            None => types::known(roots).map_err(|error| chain(&error)),
        };
        OwnProgram { roots: roots.clone(), known }
    }
}

impl DriverViews for OwnProgram {
    fn read(&mut self, _: &Progress) -> DriverRead {
        let walk = |known: &Known| inventory::walk(&self.roots, &known.kernel, &known.facts);
        let existing = match self.known.as_ref().map_err(Clone::clone).and_then(walk) {
            Ok(existing) => existing,
            Err(why) => return DriverRead::none(why),
        };
        let mut state = state_of(&existing);
        let sampled = twice::sample(&self.roots.procfs, &mut state);
        let evicted = evicted::of_state(&state, clock::mono_ns());
        DriverRead { existing: Ok(existing), activities: sampled.map(|_| activities(&state)), evicted }
    }
}

fn activities(state: &State) -> Activities {
    let queues = state.live().flat_map(|process| process.queues.values().map(move |queue| (process, queue)));
    let activities = queues.filter_map(|(process, queue)| {
        Some(((process.tgid?, process.context_id, queue.queue_id), queue.activity.clone()))
    });
    activities.collect()
}

/// What a table lacks would count as not served.
fn whole(table: DriverTable) -> Result<DriverTable, String> {
    match table.broken {
        0 => Ok(table),
        _ => Err("the driver's table changed while it was read: ask again".to_owned()),
    }
}

impl Tracer {
    /// The driver's table as it is now, and the last samples. Without what procfs has: see [`DriverRead::detailed`].
    #[must_use]
    pub fn driver_views(&self) -> DriverRead {
        let (Some(session), Some(reader)) = (&self.session, &self.pending.reader) else {
            return DriverRead::none("no probes are attached now".to_owned());
        };
        let from_ns = clock::mono_ns();
        let walked = || reader.walked(session).and_then(whole);
        let table = match walked().or_else(|_| walked()) {
            Ok(table) => table,
            Err(why) => return DriverRead::none(why),
        };
        let read = ReadTimes { from_ns, until_ns: clock::mono_ns() };
        let processes = table.entries.into_iter().map(|entry| entry.process).collect();
        let activities = match self.samples.interval_ns {
            0 => Err("the daemon reads no memory of processes (--sample.interval=0)".to_owned()),
            _ => Ok(activities(&self.state)),
        };
        let existing = Inventory { processes, ..Inventory::empty(Source::Kernel, read) };
        let evicted = evicted::of_state(&self.state, clock::mono_ns());
        DriverRead { existing: Ok(existing), activities, evicted }
    }
}

impl DriverRead {
    /// Adds what procfs has of the processes.
    #[must_use]
    pub fn detailed(self, roots: &Roots) -> Self {
        DriverRead { existing: self.existing.map(|existing| detailed(roots, existing)), ..self }
    }
}

/// A node with a driver.
pub struct Node {
    roots: Roots,
    preflight: Preflight,
    findings: Vec<Finding>,
}

impl Node {
    /// # Errors
    /// There is no driver.
    pub fn read(roots: &Roots) -> Result<Self, Finding> {
        let preflight = Preflight::read(roots);
        let findings = findings(&preflight);
        match findings.iter().find(|finding| finding.severity == FindingSeverity::NothingToTrace) {
            Some(finding) => Err(finding.clone()),
            None => Ok(Node { roots: roots.clone(), preflight, findings }),
        }
    }

    /// Reads all views. `only`: this process alone matters. Stops early if that is cancelled:
    /// then the result is of no use.
    #[must_use]
    pub fn examine(
        self,
        driver: &mut impl DriverViews,
        only: Option<u32>,
        progress: &Progress,
    ) -> Examination {
        let begin = Instant::now();
        let first = self.look(driver, only, progress);
        // Without time for a second look what ends is reported as that.
        let again = diagnose(&first, None, only).unsettled && progress.has_time(begin.elapsed() + SETTLES);
        if !again || progress.is_cancelled() {
            return Examination { node: self, before: None, seen: first };
        }
        progress.begin(Step::Settling);
        sleep(SETTLES);
        let second = self.look(driver, only, progress);
        Examination { node: self, before: Some(first), seen: second }
    }

    fn look(&self, driver: &mut impl DriverViews, only: Option<u32>, progress: &Progress) -> Observed {
        let Node { roots, preflight, .. } = self;
        progress.begin(Step::Driver);
        let devices = Devices::read(&roots.sysfs);
        let host_node = devices::host_node(&Real, &roots.procfs, devices.kfd);
        // A process that is created meanwhile is in the table first.
        let listed = KfdSysfs::read(&roots.sysfs, Costly::default());
        let sysfs = read::of_sysfs(&listed);
        let mut read = driver.read(progress);
        let evicted = std::mem::take(&mut read.evicted);
        let (kernel, sampled) = read.views(roots);
        let of_kfd = sysfs.iter().flatten().chain(kernel.iter().flatten()).map(|(pid, _)| *pid);
        let wanted: BTreeSet<u32> = of_kfd.chain(only).collect();
        let details = |info: &process::ProcessInfo| enrich::details_of(roots, info);
        let reader = ProcfsReader {
            files: &Real,
            procfs: &roots.procfs,
            devices: &devices,
            host_node,
            details: &details,
            progress,
        };
        let read = reader.all(&wanted);
        let may_see = |capabilities: Capabilities| capabilities.has(Capability::SysPtrace);
        Observed {
            device: devices.kfd,
            host_node,
            sysfs,
            kernel,
            sampled,
            evicted,
            processes: read.processes,
            looked_at: read.looked_at,
            closed: read.closed,
            hides: preflight.processes_hidden == Some(true) && !preflight.capabilities.is_some_and(may_see),
            chips: devices::chips(&roots.sysfs, &Topology::read(&roots.sysfs)),
        }
    }
}

/// What all views of a node showed.
pub struct Examination {
    node: Node,
    /// An earlier reading; `None` where nothing was in progress.
    before: Option<Observed>,
    seen: Observed,
}

impl Examination {
    /// The diagnosis of one process, or of the node. A process that has no part in KFD is read now.
    ///
    /// # Errors
    /// Why there is no such process.
    pub fn diagnosis(&self, only: Option<u32>, progress: &Progress) -> Result<Diagnosis, String> {
        let Some(pid) = only.filter(|pid| !self.has(*pid)) else {
            return Ok(diagnose(&self.seen, self.before.as_ref(), only));
        };
        let mut seen = self.seen.clone();
        let roots = &self.node.roots;
        let details = |info: &process::ProcessInfo| enrich::details_of(roots, info);
        let reader = ProcfsReader {
            files: &Real,
            procfs: &roots.procfs,
            devices: &Devices::read(&roots.sysfs),
            host_node: seen.host_node,
            details: &details,
            progress,
        };
        let read = reader.one(pid);
        if !read.processes.contains_key(&pid) {
            return Err(if seen.hides {
                "/proc shows no such process, and hides those of other users (hidepid)".to_owned()
            } else {
                "no such process. PIDs are those of the host; see `kfd-trace ps` for who uses KFD".to_owned()
            });
        }
        seen.processes.extend(read.processes);
        seen.closed.extend(read.closed);
        Ok(diagnose(&seen, self.before.as_ref(), only))
    }

    fn has(&self, pid: u32) -> bool {
        self.seen.processes.contains_key(&pid) || self.seen.is_kfd(pid) == Some(true)
    }

    /// The diagnosis of the node, or of a process that has a part in KFD, as one JSON object. Nothing is read for it: of other
    /// processes those who ask learn nothing, not even whether there is one.
    ///
    /// # Errors
    /// That this process has no part in KFD.
    pub fn document_of_users(&self, only: Option<u32>) -> Result<String, String> {
        let diagnosis = diagnose(&self.seen, self.before.as_ref(), only);
        if only.is_some() && !diagnosis.processes.iter().all(ProcessRow::has_part) {
            return Err("KFD has no such process, and none of this PID has /dev/kfd open; on the node, `kfd-trace doctor \
                        --pid` describes any process"
                .to_owned());
        }
        self.json(&diagnosis, only)
    }

    /// The diagnosis of any process, or of the node, as one JSON object.
    ///
    /// # Errors
    /// As [`Examination::diagnosis`].
    pub fn document(&self, only: Option<u32>, progress: &Progress) -> Result<String, String> {
        self.json(&self.diagnosis(only, progress)?, only)
    }

    fn json(&self, report: &Diagnosis, only: Option<u32>) -> Result<String, String> {
        let facts = status::facts(&self.node.preflight);
        let kernel = KernelSummary { facts: &facts, findings: &self.node.findings };
        json::document(report, kernel, only).map_err(|error| error.to_string())
    }
}

/// The process of a PID: a thread means its process. One that has ended may still be in KFD.
///
/// # Errors
/// Why that cannot be read.
pub fn process_of(roots: &Roots, pid: u32) -> Result<u32, String> {
    match process::tgid_of(&roots.procfs, pid) {
        Err(ProcessError::Gone { .. }) => Ok(pid),
        found => found.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests;
