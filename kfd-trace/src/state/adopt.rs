//! Processes and queues that existed before the tracer, found in sysfs or by walking the kernel's structures.
//!
//! Reading takes time ([`ReadTimes`]). Records up to its end may still be in the ring buffer, so they are
//! matched to the same process or queue; what ended after the reading began is not brought back.

use super::change::Change;
use super::input::{Input, ReadTimes};
use super::process::{Process, ProcessKey};
use super::queue::{Cause, Queue};
use super::rows::State;
use super::source::{Source, Sources};
use super::totals::Anomaly;
use crate::model::event::{Body, Event, ProcessId, QueueFacts};
use crate::model::inventory::Listed;

impl State {
    /// Adds an existing process; returns the key of its row, which may have existed before.
    pub fn adopt_process(
        &mut self,
        read: impl Into<ReadTimes>,
        found: &Listed,
        source: Source,
    ) -> ProcessKey {
        let read = read.into();
        self.note(|| Input::Process {
            read,
            process: Listed { queues: Vec::new(), ..found.clone() },
            source,
        });
        self.take_process(read, found, source)
    }

    /// The same, as a part of another call.
    pub(super) fn take_process(&mut self, read: ReadTimes, found: &Listed, source: Source) -> ProcessKey {
        let key = self.standing_key(read, found);
        if found.id.is_some() {
            self.set_context(key, found.context_id);
        }
        if let Some(row) = self.rows.get_mut(&key).filter(|row| row.alive()) {
            row.sources = row.sources.with(source);
            absorb(row, found);
        }
        key
    }

    fn standing_key(&mut self, read: ReadTimes, found: &Listed) -> ProcessKey {
        if let Some(key) = found.id.map(ProcessKey::from)
            && self.rows.contains_key(&key)
        {
            return key;
        }
        let same = |row: &Process| row.same_start(found.start_boottime_ns);
        if let Some(key) = self.places.get(found.place())
            && self.rows.get(&key).is_some_and(same)
            && (found.id.is_none() || matches!(key, ProcessKey::Adopted(_)))
        {
            return self.numbered(key, found.id);
        }
        let ended = self.ended.iter().rev().filter_map(|key| self.rows.get(key)).find(|row| {
            row.place() == Some(found.place())
                && same(row)
                && row.released_ns >= Some(read.from_ns)
                && found.id.is_none()
        });
        if let Some(row) = ended {
            return row.key;
        }
        let mut change = Change::default();
        self.end_impostor(found, read.until_ns, &mut change);
        let key = self.next_key(found.id);
        let mut row = Process::new(key, Some(found.tgid), Sources::default(), read.until_ns);
        row.standing = true;
        row.context_id = found.context_id;
        self.insert(row, &mut change);
        key
    }

    /// Sets the context of a numbered process as the kernel reports it; a row whose first record was lost
    /// does not know it.
    fn set_context(&mut self, key: ProcessKey, context_id: Option<u32>) {
        let Some(row) = self.rows.get(&key).filter(|row| row.context_id != context_id) else { return };
        let left = row.place();
        self.unindex(key);
        if let Some(row) = self.rows.get_mut(&key) {
            row.context_id = context_id;
            row.labels.forget();
        }
        self.index(key);
        // The row whose place it had taken becomes findable again.
        let other = self.rows.values().find(|row| row.alive() && row.place() == left).map(|row| row.key);
        other.into_iter().for_each(|key| self.index(key));
    }

    fn next_key(&mut self, id: Option<ProcessId>) -> ProcessKey {
        id.map_or_else(
            || {
                self.adopted_keys += 1;
                ProcessKey::Adopted(self.adopted_keys)
            },
            ProcessKey::from,
        )
    }

    /// A live row of this tgid with another start belongs to a process whose end was not seen; but if both are
    /// numbered, the driver may not have freed the first one yet, and lists both.
    fn end_impostor(&mut self, found: &Listed, at_ns: u64, change: &mut Change) {
        if let Some(key) = self.places.get(found.place())
            && (found.id.is_none() || matches!(key, ProcessKey::Adopted(_)))
            && self.rows.get(&key).is_some_and(|row| !row.same_start(found.start_boottime_ns))
        {
            self.anomaly(Anomaly::EndNotSeen, change);
            self.end_process(key, at_ns, Cause::NotSeen, change);
        }
    }

    /// Moves the row under its number, if it has one now.
    fn numbered(&mut self, key: ProcessKey, id: Option<ProcessId>) -> ProcessKey {
        let Some(new) = id.map(ProcessKey::from).filter(|new| *new != key) else { return key };
        self.unindex(key);
        if let Some(mut row) = self.rows.remove(&key) {
            row.key = new;
            row.labels.forget();
            self.rows.insert(new, row);
            self.index(new);
        }
        new
    }

    /// A probe saw a process for the first time: if it was already found, its row gets the number. The row of
    /// another process that had the PID before ends, unless its release is still to be reported.
    pub(super) fn claim_adopted(&mut self, new: ProcessKey, event: &Event, change: &mut Change) -> bool {
        let (ProcessKey::Traced(id), Some(tgid)) = (new, event.tgid) else { return false };
        // Only the first record carries the context.
        let seen = match &event.body {
            Body::ProcessSeen(seen) => Some(seen),
            _ => None,
        };
        let place = (tgid, seen.and_then(|seen| seen.context_id));
        let Some(key) = self.places.get(place) else { return false };
        let Some(row) = self.rows.get(&key) else { return false };
        let (found, same_start) =
            (row.id().is_none(), row.same_start(seen.and_then(|seen| seen.start_boottime_ns)));
        // Created after the other was found: an exec, or a reused PID.
        let made_since = seen.is_some_and(|seen| !seen.standing && event.mono_ns > row.first_seen_ns);
        let same = found && same_start && !made_since;
        // A traced row with the same start may be another context, or the process before an exec that is
        // still about to be freed: the lists decide.
        let ended = if found { !same } else { !same_start && !row.dying() };
        if same {
            self.numbered(key, Some(id));
        } else if ended {
            self.anomaly(Anomaly::EndNotSeen, change);
            self.end_process(key, event.mono_ns, Cause::NotSeen, change);
        }
        same
    }

    /// Adds an existing queue of a process that was adopted or seen before. Does nothing if the queue is
    /// known to have ended since, if its process has ended, or if its id is unknown.
    pub fn adopt_queue(
        &mut self,
        process: ProcessKey,
        read: impl Into<ReadTimes>,
        found: &QueueFacts,
        source: Source,
    ) {
        let read = read.into();
        self.note(|| Input::Queue { key: process, read, queue: found.clone(), source });
        self.take_queue(process, read, found, source);
    }

    /// The same, as a part of another call.
    pub(super) fn take_queue(
        &mut self,
        process: ProcessKey,
        read: ReadTimes,
        found: &QueueFacts,
        source: Source,
    ) {
        let Some(queue_id) = found.queue_id else {
            self.totals.anomaly(Anomaly::QueueWithoutId);
            return;
        };
        let Some(row) = self.rows.get_mut(&process).filter(|row| row.alive()) else { return };
        if let Some(queue) = row.queues.get_mut(&queue_id) {
            queue.sources = queue.sources.with(source);
            queue.facts.absorb(found);
            queue.found_suspended(queue.facts.suspended);
            return;
        }
        if row.last_ends.get(&queue_id).is_some_and(|at_ns| *at_ns >= read.from_ns) {
            return;
        }
        row.queues.insert(queue_id, Queue::standing(queue_id, found, source, read.until_ns));
        self.totals.queues_adopted += 1;
        if found.evicted == Some(true) {
            self.found_evicted(process, found, read.until_ns);
        }
    }
}

fn absorb(row: &mut Process, found: &Listed) {
    row.start_boottime_ns = row.start_boottime_ns.or(found.start_boottime_ns);
    row.ns_tgid = row.ns_tgid.or(found.ns_tgid);
    row.uid = row.uid.or(found.uid);
    row.comm = row.comm.take().or_else(|| found.comm.clone());
    row.memory.counted(&found.vram);
    row.labels.forget();
}

#[cfg(test)]
mod tests;
