//! A running tracer: loaded object, attached probes, their verdicts. Dropping it detaches everything.

use super::facts::{Facts, Functions};
use super::load::{self, LoadError};
use super::maps;
use super::plan::{self, Ask};
use crate::events::event::ProcessId;
use crate::events::layout::QueueLayout;
use crate::events::tables::Tables;
use crate::verdict::{ProbeStatus, Verdict};
use aya::Ebpf;
use aya::maps::{HashMap, MapData, RingBuf};
use aya::programs::Program;
use kfd_trace_common::limits::{FILTER_MAX, RING_BYTES};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    pub ask: Ask,
    /// tgids of the initial PID namespace; empty for every process.
    pub pids: Vec<u32>,
    /// Size of the ring buffer, a power of two and a multiple of the page size.
    pub ring_bytes: u32,
    /// CPUs that the kernel makes room for in per-CPU maps.
    pub possible_cpus: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { ask: Ask::default(), pids: Vec::new(), ring_bytes: RING_BYTES, possible_cpus: 1 }
    }
}

/// The running tracer.
pub struct Session {
    ebpf: Ebpf,
    probes: Vec<ProbeStatus>,
    layout: QueueLayout,
}

impl Session {
    /// Plans, loads and attaches. Probes that cannot be had are told by their verdicts, not by an error.
    ///
    /// # Errors
    /// When the maps cannot be made: then nothing can be traced.
    pub fn start(functions: &impl Functions, facts: &Facts, options: &Options) -> Result<Self, LoadError> {
        let plan = plan::plan(functions, facts, options.ask);
        let mut ebpf = load::object(&plan, facts, options)?;
        fill_filter(&mut ebpf, &options.pids)?;
        let probes = plan.rows.into_iter().map(|row| load::row(&mut ebpf, row)).collect();
        Ok(Session { ebpf, probes, layout: facts.layout.clone() })
    }

    /// The verdict on every probe of the table.
    #[must_use]
    pub fn probes(&self) -> &[ProbeStatus] {
        &self.probes
    }

    /// Something at all can be seen: one of the required probes is attached.
    #[must_use]
    pub fn sees_something(&self) -> bool {
        let attached =
            |probe: &&ProbeStatus| matches!(probe.verdict, Verdict::Attached | Verdict::Partly { .. });
        self.probes.iter().filter(|probe| probe.required).any(|probe| attached(&probe))
    }

    /// How this kernel lays out what the records carry.
    #[must_use]
    pub fn layout(&self) -> &QueueLayout {
        &self.layout
    }

    /// The ring buffer; it can be taken once.
    ///
    /// # Errors
    /// When it was taken already.
    pub fn take_ring(&mut self) -> Result<RingBuf<MapData>, LoadError> {
        let map = self.ebpf.take_map("EVENTS").ok_or(LoadError::NoMap("EVENTS"))?;
        RingBuf::try_from(map).map_err(|error| LoadError::Map { map: "EVENTS", why: load::chain(&error) })
    }

    /// The lines of the BPF side; only a debug build has them, and they can be taken once.
    #[cfg(debug_assertions)]
    pub fn take_log(&mut self) -> Option<aya_log::EbpfLogger<&'static dyn log::Log>> {
        aya_log::EbpfLogger::init(&mut self.ebpf).ok()
    }

    /// Reads all sums and counters.
    ///
    /// # Errors
    /// When the kernel refuses the reading of a map.
    pub fn tables(&self) -> Result<Tables, LoadError> {
        maps::read(&self.ebpf)
    }

    /// Takes all probes off. Maps and ring stay.
    pub fn detach(&mut self) {
        for (_, program) in self.ebpf.programs_mut() {
            if let Program::KProbe(probe) = program {
                // A program that was never loaded has nothing to take off.
                let _ = probe.unload();
            }
        }
    }

    /// Makes room: drops the sums of a process that has ended and whose rows were read.
    ///
    /// # Errors
    /// When the kernel refuses the change of a map.
    pub fn retire(&mut self, process: ProcessId) -> Result<(), LoadError> {
        maps::retire(&mut self.ebpf, process)
    }
}

fn fill_filter(ebpf: &mut Ebpf, pids: &[u32]) -> Result<(), LoadError> {
    const MAP: &str = "FILTER";
    let map = ebpf.map_mut(MAP).ok_or(LoadError::NoMap(MAP))?;
    let error = |why: String| LoadError::Map { map: MAP, why };
    let mut filter: HashMap<_, u32, u8> = HashMap::try_from(map).map_err(|e| error(load::chain(&e)))?;
    for pid in pids {
        let full = |e| error(format!("{} (at most {FILTER_MAX} PIDs)", load::chain(&e)));
        filter.insert(pid, 1, 0).map_err(full)?;
    }
    Ok(())
}
