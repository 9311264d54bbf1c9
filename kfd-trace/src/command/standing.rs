//! What stands now, from the sources that need no probe: the kernel's own table of processes, and sysfs.

use super::clock;
use super::enrich;
use super::ground::chain;
use crate::attribute::kfd_sysfs::{Costly, KfdSysfs};
use crate::attribute::process::{self, ProcessInfo};
use crate::events::event::{Origin, ProcessId, QueueCreate, QueueType};
use crate::events::layout::QueueLayout;
use crate::kernel::{Kernel, Roots};
use crate::probes::facts::Facts;
use crate::probes::peek::Peek;
use crate::probes::session::Session;
use crate::probes::walk::{self, Standing, Walk};
use crate::state::{Read, Source, StandingProcess, State};
use std::path::Path;

/// One process with its queues, as one source has it.
#[derive(Clone, Debug)]
pub struct Found {
    pub process: StandingProcess,
    /// What /proc told of it; `None` when it is gone, or not to be read.
    pub info: Option<ProcessInfo>,
    pub queues: Vec<QueueCreate>,
    /// sysfs lists it as a secondary context of its PID.
    pub secondary: bool,
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
    Found { process: StandingProcess { id, ..process }, info, queues: standing.queues, secondary: false }
}

/// Reads KFD's sysfs. Types are named by the kernel's own enum, where its BTF tells it.
#[must_use]
pub fn sysfs(roots: &Roots, layout: &QueueLayout) -> Vec<Found> {
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
            ring_address: None,
            ring_size: queue.size,
            write_pointer_address: None,
            read_pointer_address: None,
            doorbell_offset: None,
            priority: None,
            percent: None,
            sdma_engine_id: None,
            active: None,
            evicted: None,
            origin: Origin::Standing,
        });
        Found { process, info, queues: queues.collect(), secondary: listed.context_id.is_some() }
    });
    found.collect()
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
    for Found { process, info, queues, secondary: _ } in found {
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
pub struct Standings<'a> {
    roots: &'a Roots,
    layout: &'a QueueLayout,
    /// Or why the kernel's table cannot be walked here.
    walk: Result<Walk, String>,
    /// Empty for all.
    tgids: &'a [u32],
}

impl<'a> Standings<'a> {
    #[must_use]
    pub fn new(roots: &'a Roots, kernel: &Kernel, facts: &'a Facts, tgids: &'a [u32]) -> Self {
        Standings { roots, layout: &facts.layout, walk: Walk::new(kernel, facts), tgids }
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

    /// Puts all that stands into a state: addresses from the kernel, where it can be walked, and what sysfs lists.
    /// Gives the reason where queues stand and the kernel cannot be walked.
    pub fn adopt(&self, session: &mut Session, state: &mut State) -> Option<String> {
        let from_ns = clock::mono_ns();
        let walked = self.walked(session);
        let listed: Vec<Found> =
            sysfs(self.roots, self.layout).into_iter().filter(|one| self.asked(one)).collect();
        let read = Read { from_ns, until_ns: clock::mono_ns() };
        match walked {
            Ok(Standing { processes, broken }) => {
                tell_broken(broken);
                let numbered = processes.into_iter().zip(read.until_ns..).map(|(process, mono_ns)| {
                    let id = session.number(&process, mono_ns).ok();
                    found(self.roots, process, id)
                });
                let numbered: Vec<Found> = numbered.filter(|one| self.asked(one)).collect();
                adopt(state, &numbered, Source::Kernel, read);
                // sysfs knows contexts by other numbers, and their queue ids begin anew.
                let primary: Vec<Found> = listed.into_iter().filter(|one| !one.secondary).collect();
                adopt(state, &primary, Source::Sysfs, read);
                None
            }
            Err(why) => {
                adopt(state, &listed, Source::Sysfs, read);
                Some(why).filter(|_| listed.iter().any(|one| !one.queues.is_empty()))
            }
        }
    }

    fn asked(&self, found: &Found) -> bool {
        self.tgids.is_empty() || self.tgids.contains(&found.process.tgid)
    }
}
