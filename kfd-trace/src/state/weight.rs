//! How much memory a state takes, estimated: a recording that anybody may have written must not fill the machine's.
//!
//! In: a state. Out: bytes, without the allocator's share.

use super::input::Input;
use super::process::{Process, ProcessDetails};
use super::queue::Queue;
use super::rows::State;
use super::schedules::Scheduled;
use crate::model::event::{Body, Event};
use crate::model::incident::CuMask;

/// A key and a value of a map of numbers.
const ENTRY: usize = 64;
/// A followed allocation.
const ALLOCATION: usize = 96;

impl State {
    /// Bytes that it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let rows: usize = self.rows.values().map(Process::weight).sum();
        let totals = &self.totals;
        let entries = [
            self.ended.len(),
            self.rows.len(),
            self.gpus.len(),
            self.scheduled.values().map(Scheduled::entries).sum(),
            self.places.len(),
            totals.open_errors.len(),
            totals.queues_created.len(),
            totals.queues_destroyed.len(),
            totals.queues_revived.len(),
            totals.queue_updates.len(),
            totals.mqd_writes.len(),
            totals.evictions.len(),
            totals.restores.len(),
            totals.evicted_ns.len(),
        ];
        rows + ENTRY * entries.iter().sum::<usize>()
    }
}

impl Scheduled {
    /// How many its maps have. Errnos count, since a file can name any.
    fn entries(&self) -> usize {
        let lists: usize = self.lists.values().map(|lists| 1 + lists.failed.len()).sum();
        let sums = self.preempted.values().chain(self.mes.values());
        8 + lists + sums.map(|sum| 1 + sum.errors.len()).sum::<usize>()
    }
}

impl Process {
    /// Bytes that it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let queues: usize = self.queues.values().chain(&self.ended_queues).map(Queue::weight).sum();
        let entries = [
            self.evictions.len(),
            self.vm_faults.len(),
            self.works.len(),
            self.preempts.len(),
            self.mqd_of_unborn.len(),
            self.last_ends.len(),
            self.memory.sums().len(),
            self.memory.vram().len(),
        ];
        size_of::<Self>()
            + text(self.comm.as_ref())
            + text(self.cgroup_leaf.as_ref())
            + self.details.weight()
            + queues
            + ALLOCATION * self.memory.count_held()
            + size_of::<u32>() * self.memory.count_gpus()
            + ENTRY * entries.iter().sum::<usize>()
    }
}

impl ProcessDetails {
    /// Bytes of its texts.
    #[must_use]
    pub fn weight(&self) -> usize {
        let ProcessDetails { cmdline, cgroup, belongs, pod, container_name, job } = self;
        let pod = pod.iter().map(|pod| pod.namespace.len() + pod.pod.len() + text(pod.container.as_ref()));
        let job = job.iter().map(|job| text(job.account.as_ref()) + text(job.partition.as_ref()));
        let container = belongs.container.iter().map(|container| container.id.len());
        let texts = [cmdline, cgroup, container_name, &belongs.pod_uid, &belongs.unit];
        let texts = texts.into_iter().map(|each| text(each.as_ref()));
        texts.chain(pod).chain(job).chain(container).sum()
    }
}

impl Queue {
    fn weight(&self) -> usize {
        let rare = self.rare.as_ref().map_or(0, |rare| size_of_val(&**rare));
        size_of::<Self>() + ENTRY + mask(self.cu_mask.as_ref()) + rare
    }
}

impl Input {
    /// Bytes by which it makes a state larger, at most some.
    #[must_use]
    pub fn weight(&self) -> usize {
        const USUAL: usize = 1024;
        match self {
            Input::Event(Event { body, .. }) => {
                let kept = match body {
                    Body::ProcessSeen(seen) => text(seen.cgroup_leaf.as_ref()),
                    Body::QueueUpdate(update) => mask(update.cu_mask.as_ref()),
                    _ => 0,
                };
                USUAL + kept + body.comm().map_or(0, str::len)
            }
            Input::Details { details, .. } => USUAL + details.weight(),
            Input::Process { process, .. } => {
                let vram = ENTRY * process.vram.len();
                USUAL * (1 + process.queues.len()) + text(process.comm.as_ref()) + vram
            }
            Input::Vram { changed, .. } => {
                ENTRY * changed.iter().map(|vram| 1 + vram.bytes.len()).sum::<usize>()
            }
            _ => USUAL,
        }
    }
}

fn mask(mask: Option<&CuMask>) -> usize {
    mask.map_or(0, |mask| size_of_val(&mask.words[..]))
}

fn text(text: Option<&String>) -> usize {
    text.map_or(0, String::len)
}
