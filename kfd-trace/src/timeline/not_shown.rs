//! Lives of processes that were not requested: a log's packets of them are known as such.

use super::known::{Known, KnownProcess, KnownQueue, begun};
use crate::model::event::Event;
use crate::state::{Change, ProcessKey, Queue, State};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct NotShown {
    processes: BTreeMap<ProcessKey, Hidden>,
}

/// Places among the known ones; queues by their id, those that live.
#[derive(Debug)]
struct Hidden {
    pid: Option<u32>,
    known: Option<usize>,
    queues: BTreeMap<u32, Option<usize>>,
}

impl NotShown {
    /// Takes an event that is not shown.
    pub(super) fn event(&mut self, known: &mut Known, state: &State, event: &Event, change: &Change) {
        let (Some(key), Some(id)) = (change.process, begun(&event.body)) else { return };
        let row = state.process(key);
        let pid = row.and_then(|row| row.tgid);
        let process = self.processes.entry(key).or_insert_with(|| {
            let process = KnownProcess { track: None, pid, ns_pid: None, ended_ns: None };
            let known = known.add_process(process);
            Hidden { pid, known, queues: BTreeMap::new() }
        });
        known.process_is(process.known, row);
        let queue = row.and_then(|row| row.queues.get(&id));
        process
            .queues
            .entry(id)
            .or_insert_with(|| known.add_queue(process.known, KnownQueue::new(None, queue, event.mono_ns)));
    }

    /// A process that was there before has got its number.
    pub(super) fn renumber(&mut self, state: &State, key: ProcessKey) {
        if self.processes.is_empty() || self.processes.contains_key(&key) {
            return;
        }
        let pid = state.process(key).and_then(|row| row.tgid);
        let before = self.processes.iter().find(|(before, process)| {
            matches!(before, ProcessKey::Adopted(_))
                && pid.is_some()
                && process.pid == pid
                && state.process(**before).is_none()
        });
        if let Some(before) = before.map(|(before, _)| *before)
            && let Some(process) = self.processes.remove(&before)
        {
            self.processes.insert(key, process);
        }
    }

    pub(super) fn queue_ends(&mut self, known: &mut Known, key: ProcessKey, queue: &Queue, at_ns: u64) {
        let process = self.processes.get_mut(&key);
        if let Some(index) = process.and_then(|process| process.queues.remove(&queue.queue_id)) {
            known.queue_is(index, Some(queue));
            known.queue_ends(index, at_ns);
        }
    }

    /// The queue is shown from now on.
    pub(super) fn forget(&mut self, known: &mut Known, key: ProcessKey, id: u32, at_ns: u64) {
        let process = self.processes.get_mut(&key);
        if let Some(index) = process.and_then(|process| process.queues.remove(&id)) {
            known.queue_lost(index, at_ns);
        }
    }

    pub(super) fn process_ends(&mut self, known: &mut Known, key: ProcessKey, at_ns: u64) {
        if let Some(process) = self.processes.remove(&key) {
            known.process_ends(process.known, at_ns);
        }
    }

    /// `seen`: it is not that the recording has a gap.
    pub(super) fn all_end(&mut self, known: &mut Known, at_ns: u64, seen: bool) {
        for process in std::mem::take(&mut self.processes).into_values() {
            for index in process.queues.into_values() {
                if seen { known.queue_ends(index, at_ns) } else { known.queue_lost(index, at_ns) }
            }
            known.process_ends(process.known, at_ns);
        }
    }

    /// What was learned of those that live.
    pub(super) fn settle(&mut self, known: &mut Known, state: &State) {
        for (key, process) in &mut self.processes {
            // One that was there before may have got its number since.
            let row = state.process(*key).or_else(|| state.process_of_tgid(process.pid?));
            known.process_is(process.known, row);
            for (id, index) in &process.queues {
                known.queue_is(*index, row.and_then(|row| row.queues.get(id)));
            }
        }
    }
}
