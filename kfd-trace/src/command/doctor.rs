//! `kfd-trace doctor`: reads every view once, and where something may be a change in progress, once more.

use super::{ps, status};
use crate::attribute::process::{self, ProcessError};
use crate::attribute::{Costly, KfdSysfs, Topology};
use crate::doctor::devices::{self, Devices};
use crate::doctor::read::{self, Real};
use crate::doctor::sampled::AllSampled;
use crate::doctor::seen::KfdProcesses;
use crate::doctor::text::KernelSummary;
use crate::doctor::{DoctorOutcome, Observed, diagnose, json, text};
use crate::kernel::{Capabilities, Capability, Finding, FindingSeverity, Kernel, Preflight, Roots, findings};
use crate::probes::facts::Facts;
use crate::runtime::exit::{self, Stop};
use crate::runtime::stderr::say;
use crate::state::{Process, Queue};
use crate::tracer::enrich;
use crate::tracer::inventory;
use crate::tracer::preflight::chain;
use crate::tracer::types;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Interval between two scans: the driver frees what a process had some time after its end, in less than that
/// if the GPU responds.
const SETTLES: Duration = Duration::from_secs(2);

/// Prints the report; the exit code is the result.
///
/// # Errors
/// If there is no driver, `pid` is no process, something is hidden or wrong, or the output cannot be written.
pub fn run(roots: &Roots, pid: Option<u32>, as_json: bool) -> Result<(), Stop> {
    let preflight = Preflight::read(roots);
    let found = findings(&preflight);
    if let Some(finding) = found.iter().find(|finding| finding.severity == FindingSeverity::NothingToTrace) {
        return Err(Stop { code: exit::NOTHING_TO_TRACE, line: finding.to_string() });
    }
    let driver = DriverAccess::read(roots, &found);
    let pid = pid.map(|pid| visible_pid(roots, pid)).transpose()?;
    let first = look(roots, &preflight, &driver, pid)?;
    let mut report = diagnose(&first, None, pid);
    if report.unsettled {
        std::thread::sleep(SETTLES);
        let second = look(roots, &preflight, &driver, pid)?;
        report = diagnose(&second, Some(&first), pid);
    }
    let facts = status::facts(&preflight);
    let kernel = KernelSummary { facts: &facts, findings: &found };
    let mut out = io::stdout().lock();
    let written = if as_json {
        json::json(&mut out, &report, kernel, pid)
    } else {
        text::text(&mut out, &report, kernel, pid.is_some())
    };
    match (written, report.outcome) {
        (Err(error), _) if error.kind() != ErrorKind::BrokenPipe => Err(Stop::failed(error)),
        (_, DoctorOutcome::Well) => Ok(()),
        (_, DoctorOutcome::Hidden) => {
            Err(Stop { code: exit::HIDDEN, line: "something is hidden from the usual checks".to_owned() })
        }
        (_, DoctorOutcome::Wrong) => Err(Stop { code: exit::WRONG, line: "something is wrong".to_owned() }),
    }
}

/// The requested process: a thread means its process. A process that has ended may still be in KFD.
fn visible_pid(roots: &Roots, pid: u32) -> Result<u32, Stop> {
    match process::tgid_of(&roots.procfs, pid) {
        Ok(tgid) => {
            if tgid != pid {
                say(format_args!("{pid} is a thread of process {tgid}: looking at that process"));
            }
            Ok(tgid)
        }
        Err(ProcessError::Gone { .. }) => Ok(pid),
        Err(error) => Err(Stop::usage(format!("--pid {pid}: {error}"))),
    }
}

/// What reading the driver's table requires, or why it cannot be read.
struct DriverAccess(Result<(Kernel, Facts), String>);

impl DriverAccess {
    fn read(roots: &Roots, found: &[Finding]) -> DriverAccess {
        if let Some(finding) = found.iter().find(|finding| finding.severity == FindingSeverity::Blocks) {
            return DriverAccess(Err(finding.what.clone()));
        }
        let known = types::known(roots).map_err(|error| chain(&error));
        DriverAccess(known.map(|known| (known.kernel, known.facts)))
    }

    /// The contents of the table, and the activity of its queues.
    fn table(&self, roots: &Roots) -> Result<(KfdProcesses, AllSampled), String> {
        let (kernel, facts) = self.0.as_ref().map_err(Clone::clone)?;
        let (mut all, mut sampled) = (KfdProcesses::new(), AllSampled::new());
        let existing = inventory::walk(roots, kernel, facts)?;
        let mut state = ps::state_of(&existing);
        ps::sample(roots, &mut state);
        let snapshot = state.snapshot();
        let place =
            |process: &Process, queue: &Queue| Some((process.tgid?, process.context_id, queue.queue_id));
        let activities: BTreeMap<_, _> = snapshot
            .queues()
            .filter_map(|(process, queue)| Some((place(process, queue)?, &queue.activity)))
            .collect();
        for process in &existing.processes {
            for queue in &process.queues {
                let place = queue.queue_id.map(|queue_id| (process.tgid, process.context_id, queue_id));
                let activity = place.and_then(|place| activities.get(&place).copied());
                sampled.entry(process.tgid).or_default().add(queue, activity);
            }
            let reported = process::check(&roots.procfs, process.tgid, process.start_boottime_ns);
            let reused = matches!(reported, Err(ProcessError::Reused { .. }));
            read::add_standing(&mut all, process.tgid, process.context_id, process.queues.len(), reused);
        }
        Ok((all, sampled))
    }
}

/// Reads all views.
fn look(
    roots: &Roots,
    preflight: &Preflight,
    driver: &DriverAccess,
    pid: Option<u32>,
) -> Result<Observed, Stop> {
    let devices = Devices::read(&roots.sysfs);
    let host_node = devices::host_node(&Real, &roots.procfs, devices.kfd);
    // A process that is created meanwhile is in the table first.
    let listed = KfdSysfs::read(&roots.sysfs, Costly::default());
    let sysfs = read::of_sysfs(&listed);
    let (kernel, sampled) = match driver.table(roots) {
        Ok((kernel, sampled)) => (Ok(kernel), Ok(sampled)),
        Err(why) => (Err(why.clone()), Err(why)),
    };
    let of_kfd: BTreeSet<u32> =
        sysfs.iter().flatten().chain(kernel.iter().flatten()).map(|(pid, _)| *pid).collect();
    let wanted = of_kfd.iter().copied().chain(pid).collect();
    let read = read::processes(&Real, &roots.procfs, &devices, host_node, &wanted, |info| {
        enrich::details_of(roots, info)
    });
    if let Some(pid) = pid.filter(|pid| !read.processes.contains_key(pid) && !of_kfd.contains(pid)) {
        return Err(Stop::usage(format!(
            "--pid {pid}: no such process. PIDs are those of the host; see `kfd-trace ps` for who uses KFD"
        )));
    }
    let may_see = |capabilities: Capabilities| capabilities.has(Capability::SysPtrace);
    Ok(Observed {
        device: devices.kfd,
        host_node,
        sysfs,
        kernel,
        sampled,
        processes: read.processes,
        looked_at: read.looked_at,
        closed: read.closed,
        hides: preflight.processes_hidden == Some(true) && !preflight.capabilities.is_some_and(may_see),
        chips: devices::chips(&roots.sysfs, &Topology::read(&roots.sysfs)),
    })
}
