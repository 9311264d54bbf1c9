//! The state at one moment, for the outputs.

use super::gpu::GpuStates;
use super::process::Process;
use super::queue::Queue;
use super::schedules::Schedules;
use super::totals::Totals;

/// Owned and ordered: by tgid, then by first sight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Live processes, and the remembered ones that ended.
    pub processes: Vec<Process>,
    pub gpus: GpuStates,
    pub scheduled: Schedules,
    pub totals: Totals,
}

impl Snapshot {
    /// Live processes.
    pub fn live(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.alive())
    }

    /// Live queues with their processes.
    pub fn queues(&self) -> impl Iterator<Item = (&Process, &Queue)> {
        self.live().flat_map(|process| process.queues.values().map(move |queue| (process, queue)))
    }
}
