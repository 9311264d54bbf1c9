//! `kfd-trace hw`: hardware queues, by the driver's dumps in debugfs or copies of them.

use crate::attribute::{Topology, process};
use crate::hw::{Generation, HqdFile, HwReport, MqdFile, MqdQueue, Names, json, report, text};
use crate::kernel::Roots;
use crate::runtime::exit::Stop;
use crate::runtime::privilege::{self, Reads};
use crate::tracer::debugfs;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// What is requested.
#[derive(Clone, Debug)]
pub struct HwOptions {
    pub mqds: Option<PathBuf>,
    /// `Some(None)`: of this machine.
    pub hqds: Option<Option<PathBuf>>,
    /// Read this machine's slots twice, so long after each other.
    pub interval: Option<Duration>,
    pub gfx: Option<Generation>,
    pub pid: Option<u32>,
    pub json: bool,
}

/// Files to read.
struct Paths {
    mqds: Option<PathBuf>,
    hqds: Option<PathBuf>,
}

/// Prints the report.
///
/// # Errors
/// A file that cannot be read or is no dump, a generation that is not known, or output that cannot be written.
pub fn run(roots: &Roots, options: &HwOptions) -> Result<(), Stop> {
    let copies = options.mqds.is_some() || matches!(options.hqds, Some(Some(_)));
    let paths = paths(roots, options, copies)?;
    if !copies {
        privilege::give_up(roots, Reads { debugfs: true, ..Reads::default() })?;
    }
    let topology = if copies { Topology::default() } else { Topology::read(&roots.sysfs) };
    let first = sample(&paths, &topology, options.gfx)?;
    let mut report = match options.interval {
        None => first,
        Some(interval) => {
            let start = Instant::now();
            thread::sleep(interval);
            let mut second = sample(&paths, &topology, options.gfx)?;
            second.compare(&first, start.elapsed());
            second
        }
    };
    // As people count them; without a topology the dump has its order.
    report.gpus.sort_by_key(|gpu| topology.order(gpu.gpu_id));
    report.queues.sort_by_key(|queue| topology.order(queue.gpu_id));
    report.faults.sort_by_key(|fault| topology.order(fault.gpu_id));
    if let Some(pid) = options.pid {
        report.queues.retain(|queue| queue.pid == Some(pid));
        report.faults.retain(|fault| fault.pid == Some(pid));
    }
    let called = Called { topology: &topology, procfs: (!copies).then_some(&roots.procfs) };
    match print(&report, &called, options.json) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Stop::failed(error)),
        _ => Ok(()),
    }
}

fn paths(roots: &Roots, options: &HwOptions, copies: bool) -> Result<Paths, Stop> {
    let HwOptions { mqds, hqds, interval, gfx, .. } = options;
    if copies && *hqds == Some(None) {
        return Err(Stop::usage(
            "--hqds takes a file where --mqds has one: this machine's slots are not those of the copy",
        ));
    }
    if copies && interval.is_some() {
        return Err(Stop::usage(
            "--interval reads this machine's slots twice: it cannot be used with copies",
        ));
    }
    if copies {
        return Ok(Paths { mqds: mqds.clone(), hqds: hqds.clone().flatten() });
    }
    if gfx.is_some() {
        return Err(Stop::usage("--gfx is for copies: this machine's sysfs has its GPUs"));
    }
    // Only slots show whether a queue moves: memory has what was saved last.
    let slots = hqds.is_some() || interval.is_some();
    Ok(Paths { mqds: Some(debugfs::path(roots, "mqds")), hqds: slots.then(|| debugfs::path(roots, "hqds")) })
}

fn sample(paths: &Paths, topology: &Topology, gfx: Option<Generation>) -> Result<HwReport, Stop> {
    // The slots last: what they show is then the newer.
    let mqds = paths.mqds.as_ref().map(|path| dump(path).map(|text| MqdFile::parse(&text))).transpose()?;
    let hqds = paths.hqds.as_ref().map(|path| dump(path).map(|text| HqdFile::parse(&text))).transpose()?;
    let generation =
        |queue: &MqdQueue| match topology.gpu(queue.gpu_id).and_then(|gpu| gpu.gfx_target_version) {
            Some(version) => Generation::of_target(version).map(|known| (queue.gpu_id, Some(known))),
            None => Ok((queue.gpu_id, gfx)),
        };
    let strange = |empty: bool, lines: usize| empty && lines > 0;
    if mqds.as_ref().is_some_and(|file| strange(file.processes.is_empty(), file.strange.lines)) {
        return Err(Stop::failed("this is no copy of debugfs kfd/mqds: it has no process"));
    }
    if hqds.as_ref().is_some_and(|file| strange(file.gpus.is_empty(), file.strange.lines)) {
        return Err(Stop::failed("this is no copy of debugfs kfd/hqds: it has no GPU"));
    }
    let queues = mqds.iter().flat_map(|file| &file.queues);
    let generations: BTreeMap<u32, Option<Generation>> =
        queues.map(generation).collect::<Result<_, _>>().map_err(Stop::failed)?;
    let known = |gpu_id| generations.get(&gpu_id).copied().flatten();
    Ok(report(mqds.as_ref(), hqds.as_ref(), known))
}

fn print(report: &HwReport, names: &Called<'_>, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json { json::json(&mut out, report, names) } else { text::text(&mut out, report, names) }
}

fn dump(path: &Path) -> Result<String, Stop> {
    debugfs::read(path).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::NotFound if path.starts_with("/sys") => {
                "there is none: mount debugfs, and load a driver that was built with it (CONFIG_DEBUG_FS)"
                    .to_owned()
            }
            ErrorKind::PermissionDenied => format!("{error}: run as root, or with CAP_DAC_READ_SEARCH"),
            _ => error.to_string(),
        };
        Stop::failed(format!("{} cannot be read: {why}", path.display()))
    })
}

struct Called<'a> {
    topology: &'a Topology,
    /// `None`: the dump is of another machine, or of another time.
    procfs: Option<&'a PathBuf>,
}

impl Names for Called<'_> {
    fn gpu(&self, gpu_id: u32) -> String {
        self.topology.gpu(gpu_id).map_or_else(|| gpu_id.to_string(), |gpu| gpu.index.to_string())
    }

    fn gpu_in_full(&self, gpu_id: u32) -> String {
        // Decimal as everywhere else, and hexadecimal as the dumps have it.
        self.topology.label(gpu_id).unwrap_or_else(|| format!("gpu_id {gpu_id} ({gpu_id:x})"))
    }

    fn process(&self, pid: u32) -> Option<String> {
        process::identify(self.procfs?, pid, None).ok().map(|who| who.comm)
    }
}
