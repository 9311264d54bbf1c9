//! Queues and processes of two documents, joined: the state as it was there.

use super::process::{key, sources};
use super::{Gpus, Processes, Queues};
use crate::state::{Process, ProcessKey, Snapshot};
use std::collections::HashMap;

/// What lives. The lists are read one after another: the process of a queue may be missing, and is made from the queue.
#[must_use]
pub fn snapshot(queues: &Queues, processes: Processes, gpus: &Gpus) -> Snapshot {
    let at_ns = queues.at_ns();
    let alive = processes.processes.into_iter().filter(|row| row.alive);
    let mut rows: Vec<Process> = alive.map(|row| row.process(at_ns)).collect();
    let mut places: HashMap<ProcessKey, usize> =
        rows.iter().enumerate().map(|(place, row)| (row.key, place)).collect();
    for row in &queues.queues {
        let Some(queue) = row.queue(at_ns) else { continue };
        let key = key(row.process(), row.pid, row.context_id);
        let place = *places.entry(key).or_insert_with(|| {
            let mut process = Process::reported(key, row.pid, sources(row.process()), at_ns);
            process.context_id = row.context_id;
            process.comm.clone_from(&row.comm);
            process.ns_tgid = row.ns_pid;
            rows.push(process);
            rows.len() - 1
        });
        if let Some(process) = rows.get_mut(place) {
            process.queues.insert(queue.queue_id, queue);
        }
    }
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

impl Gpus {
    /// Evictions are counted by GPU.
    #[must_use]
    pub fn have_evictions(&self) -> bool {
        self.gpus.iter().all(|gpu| gpu.evictions.is_some())
    }
}
