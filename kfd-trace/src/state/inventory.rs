//! What one source lists, and which of its processes matches a row.
//!
//! A place can be reused: after a PID reuse or an exec it holds another process than the row's.

use super::input::ReadTimes;
use super::process::{Process, ProcessDetails};
use super::source::Source;
use crate::model::event::QueueFacts;
use crate::model::inventory::{Listed, ListedProcesses, Place};
use std::collections::{BTreeMap, BTreeSet};

/// The driver reports a change shortly before or after it makes it: changes within this time are not
/// compared.
const SETTLE_NS: u64 = 1_000_000_000;

/// On 6.1 the end of a queue is reported before its preemption, which may take as long (9 s) and fail; until
/// then the queue is in the kernel's table. A dying process is on no list while the driver frees its memory,
/// which may take as long.
pub(super) const PREEMPTION_NS: u64 = 15_000_000_000;

/// What the driver lists, from one source: the walk over the kernel's own table, or sysfs.
#[derive(Clone, Debug)]
pub struct Inventory {
    pub source: Source,
    pub read: ReadTimes,
    /// The source was readable: if it is empty then, the driver has no process.
    pub there: bool,
    pub processes: ListedProcesses,
    /// GPUs whose scheduler was at work right after the list was read: it may have changed queues, and
    /// reports when it is done; a hang delays that for seconds. Only [`Source::Kernel`] provides this.
    pub at_work: BTreeSet<u32>,
    /// What procfs has of the processes, by tgid and start, as far as it was read: a reused PID is another process.
    pub details: BTreeMap<(u32, Option<u64>), ProcessDetails>,
}

/// What a list shows at the place of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Its process, as far as known.
    Itself,
    /// Only other processes: with another number, or another start.
    Another,
    Nothing,
}

impl Inventory {
    /// Without processes.
    #[must_use]
    pub fn empty(source: Source, read: ReadTimes) -> Self {
        let (processes, at_work, details) = (ListedProcesses::default(), BTreeSet::new(), BTreeMap::new());
        Inventory { source, read, there: true, processes, at_work, details }
    }

    /// Later changes are not compared; CLOCK_MONOTONIC, nanoseconds.
    #[must_use]
    pub fn settled_ns(&self) -> u64 {
        self.read.from_ns.saturating_sub(SETTLE_NS)
    }

    /// [`Inventory::settled_ns`] for a whole process: its release is reported when it completes
    /// (`kfd_process_wq_release`).
    #[must_use]
    pub fn settled_ns_of(&self, row: &Process) -> u64 {
        if row.dying() { self.read.from_ns.saturating_sub(PREEMPTION_NS) } else { self.settled_ns() }
    }

    /// Whether the list has a process at this place.
    #[must_use]
    pub fn has(&self, place: Place) -> bool {
        self.at(place).next().is_some()
    }

    /// The queue of a process at this place, and the process.
    #[must_use]
    pub fn queue(&self, place: Place, queue_id: u32) -> Option<(&Listed, &QueueFacts)> {
        queue_in(self.at(place), queue_id)
    }

    /// The queue of the row's process, and the process.
    pub(super) fn queue_of(&self, row: &Process, queue_id: u32) -> Option<(&Listed, &QueueFacts)> {
        queue_in(self.of(row), queue_id)
    }

    /// All queues of the row's process, by id.
    pub(super) fn queues_of(&self, row: &Process) -> BTreeMap<u32, &QueueFacts> {
        let queues = self.of(row).flat_map(|process| &process.queues);
        queues.filter_map(|queue| Some((queue.queue_id?, queue))).collect()
    }

    pub(super) fn shows(&self, row: &Process) -> Shown {
        if self.of(row).next().is_some() {
            Shown::Itself
        } else if row.place().is_some_and(|place| self.has(place)) {
            Shown::Another
        } else {
            Shown::Nothing
        }
    }

    /// Whether the list has exactly one process of this PID, thus no secondary context.
    pub(super) fn has_one_of(&self, tgid: u32) -> bool {
        self.processes.with_tgid(tgid).count() == 1
    }

    /// Whether the row can be this process. An unknown number or start decides nothing. In a sysfs list the
    /// start is that of the current owner of the PID (/proc): the sysfs folder of a dying process can outlive
    /// its PID.
    pub(super) fn can_be(&self, row: &Process, found: &Listed) -> bool {
        match (row.id(), found.id) {
            (Some(own), Some(other)) => own == other,
            _ if row.place() != Some(found.place()) => false,
            _ => self.source == Source::Sysfs && row.dying() || row.same_start(found.start_boottime_ns),
        }
    }

    fn of(&self, row: &Process) -> impl Iterator<Item = &Listed> {
        let numbered = row.id().into_iter().flat_map(|id| self.processes.with_id(id));
        let elsewhere = numbered.filter(|process| Some(process.tgid) != row.tgid);
        let by_tgid = row.tgid.into_iter().flat_map(|tgid| self.processes.with_tgid(tgid));
        elsewhere.chain(by_tgid).filter(|process| self.can_be(row, process))
    }

    fn at(&self, place: Place) -> impl Iterator<Item = &Listed> {
        self.processes.with_tgid(place.0).filter(move |process| process.place() == place)
    }
}

fn queue_in<'a>(
    mut processes: impl Iterator<Item = &'a Listed>,
    queue_id: u32,
) -> Option<(&'a Listed, &'a QueueFacts)> {
    processes.find_map(|process| Some((process, process.queue(queue_id)?)))
}
