//! What stands now, from the sources that need no probe: the kernel's own table of processes, and sysfs.

use super::clock;
use super::enrich;
use crate::attribute::kfd_sysfs::{Costly, KfdSysfs};
use crate::attribute::process::{self, ProcessInfo};
use crate::events::event::{Origin, QueueCreate, QueueType};
use crate::events::layout::QueueLayout;
use crate::kernel::{Kernel, Roots};
use crate::probes::facts::Facts;
use crate::probes::peek::Peek;
use crate::probes::walk::{Standing, Walk};
use crate::state::{Source, StandingProcess, State};
use std::path::Path;

/// One process with its queues, as one source has it.
#[derive(Clone, Debug)]
pub struct Found {
    pub process: StandingProcess,
    /// What /proc told of it; `None` when it is gone, or not to be read.
    pub info: Option<ProcessInfo>,
    pub queues: Vec<QueueCreate>,
}

/// Walks the kernel's table of processes.
///
/// # Errors
/// A line that says why it cannot be walked here.
pub fn walk(roots: &Roots, kernel: &Kernel, facts: &Facts) -> Result<Vec<Found>, String> {
    let walk = Walk::new(kernel, facts)?;
    let mut memory = Peek::open().map_err(|error| super::ground::chain(&error))?;
    let Standing { processes, broken } = walk.run(&mut memory);
    if broken > 0 {
        eprintln!("kfd-trace: {broken} entries of the kernel's process table changed while they were read");
    }
    let found = processes.into_iter().map(|standing| {
        let (process, info) = known(&roots.procfs, standing.tgid, standing.start_boottime_ns);
        Found { process, info, queues: standing.queues }
    });
    Ok(found.collect())
}

/// Reads KFD's sysfs. Types are named by the kernel's own enum, where its BTF tells it.
#[must_use]
pub fn sysfs(roots: &Roots, layout: &QueueLayout) -> Vec<Found> {
    let sysfs = KfdSysfs::read(&roots.sysfs, Costly::default());
    for error in &sysfs.errors {
        eprintln!("kfd-trace: cannot read {}: {}", error.path.display(), error.why);
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
            origin: Origin::Standing,
        });
        Found { process, info, queues: queues.collect() }
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
pub fn adopt(state: &mut State, found: &[Found], source: Source, at_ns: u64) {
    for Found { process, info, queues } in found {
        let key = state.adopt_process(at_ns, process, source);
        if let Some(info) = info {
            state.enrich(key, enrich::of(info));
        }
        for queue in queues {
            state.adopt_queue(key, at_ns, queue, source);
        }
    }
}

/// Puts all that stands into a state: addresses from the kernel, where it can be walked, and what sysfs lists;
/// of these processes only, if any are named. Gives the reason where the kernel cannot be walked.
pub fn adopt_all(
    state: &mut State,
    roots: &Roots,
    kernel: &Kernel,
    facts: &Facts,
    tgids: &[u32],
) -> Option<String> {
    let asked = |found: Vec<Found>| -> Vec<Found> {
        let asked = |one: &Found| tgids.is_empty() || tgids.contains(&one.process.tgid);
        found.into_iter().filter(asked).collect()
    };
    let at_ns = clock::mono_ns();
    let refused = match walk(roots, kernel, facts) {
        Ok(found) => {
            adopt(state, &asked(found), Source::Kernel, at_ns);
            None
        }
        Err(why) => Some(why),
    };
    let listed = asked(sysfs(roots, &facts.layout));
    adopt(state, &listed, Source::Sysfs, at_ns);
    refused.filter(|_| listed.iter().any(|found| !found.queues.is_empty()))
}
