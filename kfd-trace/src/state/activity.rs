//! Activity of a queue: counts, rates, stalls and idle time, from readings of its pointers.
//!
//! Each reading adds to the previous one; per-GPU counts of a process never decrease.

use crate::model::pointers::{Counts, Unit, Unmeasured};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A queue that has a backlog and retires nothing for this long is stalled, nanoseconds.
pub const STALLED_AFTER_NS: u64 = 10_000_000_000;

/// One reading of a queue.
pub type Reading = Result<Counts, Unmeasured>;

/// What is known of one queue's activity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    pub(super) measured: Option<Measured>,
    /// Why the last reading gave no counts.
    pub(super) problem: Option<Unmeasured>,
    /// The last reading was made when no more could be added.
    pub(super) complete: bool,
}

/// For a queue whose pointers were understood. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Since the queue's creation.
    pub counts: Counts,
    pub at_ns: u64,
    /// Between the last two successful readings; `None` before.
    pub rate: Option<Rate>,
    /// When it last retired something, or was first seen with its backlog.
    pub(super) progressed_ns: u64,
    /// When it last had a backlog, or new or retired work.
    pub(super) busy_ns: u64,
}

/// Per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Adds a reading; returns what it adds to the known counts.
    pub(super) fn take(&mut self, reading: Reading, at_ns: u64) -> Counts {
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

    /// Its memory was released.
    pub(super) fn lost(&mut self) {
        self.problem = Some(Unmeasured::Gone);
    }

    /// The last counts, even if later readings failed.
    #[must_use]
    pub fn last(&self) -> Option<&Measured> {
        self.measured.as_ref()
    }

    /// The current counts; `None` if the last reading failed.
    #[must_use]
    pub fn now(&self) -> Option<&Measured> {
        self.measured.as_ref().filter(|_| self.problem.is_none())
    }

    /// Why the current counts are unknown; `None` also before the first reading.
    #[must_use]
    pub fn problem(&self) -> Option<Unmeasured> {
        self.problem
    }

    /// Its counts are final.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.complete
    }
}

/// Work of a process's queues on one GPU, ended queues included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// AQL.
    pub packets: Counts,
    /// SDMA.
    pub ring_bytes: Counts,
    /// Queues that ended without a last reading: their work after their last sample is not counted.
    pub incomplete: u64,
    /// When one of them last had a backlog, or new or retired work, CLOCK_MONOTONIC nanoseconds; 0 for never.
    pub(super) busy_ns: u64,
}

impl Work {
    pub(super) fn add(&mut self, unit: Unit, more: Counts) {
        let sum = match unit {
            Unit::Packets => &mut self.packets,
            Unit::RingBytes => &mut self.ring_bytes,
        };
        // The process may have written any value there.
        sum.submitted = sum.submitted.saturating_add(more.submitted);
        sum.retired = sum.retired.saturating_add(more.retired);
    }

    /// Time since one of the queues was last busy, as of a reading.
    #[must_use]
    pub fn idle_ns(&self, reading: &Measured) -> u64 {
        reading.at_ns.saturating_sub(self.busy_ns)
    }
}

/// By gpu_id; `None` where it could not be read.
pub type Works = BTreeMap<Option<u32>, Work>;
