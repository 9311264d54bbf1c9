//! Samples of queues: which pointers to read, and what a reading changes.
//!
//! In: readings of live queues, and the last reading of a destroyed queue. Out: the counts of the queue and
//! of its process.

use super::activity::{Reading, Works};
use super::input::{Input, Sample};
use super::process::ProcessKey;
use super::queue::Queue;
use super::rows::State;
use crate::model::pointers::{Memory, Pointers, Unmeasured};

/// A live queue to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    pub queue_id: u32,
    /// Distinguishes the queue from earlier and later ones of the same id: [`Queue::since_ns`].
    pub since_ns: u64,
    pub pointers: Pointers,
}

/// A process with queues to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub key: ProcessKey,
    pub tgid: u32,
    pub uid: Option<u32>,
    /// [`super::ProcessDetails::cgroup`].
    pub cgroup: Option<String>,
    pub start_boottime_ns: Option<u64>,
    pub queues: Vec<Sought>,
}

impl State {
    /// The queues to sample: those of processes that have an address space. Notes why a queue cannot be
    /// sampled.
    pub fn sought(&mut self) -> Vec<Target> {
        self.note(|| Input::Sought);
        let mut targets = Vec::new();
        for row in self.rows.values_mut().filter(|row| row.alive() && row.mm_released_ns.is_none()) {
            let Some(tgid) = row.tgid else { continue };
            let mut queues = Vec::with_capacity(row.queues.len());
            for queue in row.queues.values_mut() {
                match Pointers::of(&queue.facts) {
                    Ok(pointers) => {
                        queues.push(Sought {
                            queue_id: queue.queue_id,
                            since_ns: queue.since_ns(),
                            pointers,
                        });
                    }
                    Err(why) => queue.activity.problem = Some(why),
                }
            }
            if !queues.is_empty() {
                targets.push(Target {
                    key: row.key,
                    tgid,
                    uid: row.uid,
                    cgroup: row.details.cgroup.clone(),
                    start_boottime_ns: row.start_boottime_ns,
                    queues,
                });
            }
        }
        targets
    }

    /// Applies a reading. Drops it if its queue has ended meanwhile or its process's address space was
    /// released. Returns its outcome.
    pub fn sampled(&mut self, sample: &Sample) -> Option<Result<(), Unmeasured>> {
        self.note_sample(sample);
        let row = self.rows.get_mut(&sample.key).filter(|row| row.mm_released_ns.is_none())?;
        let queue = row.queues.get_mut(&sample.queue_id)?;
        if queue.since_ns() != sample.since_ns {
            return None;
        }
        Some(take(queue, &mut row.works, sample.reading, sample.at_ns))
    }

    /// A sample of all queues takes so long that the current counts are unknown.
    pub fn samples_are_late(&mut self) {
        self.note(|| Input::Late);
        for row in self.rows.values_mut().filter(|row| row.alive() && row.mm_released_ns.is_none()) {
            let sampled = row.queues.values_mut().filter(|queue| Pointers::of(&queue.facts).is_ok());
            sampled.for_each(|queue| queue.activity.problem = Some(Unmeasured::Late));
        }
    }

    /// Applies what was read at the pointers of a queue that is being destroyed.
    pub(super) fn read_last(&mut self, key: ProcessKey, queue_id: u32, memory: &Memory, at_ns: u64) {
        let Some(row) = self.rows.get_mut(&key) else { return };
        let Some(queue) = row.queues.get_mut(&queue_id) else { return };
        let Ok(pointers) = Pointers::of(&queue.facts) else { return };
        let rate = queue.activity.measured.and_then(|measured| measured.rate);
        let result = take(queue, &mut row.works, pointers.counts(memory), at_ns);
        queue.activity.complete = result.is_ok();
        // Keep the old rate: the time since the last sample may be nearly zero.
        if let Some(measured) = &mut queue.activity.measured {
            measured.rate = rate;
        }
    }
}

fn take(queue: &mut Queue, works: &mut Works, reading: Reading, at_ns: u64) -> Result<(), Unmeasured> {
    let more = queue.activity.take(reading, at_ns);
    if let Some(why) = queue.activity.problem {
        return Err(why);
    }
    if let (Ok(pointers), Some(measured)) = (Pointers::of(&queue.facts), &queue.activity.measured) {
        let work = works.entry(queue.facts.gpu_id).or_default();
        work.add(pointers.unit, more);
        work.busy_ns = work.busy_ns.max(measured.busy_ns);
    }
    Ok(())
}

/// A queue ends: notes whether its counts are complete.
pub(super) fn ends(queue: &Queue, works: &mut Works) {
    if Pointers::of(&queue.facts).is_ok() && !queue.activity.complete {
        works.entry(queue.facts.gpu_id).or_default().incomplete += 1;
    }
}

/// The queue did not end.
pub(super) fn revives(queue: &mut Queue, works: &mut Works) {
    if Pointers::of(&queue.facts).is_ok() && !queue.activity.complete {
        let work = works.entry(queue.facts.gpu_id).or_default();
        work.incomplete = work.incomplete.saturating_sub(1);
    }
    queue.activity.complete = false;
}

#[cfg(test)]
mod tests;
