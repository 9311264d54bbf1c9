//! Counts over time, in a bounded number of intervals.

use super::limits::INTERVALS;
use std::collections::VecDeque;

/// The shortest interval, microseconds.
const SHORTEST_US: u64 = 1_000_000;

/// Commands and dispatches. Intervals begin at multiples of their length, so they do not depend on the order
/// of lines.
#[derive(Clone, Debug)]
pub struct CommandRate {
    interval_us: u64,
    /// Number of the first interval.
    first: u64,
    counts: VecDeque<[u64; 2]>,
}

impl Default for CommandRate {
    fn default() -> Self {
        CommandRate { interval_us: SHORTEST_US, first: 0, counts: VecDeque::new() }
    }
}

impl CommandRate {
    /// Adds one to `which` (0 or 1) at this time.
    pub fn count(&mut self, time_us: u64, which: usize) {
        let mut at = time_us / self.interval_us;
        if self.counts.is_empty() {
            self.first = at;
        }
        while self.too_far(at) {
            self.halve();
            at = time_us / self.interval_us;
        }
        while at < self.first {
            self.counts.push_front([0; 2]);
            self.first -= 1;
        }
        let index = usize::try_from(at - self.first).unwrap_or(0);
        while self.counts.len() <= index {
            self.counts.push_back([0; 2]);
        }
        if let Some(count) = self.counts.get_mut(index).and_then(|both| both.get_mut(which)) {
            *count += 1;
        }
    }

    fn too_far(&self, at: u64) -> bool {
        let end = self.first + self.counts.len() as u64;
        at.max(end.saturating_sub(1)) - at.min(self.first) >= INTERVALS as u64
    }

    /// Merges pairs of intervals.
    fn halve(&mut self) {
        let mut halved: VecDeque<[u64; 2]> = VecDeque::new();
        let first = self.first / 2;
        for (number, both) in (self.first..).zip(&self.counts) {
            if number / 2 - first == halved.len() as u64 {
                halved.push_back([0; 2]);
            }
            if let Some(last) = halved.back_mut() {
                *last = [last[0] + both[0], last[1] + both[1]];
            }
        }
        *self = CommandRate { interval_us: self.interval_us * 2, first, counts: halved };
    }

    /// Microseconds.
    #[must_use]
    pub fn interval_us(&self) -> u64 {
        self.interval_us
    }

    /// Start of each interval, microseconds, with its two counts; includes empty intervals in between.
    pub fn intervals(&self) -> impl Iterator<Item = (u64, [u64; 2])> {
        (self.first..).zip(&self.counts).map(|(number, both)| (number * self.interval_us, *both))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amd_log::limits::LATEST_US;

    #[test]
    fn counts_are_the_same_in_any_order_and_none_is_lost() {
        let times = [5_000_000, 1_200_000, 900_000_000, 1_300_000, 400_000_000, 3_000_000_000, LATEST_US];
        let mut by_order: Vec<Vec<(u64, [u64; 2])>> = Vec::new();
        for turn in 0..times.len() {
            let mut rate = CommandRate::default();
            for (index, time) in times.iter().cycle().skip(turn).take(times.len()).enumerate() {
                rate.count(*time, index % 2);
                assert!(rate.counts.len() <= INTERVALS);
            }
            let sum: u64 = rate.intervals().map(|(_, both)| both[0] + both[1]).sum();
            assert_eq!(sum, times.len() as u64);
            by_order.push(rate.intervals().map(|(at, both)| (at, [both[0] + both[1], 0])).collect());
        }
        assert!(by_order.windows(2).all(|two| two[0] == two[1]));
    }

    #[test]
    fn intervals_grow_by_halves() {
        let mut rate = CommandRate::default();
        for second in 0..180 {
            rate.count(7_000_000 + second * 1_000_000, 0);
            rate.count(7_000_000 + second * 1_000_000, 1);
        }
        assert_eq!(rate.interval_us(), 2_000_000);
        let intervals: Vec<_> = rate.intervals().collect();
        assert_eq!(
            (intervals[0], intervals[1], intervals.len()),
            ((6_000_000, [1, 1]), (8_000_000, [2, 2]), 91)
        );
    }
}
