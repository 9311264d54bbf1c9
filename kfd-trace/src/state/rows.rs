//! The rows: created, queried, ended and forgotten.

use super::change::Change;
use super::gpu::GpuStates;
use super::input::Input;
use super::limits::StateLimits;
use super::places::Places;
use super::process::{Process, ProcessDetails, ProcessKey};
use super::queue::{Cause, QueueEnd};
use super::schedules::Schedules;
use super::snapshot::Snapshot;
use super::totals::{Anomaly, Totals};
use crate::model::event::{Body, Event, ProcessId};
use std::collections::{BTreeMap, VecDeque};

/// Processes, their queues, and totals.
#[derive(Debug)]
pub struct State {
    pub(super) limits: StateLimits,
    pub(super) rows: BTreeMap<ProcessKey, Process>,
    pub(super) places: Places,
    /// Ended rows, earliest end first.
    pub(super) ended: VecDeque<ProcessKey>,
    /// Numbers of the rows dropped since the last [`State::expire`].
    forgotten: Vec<ProcessId>,
    pub(super) gpus: GpuStates,
    pub(super) scheduled: Schedules,
    pub(super) totals: Totals,
    /// Of all processes, that are followed one by one.
    pub(super) allocations: usize,
    /// Until then records were lost that may have been of calls which change memory, CLOCK_MONOTONIC nanoseconds.
    pub(super) memory_missed_ns: Option<u64>,
    pub(super) adopted_keys: u64,
    /// If it is recorded.
    pub(super) tape: Option<Vec<Input>>,
}

impl State {
    #[must_use]
    pub fn new(limits: StateLimits) -> Self {
        Self {
            limits,
            rows: BTreeMap::new(),
            places: Places::default(),
            ended: VecDeque::new(),
            forgotten: Vec::new(),
            gpus: GpuStates::new(),
            scheduled: Schedules::new(),
            totals: Totals::default(),
            allocations: 0,
            memory_missed_ns: None,
            adopted_keys: 0,
            tape: None,
        }
    }

    #[must_use]
    pub fn limits(&self) -> StateLimits {
        self.limits
    }

    /// Adds details from /proc. Does nothing if the row no longer exists.
    pub fn enrich(&mut self, key: ProcessKey, details: ProcessDetails) {
        self.note(|| Input::Details { key, details: details.clone() });
        if let Some(row) = self.rows.get_mut(&key) {
            row.details = details;
            row.labels.forget();
        }
    }

    /// Ends a live process whose end was missed: /proc shows that it no longer exists. Its queues end with
    /// it. Returns its release, as an event.
    pub fn gone(&mut self, key: ProcessKey, now_ns: u64) -> (Event, Change) {
        self.note(|| Input::Gone { key, at_ns: now_ns });
        let mut change = Change { process: Some(key), ..Change::default() };
        if self.rows.get(&key).is_some_and(Process::alive) {
            self.anomaly(Anomaly::EndNotSeen, &mut change);
            self.end_process(key, now_ns, Cause::NotSeen, &mut change);
        }
        (self.event_of(key, now_ns, Body::ProcessRelease), change)
    }

    /// An event of a row for which no thread ran.
    pub(super) fn event_of(&self, key: ProcessKey, at_ns: u64, body: Body) -> Event {
        let row = self.rows.get(&key);
        Event::of_standing(at_ns, row.and_then(Process::id), row.and_then(|row| row.tgid), body)
    }

    /// Forgets processes that ended longer ago than they are kept. Returns the numbers of all that were
    /// forgotten since the last call: their rows in the maps are no longer needed.
    pub fn expire(&mut self, now_ns: u64) -> Vec<ProcessId> {
        let before = self.rows.len();
        while let Some(key) = self.ended.front().copied() {
            let fresh = self
                .rows
                .get(&key)
                .and_then(|row| row.released_ns)
                .is_some_and(|at| now_ns.saturating_sub(at) < self.limits.linger_ns);
            if fresh {
                break;
            }
            self.forget(key);
        }
        if self.rows.len() < before {
            self.note(|| Input::Expired { at_ns: now_ns });
        }
        std::mem::take(&mut self.forgotten)
    }

    /// The row of a process, live or remembered.
    #[must_use]
    pub fn process(&self, key: ProcessKey) -> Option<&Process> {
        self.rows.get(&key)
    }

    /// The rows of live processes.
    pub fn live(&self) -> impl Iterator<Item = &Process> {
        self.rows.values().filter(|row| row.alive())
    }

    /// The live row of a tgid: the one seen last, or of several contexts the first one.
    #[must_use]
    pub fn process_of_tgid(&self, tgid: u32) -> Option<&Process> {
        self.key_of_tgid(tgid).and_then(|key| self.rows.get(&key))
    }

    pub(super) fn key_of_tgid(&self, tgid: u32) -> Option<ProcessKey> {
        self.places.first(tgid)
    }

    /// Makes a live row findable under its tgid and context.
    pub(super) fn index(&mut self, key: ProcessKey) {
        let place = self.rows.get(&key).filter(|row| row.alive()).and_then(Process::place);
        if let Some(place) = place {
            self.places.insert(place, key);
        }
    }

    /// Undoes [`State::index`], unless another row has taken the place.
    pub(super) fn unindex(&mut self, key: ProcessKey) {
        if let Some(place) = self.rows.get(&key).and_then(Process::place) {
            self.places.remove(place, key);
        }
    }

    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// An owned copy, ordered by tgid and first sight.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut processes: Vec<_> = self.rows.values().map(Process::shown).collect();
        processes.sort_by_key(|row| (row.tgid, row.first_seen_ns, row.key));
        Snapshot {
            processes,
            gpus: self.gpus.clone(),
            scheduled: self.scheduled.clone(),
            totals: self.totals.clone(),
        }
    }

    pub(super) fn anomaly(&mut self, anomaly: Anomaly, change: &mut Change) {
        self.totals.anomaly(anomaly);
        change.anomalies.push(anomaly);
    }

    pub(super) fn insert(&mut self, mut row: Process, change: &mut Change) {
        // Its record was read after the loss was noticed, and is of before.
        if let Some(missed_ns) = self.memory_missed_ns.filter(|missed_ns| row.first_seen_ns <= *missed_ns) {
            row.memory.misses(missed_ns);
        }
        if self.rows.len() >= self.limits.processes {
            self.make_room(change);
        }
        let key = row.key;
        self.rows.insert(key, row);
        self.index(key);
    }

    /// Drops ended rows first.
    fn make_room(&mut self, change: &mut Change) {
        if let Some(key) = self.ended.front().copied() {
            self.forget(key);
            return;
        }
        let silent =
            self.rows.values().min_by_key(|row| row.last_event_ns).map(|row| (row.key, row.last_event_ns));
        if let Some((key, last)) = silent {
            self.anomaly(Anomaly::ProcessesFull, change);
            self.end_process(key, last, Cause::NotSeen, change);
            self.forget(key);
        }
    }

    fn forget(&mut self, key: ProcessKey) {
        // Usually it is the oldest one.
        if self.ended.front() == Some(&key) {
            self.ended.pop_front();
        } else {
            self.ended.retain(|ended| *ended != key);
        }
        self.rows.remove(&key);
        if let ProcessKey::Traced(id) = key {
            self.forgotten.push(id);
        }
    }

    /// Ends the queues of a live row, and keeps the row as ended.
    pub(super) fn end_process(&mut self, key: ProcessKey, at_ns: u64, cause: Cause, change: &mut Change) {
        let Some(row) = self.rows.get_mut(&key) else { return };
        row.released_ns = Some(at_ns);
        change.released = Some(key);
        row.mqd_of_unborn.clear();
        row.end_evictions(at_ns, &mut self.totals);
        row.memory.end(&mut self.allocations);
        let left: Vec<_> = row.queues.keys().copied().collect();
        for queue_id in left {
            self.end_queue(key, queue_id, None, QueueEnd { at_ns, cause }, change);
        }
        self.totals.processes_ended += 1;
        self.unindex(key);
        self.ended.push_back(key);
        while self.ended.len() > self.limits.ended_processes {
            let Some(oldest) = self.ended.front().copied() else { break };
            self.forget(oldest);
        }
    }
}
