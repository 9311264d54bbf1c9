//! Compares the state with the driver's own lists: what differs, and how a row is corrected.
//!
//! Records can be lost; the lists cannot. Reading a list takes time while the driver keeps working, so only
//! what has been quiet since before the reading is compared, and the caller acts only on differences that it
//! has found twice.

use super::change::Change;
use super::input::{FoundDifference, Input, ListedQueue};
use super::inventory::{Inventory, PREEMPTION_NS, Shown};
use super::process::{Process, ProcessKey};
use super::queue::{Cause, Queue, QueueEnd};
use super::rows::State;
use super::source::Source;
pub use super::totals::Difference;
use crate::model::event::{Body, Event, QueueFacts, QueueType};
use crate::model::incident::QueueUpdate;
use crate::model::inventory::{Listed, Place};
use std::collections::{BTreeMap, BTreeSet};

impl State {
    /// Compares with one list. A row at whose place another process is shown is left to [`State::gone`].
    #[must_use]
    pub fn compare(&self, list: &Inventory) -> BTreeSet<FoundDifference> {
        let settled_ns = list.settled_ns();
        let mut rows: BTreeMap<Place, Vec<&Process>> = BTreeMap::new();
        for (place, row) in self.rows.values().filter_map(|row| Some((row.place()?, row))) {
            rows.entry(place).or_default().push(row);
        }
        let ended_ns = match list.source {
            Source::Kernel => list.read.from_ns.saturating_sub(PREEMPTION_NS),
            Source::Probe | Source::Sysfs | Source::Debugfs => settled_ns,
        };
        let mut found = BTreeSet::new();
        let mut note = |key, (tgid, context_id): Place, queue_id, difference| {
            found.insert(FoundDifference { key, tgid, context_id, queue_id, difference });
        };
        for (place, rows) in &rows {
            let compared = |row: &&&Process| {
                row.alive() && !leaves(row, list.source) && self.shown(list, row) != Shown::Another
            };
            for row in rows.iter().filter(compared) {
                let listed = list.queues_of(row);
                for queue in row.queues.values().filter(|queue| queue.changed_ns <= settled_ns) {
                    match listed.get(&queue.queue_id) {
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
        for process in &list.processes {
            let place = process.place();
            let rows = rows.get(&place).map_or(&[][..], Vec::as_slice);
            let own: Vec<&Process> = rows.iter().copied().filter(|row| list.can_be(row, process)).collect();
            let known = |id: &u32| own.iter().any(|row| knows(row, *id, ended_ns));
            let key = self.places.get(place).filter(|key| own.iter().any(|row| row.key == *key));
            for queue_id in process.queues.iter().filter_map(|queue| queue.queue_id).filter(|id| !known(id)) {
                note(key, place, queue_id, Difference::Missing);
            }
        }
        found
    }

    /// What a list shows at the place of a row. sysfs shows no process numbers: a single process of a PID
    /// matches the row that was created last. That row can have been a secondary context (7.2, without BTF)
    /// only if its file was closed.
    #[must_use]
    pub fn shown(&self, list: &Inventory, row: &Process) -> Shown {
        let shown = list.shows(row);
        let one = |tgid| list.source == Source::Sysfs && list.has_one_of(tgid);
        if shown == Shown::Itself && row.tgid.is_some_and(one) && self.replaced(row) {
            return Shown::Another;
        }
        shown
    }

    /// Another process was created at its place after the last record of the row: an exec opened the driver
    /// again.
    fn replaced(&self, row: &Process) -> bool {
        let last = row.place().and_then(|place| self.places.get(place)).filter(|last| *last != row.key);
        let last = last.and_then(|key| self.rows.get(&key));
        last.is_some_and(|last| last.closes == 0 && last.created_ns > Some(row.last_event_ns))
    }

    /// What a list shows for the queue of a finding: at its row's process, or for a missing queue at its
    /// place.
    #[must_use]
    pub fn listed<'a>(
        &self,
        list: &'a Inventory,
        finding: &FoundDifference,
    ) -> Option<(&'a Listed, &'a QueueFacts)> {
        let row = finding.key.filter(|_| finding.difference != Difference::Missing);
        match row.and_then(|key| self.process(key)) {
            Some(row) if self.shown(list, row) != Shown::Itself => None,
            Some(row) => list.queue_of(row, finding.queue_id),
            None => list.queue(finding.place(), finding.queue_id),
        }
    }

    /// Counts one comparison with such a list.
    pub fn compared(&mut self, source: Source) {
        self.note(|| Input::Compared(source));
        *self.totals.comparisons.entry(source).or_default() += 1;
    }

    /// Counts a difference and takes over what the lists show; pass the most detailed list first. Returns the
    /// correction as an event of its owner, and the resulting change. `None` if the row of the finding has
    /// ended since or no longer has the queue: what is at its place now was not compared. For an unlisted
    /// queue see [`State::keep_unlisted`].
    pub fn resync(
        &mut self,
        finding: FoundDifference,
        lists: &[&Inventory],
        now_ns: u64,
    ) -> Option<(Event, Change)> {
        let listed = lists.iter().find_map(|list| {
            let (process, queue) = self.listed(list, &finding)?;
            let Inventory { source, read, .. } = **list;
            let process = Listed { queues: Vec::new(), ..process.clone() };
            Some(Box::new(ListedQueue { source, read, process, queue: queue.clone() }))
        });
        self.note(|| Input::Corrected { finding, listed: listed.clone(), at_ns: now_ns });
        self.correct(finding, listed.as_deref(), now_ns)
    }

    /// The same, with what the lists show.
    pub(super) fn correct(
        &mut self,
        finding: FoundDifference,
        listed: Option<&ListedQueue>,
        now_ns: u64,
    ) -> Option<(Event, Change)> {
        let mut change = Change::default();
        let (key, body) = match (finding.difference, listed) {
            (Difference::Ghost, _) => {
                let key = self.holder(&finding)?;
                let end = QueueEnd { at_ns: now_ns, cause: Cause::NotSeen };
                self.end_queue(key, finding.queue_id, None, end, &mut change);
                (key, Body::QueueDestroy { queue_id: finding.queue_id, gpu_id: None, last: None })
            }
            (Difference::Missing, Some(ListedQueue { source, read, process, queue })) => {
                if finding.key.is_some_and(|key| !self.process(key).is_some_and(Process::alive)) {
                    return None;
                }
                let key = self.take_process(*read, process, *source);
                self.take_queue(key, *read, queue, *source);
                self.holder(&FoundDifference { key: Some(key), ..finding })?;
                self.mark(key, finding.queue_id, now_ns, |_| {});
                (key, Body::QueueCreate(queue.clone()))
            }
            (Difference::Properties, Some(ListedQueue { source, queue: facts, .. })) => {
                let key = self.holder(&finding)?;
                self.mark(key, finding.queue_id, now_ns, |queue| {
                    let queue_type = type_by(*source, queue.facts.queue_type, facts.queue_type);
                    change.priority_before = queue.renew(facts, None);
                    queue.facts.queue_type = queue_type;
                    queue.sources = queue.sources.with(*source);
                });
                self.found_evicted(key, facts, now_ns);
                (
                    key,
                    Body::QueueUpdate(QueueUpdate {
                        now: facts.clone(),
                        cu_mask: None,
                        mask_unread: false,
                        errno: Some(0),
                    }),
                )
            }
            (Difference::Unlisted, _) | (Difference::Missing | Difference::Properties, None) => return None,
        };
        self.count(finding.difference);
        change.process = Some(key);
        Some((self.event_of(key, now_ns, body), change))
    }

    /// Counts a queue that sysfs does not list, and keeps it unchanged. False where [`State::resync`] returns
    /// `None`.
    pub fn keep_unlisted(&mut self, finding: &FoundDifference) -> bool {
        self.note(|| Input::Unlisted(*finding));
        let holder = self.holder(finding).and_then(|key| self.rows.get_mut(&key));
        let Some(queue) = holder.and_then(|row| row.queues.get_mut(&finding.queue_id)) else { return false };
        queue.unlisted = true;
        self.count(Difference::Unlisted);
        true
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

    /// The finding's row, if it is live and has the queue.
    fn holder(&self, finding: &FoundDifference) -> Option<ProcessKey> {
        let holds = |row: &Process| row.alive() && row.queues.contains_key(&finding.queue_id);
        finding.key.filter(|key| self.process(*key).is_some_and(holds))
    }
}

/// The driver removes a dying process from its table first; sysfs lists its queues until they are removed.
fn leaves(row: &Process, source: Source) -> bool {
    row.dying() && source == Source::Kernel
}

/// The queue lives here, or has ended since.
fn knows(row: &Process, queue_id: u32, since_ns: u64) -> bool {
    let ended_since = |at_ns: &u64| *at_ns >= since_ns;
    row.queues.contains_key(&queue_id) || row.last_ends.get(&queue_id).is_some_and(ended_since)
}

/// The type after reading a list; sysfs does not distinguish AQL.
fn type_by(source: Source, known: Option<QueueType>, listed: Option<QueueType>) -> Option<QueueType> {
    let same = match source {
        Source::Sysfs => known.map(QueueType::of_driver) == listed,
        Source::Kernel | Source::Probe | Source::Debugfs => known == listed,
    };
    if same { known } else { listed.or(known) }
}

/// Whether a property that both report differs.
fn differs(known: &QueueFacts, listed: &QueueFacts, source: Source) -> bool {
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
        || unlike(&known.suspended, &listed.suspended)
        || unlike(&known.active, &listed.active)
}

#[cfg(test)]
mod tests;
