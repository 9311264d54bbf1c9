//! Queues and processes of two documents, joined: the state as it was there.

use super::process::key;
use super::{Gpus, Processes, Queues};
use crate::state::{Process, ProcessKey, Snapshot, Sources};
use std::collections::{HashMap, HashSet};

/// What lives. The lists are read one after another: the process of a queue may be missing, and is made from the queue.
#[must_use]
pub fn snapshot(queues: &Queues, processes: Processes, gpus: &Gpus) -> Snapshot {
    let at_ns = queues.at_ns();
    let mut rows = Rows::default();
    for row in processes.processes.into_iter().filter(|row| row.alive) {
        rows.add(row.process(at_ns));
    }
    for row in &queues.queues {
        let Some(queue) = row.queue(at_ns) else { continue };
        let key = key(row.process(), row.pid, row.context_id);
        let place = rows.without(key, queue.queue_id).unwrap_or_else(|| {
            let mut process = Process::reported(key, row.pid, Sources::default(), at_ns);
            process.context_id = row.context_id;
            process.comm.clone_from(&row.comm);
            process.ns_tgid = row.ns_pid;
            rows.add(process)
        });
        if let Some(process) = rows.all.get_mut(place) {
            process.queues.insert(queue.queue_id, queue);
        }
    }
    let mut rows = rows.all;
    rows.sort_by_key(|row| (row.tgid, row.key));
    let mut snapshot = Snapshot { processes: rows, ..Snapshot::default() };
    for gpu in &gpus.gpus {
        snapshot.gpus.insert(gpu.gpu_id, gpu.state(gpus.at_ns));
        if let Some(evictions) = gpu.evictions {
            snapshot.totals.evictions.insert((gpu.gpu_id, None), evictions);
        }
    }
    snapshot
}

/// Processes, each with a key of its own.
#[derive(Default)]
struct Rows {
    all: Vec<Process>,
    /// Where those of a key of the answer are.
    places: HashMap<ProcessKey, Vec<usize>>,
    /// Given to those whose key another one has.
    fresh: HashSet<ProcessKey>,
    last: u64,
}

impl Rows {
    fn add(&mut self, mut process: Process) -> usize {
        let place = self.all.len();
        let places = self.places.entry(process.key).or_default();
        let is_first = places.is_empty() && !self.fresh.contains(&process.key);
        places.push(place);
        if !is_first {
            process.key = self.fresh_key();
        }
        self.all.push(process);
        place
    }

    /// From the end of the numbers downwards: no process has such a PID.
    fn fresh_key(&mut self) -> ProcessKey {
        loop {
            self.last = self.last.wrapping_sub(1);
            let key = ProcessKey::Adopted(self.last);
            if !self.places.contains_key(&key) {
                self.fresh.insert(key);
                return key;
            }
        }
    }

    /// The process of this key that has no queue of this id yet.
    fn without(&self, key: ProcessKey, queue_id: u32) -> Option<usize> {
        let places = self.places.get(&key)?;
        places.iter().copied().find(|place| !self.all[*place].queues.contains_key(&queue_id))
    }
}

impl Gpus {
    /// Evictions are counted by GPU.
    #[must_use]
    pub fn have_evictions(&self) -> bool {
        self.gpus.iter().all(|gpu| gpu.evictions.is_some())
    }
}
