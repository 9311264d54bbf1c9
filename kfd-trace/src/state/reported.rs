//! Rows that another tracer reports: as far as they are known, for the outputs alone. No rule is applied to them.

use super::activity::{Activity, Measured, Rate, STALLED_AFTER_NS};
use super::memory::Memory;
use super::process::{Process, ProcessKey};
use super::queue::{PriorityChange, Queue, Rare};
use super::source::Sources;
use crate::model::event::QueueFacts;
use crate::model::pointers::{Counts, Unmeasured};
use std::collections::BTreeMap;

impl Process {
    #[must_use]
    pub fn reported(key: ProcessKey, tgid: Option<u32>, sources: Sources, at_ns: u64) -> Self {
        Self::new(key, tgid, sources, at_ns)
    }
}

impl Queue {
    #[must_use]
    pub fn reported(queue_id: u32, facts: &QueueFacts, sources: Sources, priority: PriorityChange) -> Self {
        let mut queue = Self::new(queue_id, facts, sources, 0);
        if priority != (PriorityChange { by: None, created_with: None }) {
            queue.keep(Rare { priority: Some(priority), ..Rare::default() });
        }
        queue
    }
}

impl Memory {
    /// `vram`: bytes by gpu_id, as the driver counts them.
    #[must_use]
    pub fn reported(vram: &BTreeMap<u32, u64>) -> Self {
        let mut memory = Self::default();
        memory.counted(vram);
        memory
    }
}

impl Activity {
    #[must_use]
    pub fn reported(measured: Option<Measured>, problem: Option<Unmeasured>, complete: bool) -> Self {
        Activity { measured, problem, complete }
    }
}

impl Measured {
    /// `idle_ns`: since it was last busy.
    #[must_use]
    pub fn reported(counts: Counts, rate: Option<Rate>, at_ns: u64, stalled: bool, idle_ns: u64) -> Self {
        Measured {
            counts,
            at_ns,
            rate,
            progressed_ns: if stalled { at_ns.saturating_sub(STALLED_AFTER_NS) } else { at_ns },
            busy_ns: at_ns.saturating_sub(idle_ns),
        }
    }
}
