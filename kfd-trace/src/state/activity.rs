//! What queues do: readings of their pointers, held together over time.
//!
//! Takes in readings of live queues, and the last one of a queue that is destroyed. Gives out for each queue its counts, its rate,
//! whether it stalls and how long it has been idle; for each process, by GPU, counts that never go down.

use std::collections::BTreeMap;

use super::process::ProcessKey;
use super::queue::Queue;
use super::rows::State;
use crate::model::pointers::{Counts, Memory, Pointers, Unit, Unmeasured};

/// A queue that has a backlog and retires nothing for so long is stalled, nanoseconds.
pub const STALLED_AFTER_NS: u64 = 10_000_000_000;

/// What was read of one queue.
pub type Reading = Result<Counts, Unmeasured>;

/// What is known of one queue's activity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    measured: Option<Measured>,
    /// Why the last reading told nothing.
    problem: Option<Unmeasured>,
    /// The last reading was made when nothing could be added any more.
    complete: bool,
}

/// Of a queue whose pointers were understood. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Since the queue's creation.
    pub counts: Counts,
    pub at_ns: u64,
    /// Between the last two readings that told something; `None` before.
    pub rate: Option<Rate>,
    /// When it was last seen to retire something, or first seen with its backlog.
    progressed_ns: u64,
    /// When it was last seen with a backlog, or with something new or done.
    busy_ns: u64,
}

/// Per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub submitted: f64,
    pub retired: f64,
}

impl Measured {
    fn first(counts: Counts, at_ns: u64) -> Self {
        Measured { counts, at_ns, rate: None, progressed_ns: at_ns, busy_ns: at_ns }
    }

    fn then(self, counts: Counts, at_ns: u64) -> Self {
        let submitted = counts.submitted - self.counts.submitted;
        let retired = counts.retired - self.counts.retired;
        let passed = at_ns.saturating_sub(self.at_ns);
        let rate = (passed > 0)
            .then(|| Rate { submitted: per_second(submitted, passed), retired: per_second(retired, passed) });
        let (idle, was_idle) = (counts.backlog() == 0, self.counts.backlog() == 0);
        Measured {
            counts,
            at_ns,
            rate: rate.or(self.rate),
            progressed_ns: if idle || was_idle || retired > 0 { at_ns } else { self.progressed_ns },
            busy_ns: if idle && submitted == 0 && retired == 0 { self.busy_ns } else { at_ns },
        }
    }

    /// As of the last reading.
    #[must_use]
    pub fn stalled(&self) -> bool {
        self.counts.backlog() > 0 && self.at_ns.saturating_sub(self.progressed_ns) >= STALLED_AFTER_NS
    }

    /// As of the last reading: 0 while it has a backlog.
    #[must_use]
    pub fn idle_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.busy_ns)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn per_second(count: u64, passed_ns: u64) -> f64 {
    count as f64 * 1e9 / passed_ns as f64
}

impl Activity {
    /// Takes in a reading, and gives what it adds to what was known.
    fn take(&mut self, reading: Reading, at_ns: u64) -> Counts {
        self.complete = false;
        let before = self.measured.map(|measured| measured.counts).unwrap_or_default();
        let counts = match reading {
            Ok(counts) if counts.submitted < before.submitted || counts.retired < before.retired => {
                self.problem = Some(Unmeasured::WentBack);
                return Counts::default();
            }
            Ok(counts) => counts,
            Err(problem) => {
                self.problem = Some(problem);
                return Counts::default();
            }
        };
        self.problem = None;
        self.measured = Some(match self.measured {
            Some(measured) => measured.then(counts, at_ns),
            None => Measured::first(counts, at_ns),
        });
        Counts { submitted: counts.submitted - before.submitted, retired: counts.retired - before.retired }
    }

    /// Its memory went.
    pub(super) fn lost(&mut self) {
        self.problem = Some(Unmeasured::Gone);
    }

    /// The last counts, also where later readings told nothing.
    #[must_use]
    pub fn last(&self) -> Option<&Measured> {
        self.measured.as_ref()
    }

    /// What is so now: nothing where the last reading told nothing.
    #[must_use]
    pub fn now(&self) -> Option<&Measured> {
        self.measured.as_ref().filter(|_| self.problem.is_none())
    }

    /// Why nothing is known of now; `None` also before the first reading.
    #[must_use]
    pub fn problem(&self) -> Option<Unmeasured> {
        self.problem
    }

    /// Its counts are all that there will be.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.complete
    }
}

/// What the queues of a process did on one GPU, those that ended included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// AQL.
    pub packets: Counts,
    /// SDMA.
    pub ring_bytes: Counts,
    /// Queues that ended without a last reading: what they did after their last sample is in no count.
    pub incomplete: u64,
    /// When one of them was last seen with a backlog, or with something new or done, CLOCK_MONOTONIC nanoseconds; 0 for never.
    busy_ns: u64,
}

impl Work {
    fn add(&mut self, unit: Unit, more: Counts) {
        let sum = match unit {
            Unit::Packets => &mut self.packets,
            Unit::RingBytes => &mut self.ring_bytes,
        };
        // Whatever the process wrote there.
        sum.submitted = sum.submitted.saturating_add(more.submitted);
        sum.retired = sum.retired.saturating_add(more.retired);
    }

    /// Since one of the queues was last seen to work, as of a reading.
    #[must_use]
    pub fn idle_ns(&self, reading: &Measured) -> u64 {
        reading.at_ns.saturating_sub(self.busy_ns)
    }
}

/// By gpu_id; `None` where it could not be read.
pub type Works = BTreeMap<Option<u32>, Work>;

/// A live queue whose pointers are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    pub queue_id: u32,
    /// Tells the queue from an earlier and a later one of its id: [`Queue::since_ns`].
    pub since_ns: u64,
    pub pointers: Pointers,
}

/// A process whose queues' pointers are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub key: ProcessKey,
    pub tgid: u32,
    pub start_boottime_ns: Option<u64>,
    pub queues: Vec<Sought>,
}

/// What became of a [`Sought`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub key: ProcessKey,
    pub queue_id: u32,
    pub since_ns: u64,
    pub reading: Reading,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
}

impl State {
    /// What is to be sampled: queues of processes that have an address space. Of queues that cannot be, why is noted.
    pub fn sought(&mut self) -> Vec<Target> {
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
                targets.push(Target { key: row.key, tgid, start_boottime_ns: row.start_boottime_ns, queues });
            }
        }
        targets
    }

    /// Takes in a reading. It is dropped when its queue has ended meanwhile, or its process's address space has gone.
    /// Gives what it came to.
    pub fn sampled(&mut self, sample: &Sample) -> Option<Result<(), Unmeasured>> {
        let row = self.rows.get_mut(&sample.key).filter(|row| row.mm_released_ns.is_none())?;
        let queue = row.queues.get_mut(&sample.queue_id)?;
        if queue.since_ns() != sample.since_ns {
            return None;
        }
        Some(take(queue, &mut row.works, sample.reading, sample.at_ns))
    }

    /// A sample of all queues takes so long that nothing is known of them now.
    pub fn samples_are_late(&mut self) {
        for row in self.rows.values_mut().filter(|row| row.alive() && row.mm_released_ns.is_none()) {
            let sampled = row.queues.values_mut().filter(|queue| Pointers::of(&queue.facts).is_ok());
            sampled.for_each(|queue| queue.activity.problem = Some(Unmeasured::Late));
        }
    }

    /// What stood at the pointers of a queue that is destroyed now.
    pub(super) fn read_last(&mut self, key: ProcessKey, queue_id: u32, memory: &Memory, at_ns: u64) {
        let Some(row) = self.rows.get_mut(&key) else { return };
        let Some(queue) = row.queues.get_mut(&queue_id) else { return };
        let Ok(pointers) = Pointers::of(&queue.facts) else { return };
        let rate = queue.activity.measured.and_then(|measured| measured.rate);
        let told = take(queue, &mut row.works, pointers.counts(memory), at_ns);
        queue.activity.complete = told.is_ok();
        // The time since the last sample may be next to nothing.
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

/// A queue ends: whether its counts are whole is noted.
pub(super) fn ends(queue: &Queue, works: &mut Works) {
    if Pointers::of(&queue.facts).is_ok() && !queue.activity.complete {
        works.entry(queue.facts.gpu_id).or_default().incomplete += 1;
    }
}

/// It did not end.
pub(super) fn revives(queue: &mut Queue, works: &mut Works) {
    if Pointers::of(&queue.facts).is_ok() && !queue.activity.complete {
        let work = works.entry(queue.facts.gpu_id).or_default();
        work.incomplete = work.incomplete.saturating_sub(1);
    }
    queue.activity.complete = false;
}

#[cfg(test)]
mod tests;
