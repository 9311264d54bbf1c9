//! The existing processes and queues, from the sources that need no probe: the kernel's own table of
//! processes, sysfs, and the driver's dump of MQDs.

use super::debugfs::{self, Dumped};
use super::enrich;
use super::preflight::chain;
use crate::attribute::driver_sysfs::{KfdSysfs, SysfsProcess};
use crate::attribute::process::{self, Identity};
use crate::attribute::{Topology, Unreadable};
use crate::kernel::{Kernel, Roots};
use crate::model::event::{Origin, ProcessId, QueueFacts, QueueType};
use crate::model::inventory::{Listed, ListedProcesses};
use crate::model::layout::QueueLayout;
use crate::model::selected::Selected;
use crate::probes::facts::Facts;
use crate::probes::session::Session;
use crate::probes::walk::peek::Peek;
use crate::probes::walk::{DriverTable, Walk};
use crate::runtime::clock;
use crate::state::{Inventory, ReadTimes, Source, State, StateLimits};
use crate::text::count::counted;

/// Walks the kernel's table of processes with a program of its own; nothing is attached.
///
/// # Errors
/// One line: why it cannot be walked here.
pub fn walk(roots: &Roots, kernel: &Kernel, facts: &Facts) -> Result<Inventory, String> {
    let walk = Walk::new(kernel, facts)?;
    let peek = Peek::open().map_err(|error| chain(&error))?;
    let from_ns = clock::mono_ns();
    let table = walk.run(&mut peek.memory());
    warn_broken(table.broken);
    let processes = table.entries.into_iter().map(|entry| entry.process).collect();
    let read = ReadTimes { from_ns, until_ns: clock::mono_ns() };
    Ok(detailed(roots, Inventory { processes, ..Inventory::empty(Source::Kernel, read) }))
}

pub(super) fn warn_broken(broken: u32) {
    if broken > 0 {
        log::warn!(
            "{} while the kernel's process table was read",
            counted(broken, "entry changed", "entries changed")
        );
    }
}

/// Reads KFD's sysfs, and returns what of it could not be read. Types are named by the kernel's own enum, if
/// its BTF has it.
#[must_use]
pub fn sysfs(roots: &Roots, layout: &QueueLayout) -> (Inventory, Vec<Unreadable>) {
    let (inventory, errors) = read_sysfs(roots, layout);
    (detailed(roots, inventory), errors)
}

/// [`sysfs`], and what debugfs has of the same queues, if it can be read: for where the kernel's own table cannot be
/// walked.
#[must_use]
pub fn sysfs_and_debugfs(
    roots: &Roots,
    layout: &QueueLayout,
    topology: &Topology,
) -> (Inventory, Option<Inventory>) {
    let from_ns = clock::mono_ns();
    let now = KfdSysfs::queues(&roots.sysfs);
    let (sysfs, dumped) = match debugfs::queues(roots, now.clone(), topology) {
        Ok(Dumped { sysfs, processes }) => (sysfs, Some(processes)),
        Err(why) => {
            log::debug!("no addresses from debugfs: {why}");
            (now, None)
        }
    };
    let (listed, _) = inventory_of(sysfs, layout, from_ns);
    let read = listed.read;
    let dumped = dumped.map(|processes| Inventory {
        processes: processes.into(),
        ..Inventory::empty(Source::Debugfs, read)
    });
    (detailed(roots, listed), dumped)
}

/// [`sysfs`] without what procfs has.
pub(super) fn read_sysfs(roots: &Roots, layout: &QueueLayout) -> (Inventory, Vec<Unreadable>) {
    let from_ns = clock::mono_ns();
    inventory_of(KfdSysfs::queues(&roots.sysfs), layout, from_ns)
}

fn inventory_of(read: KfdSysfs, layout: &QueueLayout, from_ns: u64) -> (Inventory, Vec<Unreadable>) {
    let KfdSysfs { there, processes, errors } = read;
    for error in &errors {
        log::warn!("cannot read {}: {}", error.path.display(), error.why);
    }
    let processes = processes.iter().map(|process| listed(layout, process)).collect();
    let read = ReadTimes { from_ns, until_ns: clock::mono_ns() };
    (Inventory { there, processes, ..Inventory::empty(Source::Sysfs, read) }, errors)
}

fn listed(layout: &QueueLayout, process: &SysfsProcess) -> Listed {
    let queues = process.queues.iter().map(|queue| QueueFacts {
        queue_id: Some(queue.queue_id),
        gpu_id: queue.gpu_id,
        // sysfs does not distinguish AQL.
        queue_type: queue.queue_type_raw.map(|raw| layout.queue_type(raw)).filter(known_type),
        ring_size: queue.size,
        ..QueueFacts::unknown(Origin::Standing)
    });
    let (tgid, context_id) = (process.tgid, process.context_id);
    let (queues, vram) = (queues.collect(), process.vram.clone());
    Listed { tgid, context_id, queues, vram, ..Listed::default() }
}

fn known_type(kind: &QueueType) -> bool {
    !matches!(kind, QueueType::Unknown(_))
}

/// Adds what procfs has of the processes, if they still live.
pub(super) fn detailed(roots: &Roots, mut inventory: Inventory) -> Inventory {
    let Inventory { processes, details, .. } = &mut inventory;
    processes.update(|processes| {
        for process in processes {
            if let Ok(info) = process::read(&roots.procfs, process.tgid, process.start_boottime_ns) {
                identify(process, &info.who);
                let place = (process.tgid, process.start_boottime_ns);
                details.insert(place, enrich::details_of(roots, &info));
            }
        }
    });
    inventory
}

/// Adds what procfs has, where the source itself does not.
pub(super) fn identify(process: &mut Listed, who: &Identity) {
    process.start_boottime_ns = process.start_boottime_ns.or(Some(who.start_boottime_ns));
    process.ns_tgid = who.ns_pids.last().copied();
    process.uid = Some(who.uid);
    process.comm = Some(who.comm.clone());
}

fn queue_count(inventory: &Inventory) -> usize {
    inventory.processes.iter().map(|process| process.queues.len()).sum()
}

/// Adds what exists to a state.
pub fn adopt(state: &mut State, inventory: &Inventory) {
    let Inventory { source, read, processes, details, .. } = inventory;
    for process in processes {
        let key = state.adopt_process(*read, process, *source);
        if let Some(details) = details.get(&(process.tgid, process.start_boottime_ns)) {
            state.enrich(key, details.clone());
        }
        for queue in &process.queues {
            state.adopt_queue(key, *read, queue, *source);
        }
    }
}

/// A state of what one source lists. In the kernel's table one PID can have several processes (before and after
/// an exec, or of a reused PID): numbers of this state alone keep them apart.
#[must_use]
pub fn state_of(inventory: &Inventory) -> State {
    let mut inventory = inventory.clone();
    if inventory.source == Source::Kernel {
        inventory.processes.update(|all| {
            for (process, number) in all.iter_mut().zip(1..) {
                process.id = Some(ProcessId(number));
            }
        });
    }
    let mut state = State::new(StateLimits::default());
    adopt(&mut state, &inventory);
    state
}

/// Reads what exists, for a session: both sides use the same numbers of processes.
pub struct InventoryReader {
    pub(crate) roots: Roots,
    pub(crate) layout: QueueLayout,
    /// Or why the kernel's table cannot be walked here.
    pub(crate) walk: Result<Walk, String>,
    pub(crate) selected: Selected,
}

impl InventoryReader {
    #[must_use]
    pub fn new(roots: &Roots, kernel: &Kernel, facts: &Facts, selected: Selected) -> Self {
        let walk = Walk::new(kernel, facts);
        if walk.as_ref().is_ok_and(|walk| !walk.knows_locks()) {
            log::warn!("locks of schedulers are not known here: late reports may count as differences");
        }
        InventoryReader { roots: roots.clone(), layout: facts.layout.clone(), walk, selected }
    }

    /// Leaves out whether queues are suspended.
    pub(super) fn without_suspensions(&mut self) {
        self.layout.is_suspended = None;
        if let Ok(walk) = &mut self.walk {
            walk.without_suspensions();
        }
    }

    pub(super) fn walked(&self, session: &Session) -> Result<DriverTable, String> {
        let walk = self.walk.as_ref().map_err(Clone::clone)?;
        let mut memory = session.memory().ok_or("the kernel refused the program that reads its memory")?;
        Ok(walk.run(&mut memory))
    }

    /// Assigns numbers to existing processes before the probes are attached, so that an open by an existing
    /// process is not taken for its creation.
    pub fn number(&self, session: &mut Session) {
        for (entry, mono_ns) in
            self.walked(session).unwrap_or_default().entries.iter().zip(clock::mono_ns()..)
        {
            let wanted = self.includes(entry.process.tgid);
            if let Err(error) = session.number(entry, mono_ns, wanted) {
                log::warn!("process {}: {}", entry.process.tgid, chain(&error));
            }
        }
    }

    fn numbered(&self, session: &mut Session, table: DriverTable, mono_ns: u64) -> ListedProcesses {
        let wanted = table.entries.into_iter().filter(|entry| self.includes(entry.process.tgid));
        let numbered = wanted.zip(mono_ns..).map(|(entry, mono_ns)| {
            let id = session.number(&entry, mono_ns, true).ok();
            Listed { id, ..entry.process }
        });
        numbered.collect()
    }

    /// Adds everything that exists to a state: addresses from the kernel if it can be walked, else from debugfs, and
    /// what sysfs lists. Returns one line if existing queues have no addresses.
    pub fn adopt(&self, session: &mut Session, state: &mut State, topology: &Topology) -> Option<String> {
        let from_ns = clock::mono_ns();
        let walked = self.walked(session);
        let (mut listed, mut dumped) = match walked {
            Ok(_) => (sysfs(&self.roots, &self.layout).0, None),
            Err(_) => sysfs_and_debugfs(&self.roots, &self.layout, topology),
        };
        for inventory in [&mut listed].into_iter().chain(&mut dumped) {
            inventory.processes.update(|all| all.retain(|process| self.includes(process.tgid)));
        }
        let read = ReadTimes { from_ns, until_ns: clock::mono_ns() };
        let why = match walked {
            Ok(table) => {
                warn_broken(table.broken);
                let processes = self.numbered(session, table, read.until_ns);
                let kernel = Inventory { processes, ..Inventory::empty(Source::Kernel, read) };
                adopt(state, &detailed(&self.roots, kernel));
                None
            }
            Err(why) => Some(why),
        };
        let existing = queue_count(&listed);
        adopt(state, &Inventory { read, ..listed });
        let described = dumped.as_ref().map_or(0, queue_count);
        if let Some(dumped) = dumped {
            adopt(state, &Inventory { read, ..dumped });
        }
        why.and_then(|why| match existing.saturating_sub(described) {
            0 => None,
            missing if described > 0 => {
                Some(format!("{missing} of {existing} existing queues have no addresses: {why}"))
            }
            _ => Some(format!("existing queues have no addresses: {why}")),
        })
    }

    /// Whether this process is traced.
    pub(super) fn includes(&self, tgid: u32) -> bool {
        self.selected.includes(tgid, |of| process::descends(&self.roots.procfs, tgid, of))
    }
}
