//! What stands now, from the sources that need no probe: the kernel's own table of processes, and sysfs.

use super::clock;
use super::enrich;
use super::ground::chain;
use super::look::{Begun, Numbered, Walked};
use crate::attribute::kfd_sysfs::{Costly, KfdSysfs};
use crate::attribute::process::{self, ProcessInfo};
use crate::events::event::{Origin, ProcessId, QueueCreate, QueueType};
use crate::events::layout::QueueLayout;
use crate::kernel::{Kernel, Roots};
use crate::probes::facts::Facts;
use crate::probes::peek::Peek;
use crate::probes::session::Session;
use crate::probes::walk::{self, Standing, Walk};
use crate::state::{List, Read, Source, StandingProcess, State};
use std::path::Path;
use std::sync::Arc;

/// One process with its queues, as one source has it.
#[derive(Clone, Debug)]
pub struct Found {
    pub process: StandingProcess,
    /// What /proc told of it; `None` when it is gone, or not to be read.
    pub info: Option<ProcessInfo>,
    pub queues: Vec<QueueCreate>,
}

/// Walks the kernel's table of processes by a program of its own, with nothing attached.
///
/// # Errors
/// A line that says why it cannot be walked here.
pub fn walk(roots: &Roots, kernel: &Kernel, facts: &Facts) -> Result<Vec<Found>, String> {
    let walk = Walk::new(kernel, facts)?;
    let peek = Peek::open().map_err(|error| chain(&error))?;
    let Standing { processes, broken } = walk.run(&mut peek.memory());
    tell_broken(broken);
    Ok(processes.into_iter().map(|standing| found(roots, standing, None)).collect())
}

fn tell_broken(broken: u32) {
    if broken > 0 {
        log::warn!("{broken} entries of the kernel's process table changed while they were read");
    }
}

fn found(roots: &Roots, standing: walk::StandingProcess, id: Option<ProcessId>) -> Found {
    let (process, info) = known(&roots.procfs, standing.tgid, standing.start_boottime_ns);
    let process = StandingProcess { id, context_id: standing.context_id, ..process };
    Found { process, info, queues: standing.queues }
}

/// Reads KFD's sysfs. Types are named by the kernel's own enum, where its BTF tells it.
#[must_use]
pub fn sysfs(roots: &Roots, layout: &QueueLayout) -> Vec<Found> {
    read_sysfs(roots, layout).0
}

/// The same, and whether all of it could be read.
fn read_sysfs(roots: &Roots, layout: &QueueLayout) -> (Vec<Found>, bool) {
    let sysfs = KfdSysfs::read(&roots.sysfs, Costly::default());
    for error in &sysfs.errors {
        log::warn!("cannot read {}: {}", error.path.display(), error.why);
    }
    let found = sysfs.processes.into_iter().map(|listed| {
        let (process, info) = known(&roots.procfs, listed.tgid, None);
        let queues = listed.queues.iter().map(|queue| QueueCreate {
            queue_id: Some(queue.queue_id),
            gpu_id: queue.gpu_id,
            // sysfs does not tell AQL apart, and without the enum a number has no meaning.
            queue_type: queue.queue_type_raw.map(|raw| layout.queue_type(raw)).filter(known_type),
            ring_size: queue.size,
            ..QueueCreate::untold(Origin::Standing)
        });
        let process = StandingProcess { context_id: listed.context_id, ..process };
        Found { process, info, queues: queues.collect() }
    });
    (found.collect(), sysfs.errors.is_empty())
}

fn known_type(kind: &QueueType) -> bool {
    !matches!(kind, QueueType::Unknown(_))
}

fn known(procfs: &Path, tgid: u32, start: Option<u64>) -> (StandingProcess, Option<ProcessInfo>) {
    let info = process::read(procfs, tgid, start).ok();
    let told = info.as_ref();
    let process = StandingProcess {
        id: None,
        tgid,
        context_id: None,
        start_boottime_ns: start.or(told.map(|info| info.start_boottime_ns)),
        ns_tgid: told.and_then(|info| info.ns_pids.last().copied()),
        uid: told.map(|info| info.uid),
        comm: told.map(|info| info.comm.clone()),
        cgroup_leaf: None,
    };
    (process, info)
}

/// Puts what stands into a state.
pub fn adopt(state: &mut State, found: &[Found], source: Source, read: Read) {
    for Found { process, info, queues } in found {
        let key = state.adopt_process(read, process, source);
        if let Some(info) = info {
            state.enrich(key, enrich::of(info));
        }
        for queue in queues {
            state.adopt_queue(key, read, queue, source);
        }
    }
}

/// What stands, for a session: the same numbers for both sides.
pub struct Standings {
    pub(super) roots: Roots,
    pub(super) layout: QueueLayout,
    /// Or why the kernel's table cannot be walked here.
    pub(super) walk: Result<Walk, String>,
    /// Empty for all.
    pub(super) tgids: Vec<u32>,
}

impl Standings {
    #[must_use]
    pub fn new(roots: &Roots, kernel: &Kernel, facts: &Facts, tgids: &[u32]) -> Self {
        let walk = Walk::new(kernel, facts);
        Standings { roots: roots.clone(), layout: facts.layout.clone(), walk, tgids: tgids.to_vec() }
    }

    fn walked(&self, session: &Session) -> Result<Standing, String> {
        let walk = self.walk.as_ref().map_err(Clone::clone)?;
        let mut memory = session.memory().ok_or("the kernel refused the program that reads its memory")?;
        Ok(walk.run(&mut memory))
    }

    /// Numbers what stands before the probes are attached, so that an open by a standing process is not taken for
    /// its creation.
    pub fn number(&self, session: &mut Session) {
        for (process, mono_ns) in
            self.walked(session).unwrap_or_default().processes.iter().zip(clock::mono_ns()..)
        {
            if let Err(error) = session.number(process, mono_ns) {
                log::warn!("process {}: {}", process.tgid, chain(&error));
            }
        }
    }

    /// Begins a look: walks the kernel's own table, only where that is asked for. Numbers are only looked up: a process may be
    /// freed since, and its address be another one's.
    pub(super) fn begin(self: &Arc<Self>, session: &Session, walk: bool, topology: bool) -> Begun {
        Begun::new(self.clone(), self.kernel(session, walk), topology)
    }

    fn kernel(&self, session: &Session, asked: bool) -> Walked<Numbered> {
        let (Ok(walk), Some(mut memory)) = (&self.walk, session.memory()) else { return Walked::Impossible };
        if !asked {
            return Walked::NotAsked;
        }
        let from_ns = clock::mono_ns();
        let standing = walk.run(&mut memory);
        let read = Read { from_ns, until_ns: clock::mono_ns() };
        if standing.broken > 0 {
            return Walked::Broke;
        }
        let asked = standing.processes.into_iter().filter(|process| self.asked(process.tgid));
        let numbered = asked.map(|process| {
            let id = session.known(&process);
            (process, id)
        });
        Walked::Told((read, numbered.collect()))
    }

    /// What a walk read, with what procfs tells.
    pub(super) fn found(&self, numbered: Vec<(walk::StandingProcess, Option<ProcessId>)>) -> Vec<Found> {
        numbered.into_iter().map(|(process, id)| found(&self.roots, process, id)).collect()
    }

    /// `None` where it could not be read whole.
    pub(super) fn listed(&self) -> Option<Vec<Found>> {
        let (found, whole) = read_sysfs(&self.roots, &self.layout);
        whole.then(|| found.into_iter().filter(|one| self.asked(one.process.tgid)).collect())
    }

    fn numbered(&self, session: &mut Session, standing: Standing, mono_ns: u64) -> Vec<Found> {
        let asked = standing.processes.into_iter().filter(|process| self.asked(process.tgid));
        let numbered = asked.zip(mono_ns..).map(|(process, mono_ns)| {
            let id = session.number(&process, mono_ns).ok();
            (process, id)
        });
        self.found(numbered.collect())
    }

    /// Puts all that stands into a state: addresses from the kernel, where it can be walked, and what sysfs lists.
    /// Gives the reason where queues stand and the kernel cannot be walked.
    pub fn adopt(&self, session: &mut Session, state: &mut State) -> Option<String> {
        let from_ns = clock::mono_ns();
        let walked = self.walked(session);
        let (listed, _) = read_sysfs(&self.roots, &self.layout);
        let listed: Vec<Found> = listed.into_iter().filter(|one| self.asked(one.process.tgid)).collect();
        let read = Read { from_ns, until_ns: clock::mono_ns() };
        let why = match walked {
            Ok(standing) => {
                tell_broken(standing.broken);
                let numbered = self.numbered(session, standing, read.until_ns);
                adopt(state, &numbered, Source::Kernel, read);
                None
            }
            Err(why) => Some(why).filter(|_| listed.iter().any(|one| !one.queues.is_empty())),
        };
        adopt(state, &listed, Source::Sysfs, read);
        why
    }

    fn asked(&self, tgid: u32) -> bool {
        self.tgids.is_empty() || self.tgids.contains(&tgid)
    }
}

pub(super) fn list(source: Source, read: Read, found: Vec<Found>) -> List {
    List { source, read, processes: found.into_iter().map(|one| (one.process, one.queues)).collect() }
}
