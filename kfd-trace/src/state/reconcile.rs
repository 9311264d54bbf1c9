//! The state against the driver's own lists: what differs, and how a row is set right.
//!
//! Records can be lost; the lists cannot. A list is read over some time while the driver works on, so only what has
//! been quiet since before the reading is compared, and the caller acts on what it has found twice.

use std::collections::{BTreeMap, BTreeSet};

use super::adopt::{Read, StandingProcess};
use super::apply::Change;
use super::process::{Place, Process, ProcessKey};
use super::queue::{Cause, Queue, QueueEnd};
use super::rows::State;
use super::source::Source;
use crate::events::event::{Body, Event, QueueCreate, QueueType};
use crate::events::life::QueueUpdate;

/// The driver tells of a change shortly before or after it makes it: what changed in this time is left alone.
const SETTLE_NS: u64 = 1_000_000_000;

/// On 6.1 the end of a queue is told before its preemption, which may take as long (9 s) and fail: until then the queue
/// stands in the kernel's table. A dying process is on no list while the driver frees its memory, which may take as long.
const PREEMPTION_NS: u64 = 15_000_000_000;

/// What the probes and a list of the driver did not agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Difference {
    /// Here a queue lives that the driver does not have any more.
    Ghost,
    /// The driver has a queue that is not known here.
    Missing,
    /// The kernel has it, its sysfs does not list it.
    Unlisted,
    /// The driver has other properties.
    Properties,
}

impl Difference {
    /// Every one.
    pub const ALL: &'static [Difference] =
        &[Difference::Ghost, Difference::Missing, Difference::Unlisted, Difference::Properties];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Difference::Ghost => "ghost",
            Difference::Missing => "missing",
            Difference::Unlisted => "unlisted",
            Difference::Properties => "properties",
        }
    }
}

/// One list of the driver.
#[derive(Clone, Debug)]
pub struct List {
    pub source: Source,
    pub read: Read,
    pub processes: Vec<(StandingProcess, Vec<QueueCreate>)>,
}

impl List {
    /// What changed later is left alone; CLOCK_MONOTONIC, nanoseconds.
    #[must_use]
    pub fn settled_ns(&self) -> u64 {
        self.read.from_ns.saturating_sub(SETTLE_NS)
    }

    /// [`List::settled_ns`] of a process as a whole: its release is told at its end (`kfd_process_wq_release`).
    #[must_use]
    pub fn settled_ns_of(&self, row: &Process) -> u64 {
        let dying = row.mm_released_ns.map(|_| self.read.from_ns.saturating_sub(PREEMPTION_NS));
        dying.unwrap_or_else(|| self.settled_ns())
    }

    /// A process stands at this place.
    #[must_use]
    pub fn has(&self, place: Place) -> bool {
        self.at(place).next().is_some()
    }

    /// The queue of a process at this place, with the process.
    #[must_use]
    pub fn queue(&self, place: Place, queue_id: u32) -> Option<(&StandingProcess, &QueueCreate)> {
        self.at(place).find_map(|(process, queues)| {
            let queue = queues.iter().find(|queue| queue.queue_id == Some(queue_id))?;
            Some((process, queue))
        })
    }

    fn at(&self, place: Place) -> impl Iterator<Item = &(StandingProcess, Vec<QueueCreate>)> {
        self.processes.iter().filter(move |(process, _)| process.place() == place)
    }
}

/// One difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The row that it is about: of a missing queue the live one at its place, if there is one.
    pub key: Option<ProcessKey>,
    pub tgid: u32,
    /// Which of its contexts (7.2).
    pub context_id: Option<u32>,
    pub queue_id: u32,
    pub difference: Difference,
}

impl Finding {
    #[must_use]
    pub fn place(&self) -> Place {
        (self.tgid, self.context_id)
    }
}

impl State {
    /// Compares with one list.
    #[must_use]
    pub fn compare(&self, list: &List) -> BTreeSet<Finding> {
        let settled_ns = list.settled_ns();
        let mut rows: BTreeMap<Place, Vec<&Process>> = BTreeMap::new();
        for (place, row) in self.rows.values().filter_map(|row| Some((row.place()?, row))) {
            rows.entry(place).or_default().push(row);
        }
        let ended_ns = match list.source {
            Source::Kernel => list.read.from_ns.saturating_sub(PREEMPTION_NS),
            Source::Probe | Source::Sysfs => settled_ns,
        };
        let listed = by_place(list);
        let mut found = BTreeSet::new();
        let mut note = |key, (tgid, context_id): Place, queue_id, difference| {
            found.insert(Finding { key, tgid, context_id, queue_id, difference });
        };
        for (place, rows) in &rows {
            for row in rows.iter().filter(|row| row.alive() && !leaves(row, list.source)) {
                for queue in row.queues.values().filter(|queue| queue.changed_ns <= settled_ns) {
                    match listed.get(place).and_then(|queues| queues.get(&queue.queue_id)) {
                        None if queue.unlisted && list.source == Source::Sysfs => {}
                        None => note(Some(row.key), *place, queue.queue_id, Difference::Ghost),
                        Some(facts) if differs(&queue.facts, facts, list.source) => {
                            note(Some(row.key), *place, queue.queue_id, Difference::Properties);
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        for (place, queues) in &listed {
            let rows = rows.get(place).map_or(&[][..], Vec::as_slice);
            let known = |id: &u32| rows.iter().any(|row| knows(row, *id, ended_ns));
            for queue_id in queues.keys().filter(|id| !known(id)) {
                note(self.by_tgid.get(place).copied(), *place, *queue_id, Difference::Missing);
            }
        }
        found
    }

    /// Counts that it was held against such a list.
    pub fn compared(&mut self, source: Source) {
        *self.totals.comparisons.entry(source).or_default() += 1;
    }

    /// Counts a difference and takes over what the lists tell; the one that tells most stands first. Gives what changed
    /// as an event of its owner, and what followed from it. `None` where the row that it was found in has ended since, or
    /// does not have the queue any more: what is at its place now was not compared.
    pub fn resync(&mut self, finding: Finding, lists: &[&List], now_ns: u64) -> Option<(Event, Change)> {
        let told = lists.iter().find_map(|list| {
            let (process, queue) = list.queue(finding.place(), finding.queue_id)?;
            Some((*list, process, queue))
        });
        let mut change = Change::default();
        let (key, body) = match (finding.difference, told) {
            (Difference::Ghost, _) => {
                let key = self.holder(&finding)?;
                let end = QueueEnd { at_ns: now_ns, cause: Cause::NotSeen };
                self.end_queue(key, finding.queue_id, None, end, &mut change);
                (key, Body::QueueDestroy { queue_id: finding.queue_id, gpu_id: None })
            }
            (Difference::Missing, Some((list, process, queue))) => {
                if finding.key.is_some_and(|key| !self.process(key).is_some_and(Process::alive)) {
                    return None;
                }
                let key = self.adopt_process(list.read, process, list.source);
                self.adopt_queue(key, list.read, queue, list.source);
                self.holder(&Finding { key: Some(key), ..finding })?;
                self.mark(key, finding.queue_id, now_ns, |_| {});
                (key, Body::QueueCreate(queue.clone()))
            }
            (Difference::Properties, Some((list, _, facts))) => {
                let key = self.holder(&finding)?;
                self.mark(key, finding.queue_id, now_ns, |queue| {
                    let queue_type = type_by(list.source, queue.facts.queue_type, facts.queue_type);
                    queue.renew(facts);
                    queue.facts.queue_type = queue_type;
                    queue.sources = queue.sources.with(list.source);
                });
                self.found_evicted(key, facts);
                (key, Body::QueueUpdate(QueueUpdate { now: facts.clone(), cu_mask: None, errno: 0 }))
            }
            (Difference::Unlisted, _) => {
                let key = self.holder(&finding)?;
                let queue = self.rows.get_mut(&key).and_then(|row| row.queues.get_mut(&finding.queue_id));
                queue?.unlisted = true;
                self.count(finding.difference);
                return None;
            }
            (Difference::Missing | Difference::Properties, None) => return None,
        };
        self.count(finding.difference);
        change.process = Some(key);
        let id = self.rows.get(&key).and_then(Process::id);
        Some((Event::of_standing(now_ns, id, Some(finding.tgid), body), change))
    }

    fn count(&mut self, difference: Difference) {
        *self.totals.differences.entry(difference).or_default() += 1;
    }

    fn mark(&mut self, key: ProcessKey, queue_id: u32, now_ns: u64, act: impl FnOnce(&mut Queue)) {
        if let Some(queue) = self.rows.get_mut(&key).and_then(|row| row.queues.get_mut(&queue_id)) {
            queue.resynced_ns = Some(now_ns);
            queue.changed_ns = now_ns;
            act(queue);
        }
    }

    /// Its row, where that lives and has the queue.
    fn holder(&self, finding: &Finding) -> Option<ProcessKey> {
        let holds = |row: &Process| row.alive() && row.queues.contains_key(&finding.queue_id);
        finding.key.filter(|key| self.process(*key).is_some_and(holds))
    }
}

/// The driver takes a dying process off its table first; sysfs lists its queues until they go.
fn leaves(row: &Process, source: Source) -> bool {
    row.mm_released_ns.is_some() && source == Source::Kernel
}

/// It lives here, or has ended since.
fn knows(row: &Process, queue_id: u32, since_ns: u64) -> bool {
    let ended_since = |at_ns: &u64| *at_ns >= since_ns;
    row.queues.contains_key(&queue_id) || row.last_ends.get(&queue_id).is_some_and(ended_since)
}

fn by_place(list: &List) -> BTreeMap<Place, BTreeMap<u32, &QueueCreate>> {
    let mut places: BTreeMap<Place, BTreeMap<u32, &QueueCreate>> = BTreeMap::new();
    for (process, queues) in &list.processes {
        let known = places.entry(process.place()).or_default();
        known.extend(queues.iter().filter_map(|queue| Some((queue.queue_id?, queue))));
    }
    places
}

/// The type after a list was read; sysfs does not tell AQL apart.
fn type_by(source: Source, known: Option<QueueType>, listed: Option<QueueType>) -> Option<QueueType> {
    let same = match source {
        Source::Sysfs => known.map(QueueType::in_sysfs) == listed,
        Source::Kernel | Source::Probe => known == listed,
    };
    if same { known } else { listed.or(known) }
}

/// What both tell, and tell differently.
fn differs(known: &QueueCreate, listed: &QueueCreate, source: Source) -> bool {
    fn unlike<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
        one.is_some() && other.is_some() && one != other
    }
    unlike(&known.gpu_id, &listed.gpu_id)
        || unlike(&known.queue_type, &type_by(source, known.queue_type, listed.queue_type))
        || unlike(&known.ring_size, &listed.ring_size)
        || unlike(&known.ring_address, &listed.ring_address)
        || unlike(&known.write_pointer_address, &listed.write_pointer_address)
        || unlike(&known.read_pointer_address, &listed.read_pointer_address)
        || unlike(&known.priority, &listed.priority)
        || unlike(&known.percent, &listed.percent)
        || unlike(&known.doorbell_offset, &listed.doorbell_offset)
        || unlike(&known.evicted, &listed.evicted)
        || unlike(&known.active, &listed.active)
}

#[cfg(test)]
mod tests;
