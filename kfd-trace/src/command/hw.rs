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

/// What is requested.
#[derive(Clone, Debug)]
pub struct HwOptions {
    pub mqds: Option<PathBuf>,
    /// `Some(None)`: of this machine.
    pub hqds: Option<Option<PathBuf>>,
    pub gfx: Option<Generation>,
    pub pid: Option<u32>,
    pub json: bool,
}

/// Prints the report.
///
/// # Errors
/// A file that cannot be read or is no dump, a generation that is not known, or output that cannot be written.
pub fn run(roots: &Roots, options: &HwOptions) -> Result<(), Stop> {
    let copies = options.mqds.is_some() || matches!(options.hqds, Some(Some(_)));
    let (mqds, hqds) = match (copies, &options.hqds) {
        (true, Some(None)) => {
            return Err(Stop::usage(
                "--hqds takes a file where --mqds has one: this machine's slots are not those of the copy",
            ));
        }
        (true, hqds) => (options.mqds.clone(), hqds.clone().flatten()),
        (false, None) => (Some(debugfs::path(roots, "mqds")), None),
        (false, Some(_)) => (Some(debugfs::path(roots, "mqds")), Some(debugfs::path(roots, "hqds"))),
    };
    if !copies && options.gfx.is_some() {
        return Err(Stop::usage("--gfx is for copies: this machine's sysfs has its GPUs"));
    }
    if !copies {
        privilege::give_up(roots, Reads { debugfs: true, ..Reads::default() })?;
    }
    // The slots last: what they show is then the newer.
    let mqds = mqds.map(|path| dump(&path).map(|text| MqdFile::parse(&text))).transpose()?;
    let hqds = hqds.map(|path| dump(&path).map(|text| HqdFile::parse(&text))).transpose()?;
    let topology = if copies { Topology::default() } else { Topology::read(&roots.sysfs) };
    let generation =
        |queue: &MqdQueue| match topology.gpu(queue.gpu_id).and_then(|gpu| gpu.gfx_target_version) {
            Some(version) => Generation::of_target(version).map(|known| (queue.gpu_id, Some(known))),
            None => Ok((queue.gpu_id, options.gfx)),
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
    let mut report = report(mqds.as_ref(), hqds.as_ref(), known);
    report.gpus.sort_by_key(|gpu| topology.order(gpu.gpu_id));
    report.queues.sort_by_key(|queue| topology.order(queue.gpu_id));
    if let Some(pid) = options.pid {
        report.queues.retain(|queue| queue.pid == Some(pid));
    }
    let called = Called { topology: &topology, procfs: (!copies).then_some(&roots.procfs) };
    match print(&report, &called, options.json) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Stop::failed(error)),
        _ => Ok(()),
    }
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
        // As the dumps have it.
        self.topology.gpu(gpu_id).map_or_else(|| format!("{gpu_id:x}"), |gpu| gpu.index.to_string())
    }

    fn gpu_in_full(&self, gpu_id: u32) -> String {
        self.topology.label(gpu_id).unwrap_or_else(|| format!("gpu_id {gpu_id:x}"))
    }

    fn process(&self, pid: u32) -> Option<String> {
        process::identify(self.procfs?, pid, None).ok().map(|who| who.comm)
    }
}
