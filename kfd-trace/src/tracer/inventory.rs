//! The existing processes and queues, from the sources that need no probe: the kernel's own table of
//! processes, and sysfs.

use super::enrich;
use super::preflight::chain;
use crate::attribute::Unreadable;
use crate::attribute::driver_sysfs::{KfdSysfs, SysfsProcess};
use crate::attribute::process::{self, Identity};
use crate::kernel::{Kernel, Roots};
use crate::model::event::{Origin, ProcessId, QueueCreate, QueueType};
use crate::model::layout::QueueLayout;
use crate::probes::facts::Facts;
use crate::probes::session::Session;
use crate::probes::walk::peek::Peek;
use crate::probes::walk::{self, Standing, Walk};
use crate::runtime::clock;
use crate::state::{ProcessDetails, Read, Source, StandingProcess, State};

/// One process with its queues, from one source.
#[derive(Clone, Debug)]
pub struct Found {
    pub process: StandingProcess,
    /// What /proc reports of it; `None` if it has ended or cannot be read.
    pub details: Option<ProcessDetails>,
    pub queues: Vec<QueueCreate>,
}

/// Walks the kernel's table of processes with a program of its own; nothing is attached.
///
/// # Errors
/// One line: why it cannot be walked here.
pub fn walk(roots: &Roots, kernel: &Kernel, facts: &Facts) -> Result<Vec<Found>, String> {
    let walk = Walk::new(kernel, facts)?;
    let peek = Peek::open().map_err(|error| chain(&error))?;
    let Standing { processes, broken, at_work: _ } = walk.run(&mut peek.memory());
    tell_broken(broken);
    Ok(processes.into_iter().map(|standing| found(roots, standing, None)).collect())
}

fn tell_broken(broken: u32) {
    if broken > 0 {
        log::warn!("{broken} entries of the kernel's process table changed while they were read");
    }
}

fn found(roots: &Roots, standing: walk::StandingProcess, id: Option<ProcessId>) -> Found {
    let start = standing.start_boottime_ns;
    let info = process::read(&roots.procfs, standing.tgid, start).ok();
    let who = info.as_ref().map(|info| &info.who);
    let process = process_of(standing.tgid, standing.context_id, start, who);
    let details = info.map(|info| enrich::of(roots, &info));
    Found { process: StandingProcess { id, ..process }, details, queues: standing.queues }
}

/// Reads KFD's sysfs, and returns what of it could not be read. Types are named by the kernel's own enum, if
/// its BTF has it.
#[must_use]
pub fn sysfs(roots: &Roots, layout: &QueueLayout) -> (Vec<Found>, Vec<Unreadable>) {
    let KfdSysfs { processes, errors, .. } = read_sysfs(roots);
    let found = processes.into_iter().map(|listed| {
        let info = process::read(&roots.procfs, listed.tgid, None).ok();
        let who = info.as_ref().map(|info| &info.who);
        let process = process_of(listed.tgid, listed.context_id, None, who);
        let details = info.map(|info| enrich::of(roots, &info));
        Found { process, details, queues: queues_of(layout, &listed) }
    });
    (found.collect(), errors)
}

pub(super) fn read_sysfs(roots: &Roots) -> KfdSysfs {
    let sysfs = KfdSysfs::queues(&roots.sysfs);
    for error in &sysfs.errors {
        log::warn!("cannot read {}: {}", error.path.display(), error.why);
    }
    sysfs
}

pub(super) fn queues_of(layout: &QueueLayout, listed: &SysfsProcess) -> Vec<QueueCreate> {
    let queues = listed.queues.iter().map(|queue| QueueCreate {
        queue_id: Some(queue.queue_id),
        gpu_id: queue.gpu_id,
        // sysfs does not distinguish AQL, and without the enum a number has no meaning.
        queue_type: queue.queue_type_raw.map(|raw| layout.queue_type(raw)).filter(known_type),
        ring_size: queue.size,
        ..QueueCreate::unknown(Origin::Standing)
    });
    queues.collect()
}

fn known_type(kind: &QueueType) -> bool {
    !matches!(kind, QueueType::Unknown(_))
}

/// `start`: if the source itself has it; `who`: what procfs reports of that process.
pub(super) fn process_of(
    tgid: u32,
    context_id: Option<u32>,
    start: Option<u64>,
    who: Option<&Identity>,
) -> StandingProcess {
    StandingProcess {
        id: None,
        tgid,
        context_id,
        start_boottime_ns: start.or(who.map(|who| who.start_boottime_ns)),
        ns_tgid: who.and_then(|who| who.ns_pids.last().copied()),
        uid: who.map(|who| who.uid),
        comm: who.map(|who| who.comm.clone()),
        cgroup_leaf: None,
    }
}

/// Adds what exists to a state.
pub fn adopt(state: &mut State, found: &[Found], source: Source, read: Read) {
    for Found { process, details, queues } in found {
        let key = state.adopt_process(read, process, source);
        if let Some(details) = details {
            state.enrich(key, details.clone());
        }
        for queue in queues {
            state.adopt_queue(key, read, queue, source);
        }
    }
}

/// What exists, for a session: both sides use the same numbers.
pub struct Standings {
    pub(crate) roots: Roots,
    pub(crate) layout: QueueLayout,
    /// Or why the kernel's table cannot be walked here.
    pub(crate) walk: Result<Walk, String>,
    /// Empty for all.
    pub(crate) tgids: Vec<u32>,
}

impl Standings {
    #[must_use]
    pub fn new(roots: &Roots, kernel: &Kernel, facts: &Facts, tgids: &[u32]) -> Self {
        let walk = Walk::new(kernel, facts);
        if walk.as_ref().is_ok_and(|walk| !walk.knows_locks()) {
            log::warn!(
                "locks of schedulers are not known here: what is reported late may count as a difference"
            );
        }
        Standings { roots: roots.clone(), layout: facts.layout.clone(), walk, tgids: tgids.to_vec() }
    }

    fn walked(&self, session: &Session) -> Result<Standing, String> {
        let walk = self.walk.as_ref().map_err(Clone::clone)?;
        let mut memory = session.memory().ok_or("the kernel refused the program that reads its memory")?;
        Ok(walk.run(&mut memory))
    }

    /// Assigns numbers to existing processes before the probes are attached, so that an open by an existing
    /// process is not taken for its creation.
    pub fn number(&self, session: &mut Session) {
        for (process, mono_ns) in
            self.walked(session).unwrap_or_default().processes.iter().zip(clock::mono_ns()..)
        {
            if let Err(error) = session.number(process, mono_ns) {
                log::warn!("process {}: {}", process.tgid, chain(&error));
            }
        }
    }

    fn numbered(&self, session: &mut Session, standing: Standing, mono_ns: u64) -> Vec<Found> {
        let asked = standing.processes.into_iter().filter(|process| self.asked(process.tgid));
        let numbered = asked.zip(mono_ns..).map(|(process, mono_ns)| {
            let id = session.number(&process, mono_ns).ok();
            (process, id)
        });
        numbered.map(|(process, id)| found(&self.roots, process, id)).collect()
    }

    /// Adds everything that exists to a state: addresses from the kernel, if it can be walked, and what sysfs
    /// lists. Returns the reason if queues exist and the kernel cannot be walked.
    pub fn adopt(&self, session: &mut Session, state: &mut State) -> Option<String> {
        let from_ns = clock::mono_ns();
        let walked = self.walked(session);
        let listed = sysfs(&self.roots, &self.layout).0.into_iter();
        let listed: Vec<Found> = listed.filter(|one| self.asked(one.process.tgid)).collect();
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

    pub(super) fn asked(&self, tgid: u32) -> bool {
        self.tgids.is_empty() || self.tgids.contains(&tgid)
    }
}
