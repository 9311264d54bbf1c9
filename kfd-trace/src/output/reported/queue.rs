//! Live queues: `/api/v1/queues`.

use super::Document;
use super::list::{at_most, decimal, hex, mask, name, sources, unix_ns};
use super::process::key;
use crate::model::event::{Origin, ProcessId, QueueFacts, QueueType};
use crate::model::incident::CuMask;
use crate::model::pointers::{Counts, Unmeasured};
use crate::state::{Activity, Measured, PriorityChange, ProcessKey, Queue, Rate, Sources};
use serde::Deserialize;
use std::collections::HashMap;

/// Rows that are read at most.
const QUEUES: usize = 65_536;
/// Those of one process: more than the driver permits (KFD_MAX_NUM_OF_QUEUES_PER_PROCESS).
const OF_ONE: usize = 4_096;

/// The document.
#[derive(Debug, Deserialize)]
pub struct Queues {
    schema: u64,
    #[serde(rename = "ts", deserialize_with = "unix_ns")]
    at_ns: u64,
    #[serde(deserialize_with = "at_most::<_, _, QUEUES>")]
    pub queues: Vec<QueueRow>,
}

impl Document for Queues {
    fn schema(&self) -> u64 {
        self.schema
    }

    fn check(&self) -> Result<(), String> {
        let mut counts: HashMap<ProcessKey, usize> = HashMap::new();
        for row in &self.queues {
            let count = counts.entry(key(row.process(), row.pid, row.context_id)).or_default();
            *count += 1;
            if *count > OF_ONE {
                return Err(format!("a process has more than {OF_ONE} queues"));
            }
        }
        Ok(())
    }
}

impl Queues {
    /// When the list was made, nanoseconds of the Unix epoch by the daemon's clock.
    #[must_use]
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }
}

/// A queue, as far as something is made of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct QueueRow {
    pub pid: Option<u32>,
    pub(super) ns_pid: Option<u32>,
    #[serde(deserialize_with = "name")]
    pub(super) comm: Option<String>,
    #[serde(deserialize_with = "decimal")]
    kfd_process: Option<u64>,
    pub context_id: Option<u32>,
    pub gpu_id: Option<u32>,
    pub queue_id: Option<u32>,
    #[serde(deserialize_with = "name")]
    queue_type: Option<String>,
    #[serde(deserialize_with = "hex")]
    pub ring_address: Option<u64>,
    ring_size: Option<u64>,
    #[serde(deserialize_with = "hex")]
    write_pointer_address: Option<u64>,
    #[serde(deserialize_with = "hex")]
    read_pointer_address: Option<u64>,
    doorbell_offset: Option<u32>,
    pub priority: Option<u32>,
    percent: Option<u32>,
    sdma_engine_id: Option<u32>,
    active: Option<bool>,
    evicted: Option<bool>,
    suspended: Option<bool>,
    evictions: u64,
    updates: u64,
    pub priority_created: Option<u32>,
    pub priority_changed_by: Option<u32>,
    pub priority_changed_ns: Option<u64>,
    #[serde(deserialize_with = "mask")]
    cu_mask: Option<Vec<u32>>,
    activity: Option<ActivityRow>,
    pub age_ns: Option<u64>,
    resynced: bool,
    unlisted: bool,
    #[serde(deserialize_with = "sources")]
    sources: Sources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ActivityRow {
    submitted: Option<u64>,
    retired: Option<u64>,
    submitted_per_second: Option<f64>,
    retired_per_second: Option<f64>,
    stalled: Option<bool>,
    idle_ns: Option<u64>,
    complete: bool,
    #[serde(deserialize_with = "name")]
    not_measured: Option<String>,
}

impl ActivityRow {
    fn activity(&self, at_ns: u64) -> Activity {
        let counts = self.submitted.zip(self.retired);
        let counts = counts.map(|(submitted, retired)| Counts { submitted, retired: retired.min(submitted) });
        let rate = self.submitted_per_second.zip(self.retired_per_second);
        let rate = rate.map(|(submitted, retired)| Rate { submitted, retired });
        let measured = counts.map(|counts| {
            Measured::reported(counts, rate, at_ns, self.stalled.unwrap_or(false), self.idle_ns.unwrap_or(0))
        });
        let problem = self.not_measured.as_deref();
        // Names that are not known are of a later version.
        let problem = problem.map(|name| Unmeasured::named(name).unwrap_or(Unmeasured::Failed));
        Activity::reported(measured, problem, self.complete)
    }
}

impl QueueRow {
    pub fn process(&self) -> Option<ProcessId> {
        self.kfd_process.map(ProcessId)
    }

    pub fn cu_mask(&self) -> Option<CuMask> {
        self.cu_mask.clone().map(|words| CuMask { words })
    }

    /// `None` without an id. The origin is known of none: nothing is made of it.
    pub(super) fn queue(&self, at_ns: u64) -> Option<Queue> {
        let queue_id = self.queue_id?;
        let facts = QueueFacts {
            queue_id: Some(queue_id),
            gpu_id: self.gpu_id,
            queue_type: self.queue_type.as_deref().and_then(QueueType::named),
            ring_address: self.ring_address,
            ring_size: self.ring_size,
            write_pointer_address: self.write_pointer_address,
            read_pointer_address: self.read_pointer_address,
            doorbell_offset: self.doorbell_offset,
            priority: self.priority,
            percent: self.percent,
            sdma_engine_id: self.sdma_engine_id,
            active: self.active,
            evicted: self.evicted,
            suspended: self.suspended,
            origin: Origin::Other,
        };
        let changed = self.priority_changed_ns.map(|ns| at_ns.saturating_sub(ns));
        let change =
            PriorityChange { by: changed.zip(self.priority_changed_by), created_with: self.priority_created };
        let mut queue = Queue::reported(queue_id, &facts, self.sources, change);
        queue.born_ns = self.age_ns.map(|age_ns| at_ns.saturating_sub(age_ns));
        queue.changed_ns = at_ns;
        queue.updates = self.updates;
        queue.cu_mask = self.cu_mask();
        queue.evictions.count = self.evictions;
        queue.evictions.evicted = self.evicted == Some(true);
        queue.resynced_ns = self.resynced.then_some(at_ns);
        queue.unlisted = self.unlisted;
        queue.activity = self.activity.as_ref().map(|row| row.activity(at_ns)).unwrap_or_default();
        Some(queue)
    }
}
