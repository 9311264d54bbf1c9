//! How many processes get series of their own within an hour. To a store each is new: a tenant that starts 100,000
//! processes an hour must not cost it more series than this.
//!
//! In: the processes that could have series, the most important first. Out: those that do. A budget that fills
//! up by time, and holds an hour's worth at most.

use crate::state::{Process, ProcessKey};
use std::collections::BTreeSet;

const HOUR_NS: u64 = 3_600_000_000_000;

/// Which processes have series, and what is left of the budget.
#[derive(Clone, Debug)]
pub struct Newcomers {
    /// What one process takes of an hour, nanoseconds.
    each_ns: u64,
    left_ns: u64,
    at_ns: u64,
    admitted: BTreeSet<ProcessKey>,
    refused: BTreeSet<ProcessKey>,
    refused_in_all: u64,
}

/// The result for one scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    pub(super) processes: BTreeSet<ProcessKey>,
    /// Processes that were refused at least once, since the start.
    pub(super) refused: u64,
}

impl Newcomers {
    /// `per_hour`: of new processes.
    #[must_use]
    pub fn new(per_hour: u64) -> Self {
        let (admitted, refused) = (BTreeSet::new(), BTreeSet::new());
        let each_ns = HOUR_NS / per_hour.max(1);
        Newcomers { each_ns, left_ns: HOUR_NS, at_ns: 0, admitted, refused, refused_in_all: 0 }
    }

    /// `candidates`: in their order; `most`: how many may have series at the same time. `now_ns`: CLOCK_MONOTONIC.
    pub fn admit(&mut self, candidates: &[&Process], most: usize, now_ns: u64) -> Admitted {
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.at_ns, now_ns));
        self.left_ns = self.left_ns.saturating_add(passed_ns).min(HOUR_NS);
        let (known, refused) = (std::mem::take(&mut self.admitted), std::mem::take(&mut self.refused));
        for process in candidates {
            let key = process.key;
            let has_room = self.admitted.len() + self.refused.len() < most;
            if known.contains(&key) {
                self.admitted.insert(key);
            } else if has_room && self.left_ns >= self.each_ns {
                self.left_ns -= self.each_ns;
                self.admitted.insert(key);
            } else if has_room {
                self.refused_in_all += u64::from(!refused.contains(&key));
                self.refused.insert(key);
            }
        }
        Admitted { processes: self.admitted.clone(), refused: self.refused_in_all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::ProcessId;
    use crate::state::samples::{event, seen, state};
    use std::ops::Range;

    /// The numbers of those that have series, and how many were refused until now.
    fn admit(newcomers: &mut Newcomers, processes: Range<u64>, most: usize, now_ns: u64) -> (Vec<u64>, u64) {
        let mut state = state();
        for process in processes {
            state.apply(&event(process, process, 700, seen(false)));
        }
        let rows: Vec<&Process> = state.live().collect();
        let admitted = newcomers.admit(&rows, most, now_ns);
        let number = |key: &ProcessKey| match key {
            ProcessKey::Traced(ProcessId(number)) => *number,
            ProcessKey::Adopted(_) => 0,
        };
        (admitted.processes.iter().map(number).collect(), admitted.refused)
    }

    #[test]
    fn no_more_than_the_budget_are_new_within_an_hour_and_who_has_series_keeps_them() {
        let mut newcomers = Newcomers::new(4);
        assert_eq!(admit(&mut newcomers, 1..4, 9, 0), (vec![1, 2, 3], 0));
        assert_eq!(admit(&mut newcomers, 1..7, 9, 1), (vec![1, 2, 3, 4], 2));
        assert_eq!(admit(&mut newcomers, 1..7, 9, 2), (vec![1, 2, 3, 4], 2), "each is refused once");
        // A quarter of an hour is one more.
        assert_eq!(admit(&mut newcomers, 2..7, 9, HOUR_NS / 4 + 2), (vec![2, 3, 4, 5], 2));
        assert_eq!(
            admit(&mut newcomers, 1..7, 9, HOUR_NS / 4 + 3),
            (vec![2, 3, 4, 5], 3),
            "one that left is new"
        );
        // After a day there is one hour's worth.
        let day_ns = 25 * HOUR_NS;
        assert_eq!(admit(&mut newcomers, 10..17, 9, day_ns), (vec![10, 11, 12, 13], 6));
    }

    #[test]
    fn what_has_no_place_costs_no_budget() {
        let mut newcomers = Newcomers::new(4);
        assert_eq!(admit(&mut newcomers, 1..9, 2, 0), (vec![1, 2], 0));
        assert_eq!(admit(&mut newcomers, 2..9, 2, 1), (vec![2, 3], 0));
        assert_eq!(admit(&mut newcomers, 4..9, 2, 2), (vec![4], 1), "1, 2 and 3 were new before");
    }
}
