//! Activity of the queues of a process, from the pointers in its memory. In: activity per queue. Out: sums.
//! Pure.

use super::evicted::Backlog;
use crate::model::event::QueueFacts;
use crate::model::pointers::{Pointers, Unit, Unmeasured};
use crate::state::Activity;
use serde::Serialize;
use std::collections::BTreeMap;

/// Sums for a process over all of its contexts and GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sampled {
    /// Queues whose pointers were read and understood.
    pub queues_measured: usize,
    /// Queues that were not measured, by reason.
    pub not_measured: BTreeMap<&'static str, usize>,
    pub packets_submitted: u64,
    pub packets_retired: u64,
    pub sdma_ring_bytes_submitted: u64,
    pub sdma_ring_bytes_retired: u64,
    /// Something is pending or running, or was submitted or retired between the two readings.
    pub busy: bool,
}

/// By PID.
pub type AllSampled = BTreeMap<u32, Sampled>;

impl Sampled {
    /// Adds a queue. `activity` is `None` for a queue that could not be sampled.
    pub fn add(&mut self, queue: &QueueFacts, activity: Option<&Activity>) {
        let unit = Pointers::of(queue).map(|pointers| pointers.unit);
        let measured = activity.and_then(Activity::now);
        let (Ok(unit), Some(measured)) = (unit, measured) else {
            let why = unit.err().or(activity.and_then(Activity::problem)).unwrap_or(Unmeasured::Failed);
            *self.not_measured.entry(why.name()).or_default() += 1;
            return;
        };
        self.queues_measured += 1;
        let (submitted, retired) = match unit {
            Unit::Packets => (&mut self.packets_submitted, &mut self.packets_retired),
            Unit::RingBytes => (&mut self.sdma_ring_bytes_submitted, &mut self.sdma_ring_bytes_retired),
        };
        *submitted += measured.counts.submitted;
        *retired += measured.counts.retired;
        let moves = measured.rate.is_some_and(|rate| rate.submitted > 0.0 || rate.retired > 0.0);
        self.busy |= moves || measured.counts.backlog() > 0;
    }

    /// Packets, and bytes of SDMA commands, that are submitted and not retired.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let bytes = self.sdma_ring_bytes_submitted.saturating_sub(self.sdma_ring_bytes_retired);
        (self.packets_submitted.saturating_sub(self.packets_retired), bytes)
    }

    /// Something waits, and nothing was retired since these earlier sums.
    pub(super) fn stood_still_since(&self, before: &Self) -> bool {
        let retired = |sums: &Self| (sums.packets_retired, sums.sdma_ring_bytes_retired);
        self.backlog() != (0, 0) && retired(self) == retired(before)
    }
}

/// For example `127644 packets retired, busy`; `idle` if nothing moves and everything could be read. `all`: each queue was
/// measured.
#[must_use]
pub fn words(queues_measured: usize, all: bool, packets_retired: u64, busy: bool) -> String {
    let state = match (busy, all) {
        (true, _) => "busy",
        (false, true) => "idle",
        (false, false) => "not all measured",
    };
    if queues_measured == 0 {
        return state.to_owned();
    }
    format!("{packets_retired} packets retired, {state}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Body, ProcessId};
    use crate::model::pointers::Counts;
    use crate::model::pointers::samples::sdma;
    use crate::state::samples::{create, event, facts, seen, state};
    use crate::state::{Reading, Sample, State};

    const S: u64 = 1_000_000_000;

    /// Queues 3 (AQL) and 4 (SDMA) after these readings, one second apart.
    fn after(readings: &[[Reading; 2]]) -> Sampled {
        let mut all = state();
        all.apply(&event(S, 1, 700, seen(false)));
        all.apply(&event(S, 1, 700, create(3)));
        all.apply(&event(S, 1, 700, Body::QueueCreate(sdma(4))));
        for (at, both) in (2..).zip(readings) {
            for (queue_id, reading) in [3, 4].into_iter().zip(both) {
                let key = ProcessId(1).into();
                all.sampled(&Sample { key, queue_id, since_ns: S, reading: *reading, at_ns: at * S });
            }
        }
        sampled(&all)
    }

    fn sampled(all: &State) -> Sampled {
        let mut sampled = Sampled::default();
        for queue in all.process_of_tgid(700).expect("the process").queues.values() {
            sampled.add(&queue.facts, Some(&queue.activity));
        }
        sampled
    }

    fn said(sampled: &Sampled) -> String {
        let Sampled { queues_measured, not_measured, packets_retired, busy, .. } = sampled;
        words(*queues_measured, not_measured.is_empty(), *packets_retired, *busy)
    }

    fn counts(submitted: u64, retired: u64) -> Reading {
        Ok(Counts { submitted, retired })
    }

    #[test]
    fn counts_are_summed_by_what_they_count() {
        let sampled = after(&[[counts(9, 9), counts(640, 640)]]);
        let expected = Sampled {
            queues_measured: 2,
            packets_submitted: 9,
            packets_retired: 9,
            sdma_ring_bytes_submitted: 640,
            sdma_ring_bytes_retired: 640,
            ..Sampled::default()
        };
        assert_eq!((&sampled, said(&sampled).as_str()), (&expected, "9 packets retired, idle"));
    }

    #[test]
    fn who_moves_or_waits_is_busy() {
        let idle = [counts(9, 9), counts(0, 0)];
        assert!(!after(&[idle, idle]).busy);
        assert!(after(&[idle, [counts(9, 9), counts(64, 0)]]).busy);
        assert!(after(&[idle, [counts(10, 10), counts(0, 0)]]).busy);
        assert_eq!(said(&after(&[idle, [counts(10, 10), counts(0, 0)]])), "10 packets retired, busy");
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let sampled = after(&[[Err(Unmeasured::Denied), counts(0, 0)]]);
        assert_eq!((sampled.queues_measured, &sampled.not_measured), (1, &[("denied", 1)].into()));
        assert_eq!(said(&sampled), "0 packets retired, not all measured");
        let mut none = Sampled::default();
        none.add(&facts(3), None);
        assert_eq!((said(&none).as_str(), none.not_measured), ("not all measured", [("failed", 1)].into()));
    }
}
