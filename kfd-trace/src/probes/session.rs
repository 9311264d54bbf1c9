//! A running tracer: loaded object, attached probes, their verdicts. Dropping it detaches everything.

use super::attach::{self, LinkRoom, Links};
use super::error::{LoadError, chain};
use super::events::ReturnEvents;
use super::facts::Facts;
use super::functions::Functions;
use super::load::{self, Options, Room};
use super::maps::SharedMaps;
use super::maps::mapped::Mapped;
use super::maps::missed::WatchedProbes;
use super::mqds::{Arrivals, MqdWalk};
use super::narrow::{self, Unused};
use super::plan::{self, CallSession, Planned};
use super::refusal;
use super::walk;
use super::walk::peek::{self, KernelReader};
use crate::events::decode::Maker;
use crate::events::tables::Tables;
use crate::kernel::bpf_info::InfoLayout;
use crate::kernel::thread;
use crate::model::event::ProcessId;
use crate::model::ioctl::Named;
use crate::model::missed::Missed;
use crate::model::runlist::Callers;
use crate::model::verdict::{ProbeStatus, Verdict, all_see};
use aya::Ebpf;
use aya::maps::{HashMap, MapData, RingBuf};
use aya::programs::{KProbe, Program};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::limits::FILTER_MAX;
use kfd_trace_common::process::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The running tracer.
pub struct Session {
    ebpf: Ebpf,
    shared: SharedMaps,
    planned: Vec<Planned>,
    probes: Vec<ProbeStatus>,
    links: Links,
    /// `None` if it is not known which MQD functions are in use.
    mqds: Option<MqdWalk>,
    /// Functions that are attached once a GPU uses them.
    unused: Vec<Unused>,
    arrivals: Arrivals,
    maker: Maker,
    /// Queues cannot be probed: they are followed by the ioctls alone.
    named: Named,
    queues_by_ioctl: bool,
    /// The return of `kfd_ioctl` itself is planned to be probed, and once that is attached, is.
    whole_calls: bool,
    /// Results of the program that reads kernel memory, if it is loaded.
    answer: Option<Mapped>,
    misses: Option<InfoLayout>,
    call_session: Option<CallSession>,
    /// The offset of a process's leader in its structure is known.
    leader_known: bool,
    watched: WatchedProbes,
    procfs: PathBuf,
}

impl Session {
    /// Plans and loads; nothing is attached yet.
    ///
    /// # Errors
    /// If the maps cannot be created: then nothing can be traced.
    pub fn load(
        functions: &impl Functions,
        facts: &Facts,
        options: &Options,
        events: ReturnEvents,
    ) -> Result<Self, LoadError> {
        let plan = plan::plan(functions, facts, &options.request);
        let callers = if options.request.choice.runlists { functions.callers() } else { Callers::default() };
        let mut ebpf = load::object(&plan, facts, options, Room::Full)?;
        fill_filter(&mut ebpf, options.selected.tgids())?;
        // Without it only the walk over existing queues is missing, and that is reported where it is tried.
        let answer = peek::load_program(&mut ebpf).ok();
        let memory = answer.as_ref().map(|answer| KernelReader { ebpf: &ebpf, answer });
        if let Some(errno) = memory.and_then(|mut memory| refusal::no_command(functions, &mut memory)) {
            refusal::fill(&mut ebpf, errno)?;
        }
        let shared = SharedMaps::new(&mut ebpf)?;
        let room = LinkRoom { cpus: options.possible_cpus, returns: facts.return_room };
        let links = Links::new(&ebpf, options.request.choice.attach, room, events);
        Ok(Session {
            ebpf,
            shared,
            planned: plan.rows,
            probes: Vec::new(),
            links,
            mqds: facts.mqds.clone(),
            unused: Vec::new(),
            arrivals: Arrivals::default(),
            maker: Maker { layout: facts.layout.clone(), callers },
            named: plan.named,
            queues_by_ioctl: plan.queues_by_ioctl,
            whole_calls: plan.whole_calls,
            answer,
            misses: facts.misses,
            call_session: plan.session,
            leader_known: matches!(facts.fields.get(LEADER), Some(Ok(_))),
            watched: WatchedProbes::default(),
            procfs: options.procfs.clone(),
        })
    }

    /// Attaches what was planned. Probes that cannot be attached are reported in their verdicts, not as an
    /// error.
    pub fn attach(&mut self) {
        let used = self.functions_in_use();
        let narrowed =
            std::mem::take(&mut self.planned).into_iter().map(|row| narrow::narrow(row, used.as_ref()));
        let (planned, unused): (Vec<Planned>, Vec<Option<Unused>>) = narrowed.unzip();
        self.unused.extend(unused.into_iter().flatten());
        if let Some(call) = self.call_session {
            self.links.session(&planned, call);
        }
        self.links.together(&planned);
        for planned in planned {
            self.probes.push(attach::row(&mut self.ebpf, &mut self.links, planned));
        }
        self.whole_calls &= self.sees(&[ProbeId::IoctlReturn]);
        let seen = |id| self.probes.iter().any(|probe| probe.id == id && probe.verdict == Verdict::Attached);
        if sees_files(seen, self.leader_known)
            && let Err(error) = self.shared.remember(&self.ebpf)
        {
            log::warn!("the process of each ioctl is looked up at every call, which is slower: {error}");
        }
        self.watch();
    }

    fn watch(&mut self) {
        self.watched = WatchedProbes::new(
            &self.watched,
            &self.ebpf,
            &self.links,
            &self.probes,
            self.misses,
            &self.procfs,
        );
    }

    /// MQD functions that the GPUs of this machine use; `None` if unknown.
    fn functions_in_use(&self) -> Option<BTreeSet<u64>> {
        self.mqds.as_ref()?.run(&mut self.memory()?)
    }

    /// Attaches to the functions of GPUs that were added since; returns how many functions were added. Must
    /// be called once a second. `generation`: the driver's count of changes of its topology.
    pub fn follow_gpus(&mut self, generation: Option<u32>) -> usize {
        if self.unused.is_empty() || !self.arrivals.due(generation) {
            return 0;
        }
        let used = self.arrivals.looked(self.functions_in_use());
        let mut added = 0;
        for unused in &mut self.unused {
            let now = unused.take(used.as_ref());
            let status = self.probes.iter_mut().find(|probe| probe.id == unused.row.id);
            let Some(status) = status.filter(|_| !now.is_empty()) else { continue };
            let strangers = unused.strangers(status);
            let (places, verdict) =
                attach::places(&mut self.ebpf, &mut self.links, unused.row, &now, strangers);
            narrow::add(status, &now, places, verdict);
            added += places;
        }
        self.unused.retain(|unused| !unused.is_empty());
        if added > 0 {
            self.watch();
        }
        added
    }

    /// Kernel memory, for the walk over existing processes and queues.
    #[must_use]
    pub fn memory(&self) -> Option<KernelReader<'_>> {
        Some(KernelReader { ebpf: &self.ebpf, answer: self.answer.as_ref()? })
    }

    /// The number of an existing process: the BPF side and the daemon use the same one. `wanted`: it is selected.
    ///
    /// # Errors
    /// If the table of processes is full.
    pub fn number(
        &mut self,
        found: &walk::TableEntry,
        mono_ns: u64,
        wanted: bool,
    ) -> Result<ProcessId, LoadError> {
        let fresh = Entry {
            id: unique(mono_ns),
            leader: found.leader,
            tgid: found.process.tgid,
            wanted: u32::from(wanted),
            releasing: 0,
            pasid: found.pasid,
        };
        self.shared.number(&mut self.ebpf, found.address, fresh)
    }

    /// The number of an existing process, if the BPF side has seen it.
    #[must_use]
    pub fn known(&self, found: &walk::TableEntry) -> Option<ProcessId> {
        self.shared.known(&self.ebpf, found.address).ok().flatten()
    }

    /// The verdict on every probe of the table.
    #[must_use]
    pub fn probes(&self) -> &[ProbeStatus] {
        &self.probes
    }

    /// Why nothing can be seen; `None` where one of the required probes is attached.
    #[must_use]
    pub fn blindness(&self) -> Option<String> {
        let mut required = self.probes.iter().filter(|probe| probe.required);
        if required.clone().any(|probe| probe.verdict.sees()) {
            return None;
        }
        let why = required.find_map(|probe| {
            probe.verdict.reason().map(|why| format!("{}: {why}", probe.symbols.join(", ")))
        });
        Some(why.unwrap_or_else(|| "no function of the driver that could be probed".to_owned()))
    }

    /// Whether all of these probes are attached, at least to some of their functions.
    #[must_use]
    pub fn sees(&self, probes: &[ProbeId]) -> bool {
        all_see(self.probes(), probes)
    }

    /// Queues are followed by the records of their ioctls, since they cannot be probed.
    #[must_use]
    pub fn queues_by_ioctl(&self) -> bool {
        self.queues_by_ioctl
    }

    /// The driver's ioctls that have a name.
    #[must_use]
    pub fn named(&self) -> Named {
        self.named
    }

    /// What the records are decoded by.
    #[must_use]
    pub fn maker(&self) -> &Maker {
        &self.maker
    }

    /// The ring buffer; it can be taken once.
    ///
    /// # Errors
    /// If it was taken already.
    pub fn take_ring(&mut self) -> Result<RingBuf<MapData>, LoadError> {
        let map = self.ebpf.take_map("EVENTS").ok_or(LoadError::NoMap("EVENTS"))?;
        RingBuf::try_from(map).map_err(|error| LoadError::Map { map: "EVENTS", why: chain(&error) })
    }

    /// The log lines of the BPF side; only a debug build has them, and they can be taken once.
    #[cfg(debug_assertions)]
    pub fn take_log(&mut self) -> Option<aya_log::EbpfLogger<&'static dyn log::Log>> {
        aya_log::EbpfLogger::init(&mut self.ebpf).ok()
    }

    /// Reads all sums and counters.
    ///
    /// # Errors
    /// If the kernel refuses to read a map.
    pub fn tables(&self) -> Result<Tables, LoadError> {
        Ok(Tables { whole_calls: self.whole_calls, ..self.shared.read(&self.ebpf)? })
    }

    /// The part of [`Session::tables`] that is in mapped memory: no system call is made. Calls in progress
    /// and the calls of threads without a slot are missing.
    #[must_use]
    pub fn mapped_tables(&self) -> Tables {
        Tables { whole_calls: self.whole_calls, ..self.shared.mapped() }
    }

    /// What the kernel skipped, per probe that is or was attached.
    #[must_use]
    pub fn missed(&self) -> BTreeMap<ProbeId, Missed> {
        self.watched.read()
    }

    /// Runs of these probes that the kernel skipped, as far as it counts them.
    #[must_use]
    pub fn skipped(&self, probes: &[ProbeId]) -> u64 {
        self.watched.of(probes).filter_map(|(_, missed)| missed.counted()).sum()
    }

    /// Records that found the ring buffer full, all kinds together, plus what could not be recorded in the
    /// first place.
    #[must_use]
    pub fn unreported(&self) -> u64 {
        self.shared.unreported()
    }

    /// Detaches all probes. Maps and ring remain.
    pub fn detach(&mut self) {
        self.watched.release();
        // No further call is awaited by those of whose returns none is seen from here on.
        if let Some(Ok(entry)) = self.ebpf.program_mut(ProbeId::Ioctl.name()).map(<&mut KProbe>::try_from) {
            // One that was never loaded has nothing to detach.
            let _ = entry.unload();
        }
        self.links.release();
        for (_, program) in self.ebpf.programs_mut() {
            // A program that was never loaded has nothing to detach.
            let _ = match program {
                Program::KProbe(probe) => probe.unload(),
                Program::TracePoint(tracepoint) => tracepoint.unload(),
                _ => Ok(()),
            };
        }
    }

    /// Removes the identities of processes that have ended. Must be called before their rows are read for the
    /// last time.
    ///
    /// # Errors
    /// If the kernel refuses to change a map.
    pub fn forget(&mut self, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
        self.shared.forget(&self.ebpf, ended)
    }

    /// Frees room: drops everything of processes that have ended and whose rows were read.
    ///
    /// # Errors
    /// If the kernel refuses to change a map.
    pub fn retire(&mut self, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
        self.shared.retire(&self.ebpf, ended)
    }

    /// Frees the slots of threads that have ended, and removes what missed returns have left over, some seconds later;
    /// must be called once a second. Returns the processes whose release is over, and was not seen to return.
    ///
    /// # Errors
    /// If the kernel refuses to change a map.
    pub fn tidy(&mut self) -> Result<BTreeSet<ProcessId>, LoadError> {
        let ended = |tgid, tid| thread::has_ended(&self.procfs, tgid, tid);
        self.shared.tidy(&self.ebpf, ended, |tid| thread::is_idle(&self.procfs, tid))
    }
}

/// A field of [`kfd_trace_common::offset::FIELDS`].
const LEADER: &str = "KFD_PROCESS_LEAD_THREAD";

/// All that changes which process a file belongs to is seen: its opening, its release, and CREATE_PROCESS,
/// whose return is that of an ioctl. If the leader is known, the programs also cache whether a thread is of
/// the process, which exec may change.
fn sees_files(seen: impl Fn(ProbeId) -> bool, leader_known: bool) -> bool {
    let exec = leader_known.then_some(ProbeId::NotifierRelease);
    [ProbeId::Release, ProbeId::CreateProcess, ProbeId::IoctlReturn].into_iter().chain(exec).all(seen)
}

/// Numbers of the BPF side are made of the time and the CPU; no machine has a CPU with this number.
fn unique(mono_ns: u64) -> u64 {
    const NO_CPU: u64 = 0x3ff;
    mono_ns << 10 | NO_CPU
}

fn fill_filter(ebpf: &mut Ebpf, pids: &[u32]) -> Result<(), LoadError> {
    const MAP: &str = "FILTER";
    let map = ebpf.map_mut(MAP).ok_or(LoadError::NoMap(MAP))?;
    let error = |why: String| LoadError::Map { map: MAP, why };
    let mut filter: HashMap<_, u32, u8> = HashMap::try_from(map).map_err(|e| error(chain(&e)))?;
    for pid in pids {
        let full = |e| error(format!("{} (at most {FILTER_MAX} PIDs)", chain(&e)));
        filter.insert(pid, 1, 0).map_err(full)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_trace_common::offset::FIELDS;

    #[test]
    fn files_are_seen_only_by_all_of_their_probes() {
        let all = [ProbeId::Release, ProbeId::CreateProcess, ProbeId::IoctlReturn, ProbeId::NotifierRelease];
        for leader_known in [false, true] {
            assert!(sees_files(|id| all.contains(&id), leader_known));
            for missing in all {
                let needed = leader_known || missing != ProbeId::NotifierRelease;
                assert_eq!(sees_files(|id| id != missing, leader_known), !needed, "{missing:?}");
            }
        }
        assert!(FIELDS.iter().any(|field| field.global == LEADER));
    }
}
