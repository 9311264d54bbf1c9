//! What all samples of queues came to: counts that never go down, and how the sampling itself goes.

use std::collections::BTreeMap;

use super::activity::Sample;
use super::rows::State;
use crate::events::pointers::Unmeasured;

/// Of a tracer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleTotals {
    /// From one sample to the next, nanoseconds; 0 where sampling is off.
    pub interval_ns: u64,
    /// Readings that told something.
    pub told: u64,
    /// Those that did not.
    pub errors: BTreeMap<Unmeasured, u64>,
    /// CPU time of the sampling, nanoseconds.
    pub cpu_ns: u64,
    /// When the last sample was over, CLOCK_MONOTONIC nanoseconds.
    pub last_ns: Option<u64>,
}

impl SampleTotals {
    /// Takes a sample of all queues into the state. What is dropped there counts as nothing here.
    pub fn take(&mut self, state: &mut State, samples: &[Sample], cpu_ns: u64, at_ns: u64) {
        for sample in samples {
            match state.sampled(sample) {
                Some(Ok(())) => self.told += 1,
                Some(Err(why)) => *self.errors.entry(why).or_default() += 1,
                None => {}
            }
        }
        self.cpu_ns += cpu_ns;
        self.last_ns = Some(at_ns);
    }
}
