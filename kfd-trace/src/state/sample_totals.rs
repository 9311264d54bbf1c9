//! Totals of all queue samples, which never decrease, and statistics of the sampling itself.

use super::input::Sample;
use super::rows::State;
use crate::model::pointers::Unmeasured;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Sampling totals of one tracer.
#[derive(Clone, Debug, Default)]
pub struct SampleTotals {
    /// Interval between samples, nanoseconds; 0 if sampling is off.
    pub interval_ns: u64,
    /// Successful readings.
    pub successes: u64,
    /// Failed readings.
    pub errors: BTreeMap<Unmeasured, u64>,
    /// CPU time of the sampling, nanoseconds.
    pub cpu_ns: u64,
    pub waiting: WaitingReaders,
    /// When the last sample ended, CLOCK_MONOTONIC nanoseconds.
    pub last_ns: Option<u64>,
}

/// Number of threads that wait for the memory of one process each, now: these processes are set aside. All clones are one
/// number, since such a thread outlives the sampling that left it, as by an unload of the driver.
#[derive(Clone, Debug, Default)]
pub struct WaitingReaders(Arc<AtomicUsize>);

impl WaitingReaders {
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(crate) fn begins(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn ends(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl SampleTotals {
    /// Applies a sample of all queues to the state. Readings dropped there are not counted here.
    pub fn take(&mut self, state: &mut State, samples: &[Sample], cpu_ns: u64, at_ns: u64) {
        for sample in samples {
            match state.sampled(sample) {
                Some(Ok(())) => self.successes += 1,
                Some(Err(why)) => *self.errors.entry(why).or_default() += 1,
                None => {}
            }
        }
        self.cpu_ns += cpu_ns;
        self.last_ns = Some(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::ProcessId;
    use crate::model::pointers::Counts;
    use crate::state::samples::{create, event, seen, state};

    #[test]
    fn readings_are_counted_by_result_and_dropped_ones_are_not() {
        let mut state = state();
        state.apply(&event(1, 1, 700, seen(false)));
        state.apply(&event(2, 1, 700, create(3)));
        let of = |queue_id, reading, at_ns| Sample {
            key: ProcessId(1).into(),
            queue_id,
            since_ns: 2,
            reading,
            at_ns,
        };
        let counts = Ok(Counts { submitted: 5, retired: 4 });
        let mut totals = SampleTotals::default();
        totals.take(
            &mut state,
            &[of(3, counts, 5), of(3, Err(Unmeasured::Foreign), 6), of(9, counts, 6)],
            70,
            8,
        );
        totals.take(&mut state, &[of(3, counts, 9)], 7, 10);
        assert_eq!(totals.errors, BTreeMap::from([(Unmeasured::Foreign, 1)]));
        assert_eq!((totals.successes, totals.cpu_ns, totals.last_ns), (2, 77, Some(10)));
    }
}
