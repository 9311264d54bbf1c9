//! How many processes get series of their own within an hour. To a store each is new: a tenant that starts 100,000
//! processes an hour must not cost it more series than this.
//!
//! In: the processes that could have series, the most important first. Out: those that do.

use crate::model::event::ProcessId;
use crate::state::Process;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

const HOUR_NS: u64 = 3_600_000_000_000;

/// What distinguishes its series: PID and number of the KFD process. Not its key: of what sysfs lists, each scrape has
/// keys of its own.
pub(super) type Identity = (Option<u32>, Option<ProcessId>);

pub(super) fn identity(process: &Process) -> Identity {
    (process.tgid, process.id())
}

/// Which processes have series, and which were new within the last hour.
#[derive(Clone, Debug)]
pub struct Newcomers {
    per_hour: usize,
    /// When those of the last hour came, the oldest first.
    times_ns: VecDeque<u64>,
    admitted: Arc<BTreeSet<Identity>>,
    /// Of the candidates, those that were refused.
    refused: BTreeSet<Identity>,
    refused_in_all: u64,
}

/// The result for one scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    pub(super) processes: Arc<BTreeSet<Identity>>,
    /// Processes that were refused, since the start.
    pub(super) refused: u64,
}

impl Newcomers {
    /// `per_hour`: of new processes, in any hour.
    #[must_use]
    pub fn new(per_hour: u64) -> Self {
        let (admitted, refused) = (Arc::default(), BTreeSet::new());
        let per_hour = usize::try_from(per_hour).unwrap_or(usize::MAX);
        Newcomers { per_hour, times_ns: VecDeque::new(), admitted, refused, refused_in_all: 0 }
    }

    /// `candidates`: in their order; `most`: how many may have series at the same time. `now_ns`: CLOCK_MONOTONIC.
    pub fn admit(&mut self, candidates: &[&Process], most: usize, now_ns: u64) -> Admitted {
        while self.times_ns.front().is_some_and(|came_ns| now_ns.saturating_sub(*came_ns) >= HOUR_NS) {
            self.times_ns.pop_front();
        }
        let is_known = |process: &&Process| self.admitted.contains(&identity(process));
        // Mostly none came or ended.
        if candidates.len() > most
            || candidates.len() != self.admitted.len()
            || !candidates.iter().all(is_known)
        {
            self.admit_anew(candidates, most, now_ns);
        }
        Admitted { processes: Arc::clone(&self.admitted), refused: self.refused_in_all }
    }

    fn admit_anew(&mut self, candidates: &[&Process], most: usize, now_ns: u64) {
        let (known, refused) = (std::mem::take(&mut self.admitted), std::mem::take(&mut self.refused));
        let (mut admitted, mut without) = (BTreeSet::new(), 0);
        for identity in candidates.iter().map(|process| identity(process)) {
            let has_room = admitted.len() + without < most;
            if refused.contains(&identity) && !(has_room && self.times_ns.len() < self.per_hour) {
                self.refused.insert(identity);
                without += usize::from(has_room);
            } else if !has_room || admitted.contains(&identity) {
                // Contexts of a process can have the same identity.
            } else if known.contains(&identity) {
                admitted.insert(identity);
            } else if self.times_ns.len() < self.per_hour {
                self.times_ns.push_back(now_ns);
                admitted.insert(identity);
            } else {
                self.refused_in_all += 1;
                self.refused.insert(identity);
                without += 1;
            }
        }
        self.admitted = Arc::new(admitted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::samples::{event, seen, state};
    use std::ops::Range;

    /// The numbers of those that have series, and how many were refused until now.
    fn admit(newcomers: &mut Newcomers, processes: Range<u64>, most: usize, now_ns: u64) -> (Vec<u64>, u64) {
        let mut state = state();
        for process in processes {
            let pid = u32::try_from(process).expect("small");
            state.apply(&event(process, process, 700 + pid, seen(false)));
        }
        let rows: Vec<&Process> = state.live().collect();
        let admitted = newcomers.admit(&rows, most, now_ns);
        let number = |(_, id): &Identity| id.map_or(0, |id| id.0);
        (admitted.processes.iter().map(number).collect(), admitted.refused)
    }

    #[test]
    fn no_more_than_the_budget_are_new_within_any_hour_and_who_has_series_keeps_them() {
        let mut newcomers = Newcomers::new(4);
        assert_eq!(admit(&mut newcomers, 1..4, 9, 0), (vec![1, 2, 3], 0));
        assert_eq!(admit(&mut newcomers, 1..7, 9, 10), (vec![1, 2, 3, 4], 2));
        assert_eq!(admit(&mut newcomers, 1..7, 9, 20), (vec![1, 2, 3, 4], 2), "each is refused once");
        assert_eq!(admit(&mut newcomers, 2..7, 9, HOUR_NS - 1), (vec![2, 3, 4], 2));
        // The first three came an hour ago.
        assert_eq!(
            admit(&mut newcomers, 1..8, 9, HOUR_NS),
            (vec![1, 2, 3, 4, 5, 6], 3),
            "one that left is new"
        );
        assert_eq!(admit(&mut newcomers, 1..8, 9, HOUR_NS + 10), (vec![1, 2, 3, 4, 5, 6, 7], 3));
    }

    #[test]
    fn what_has_no_place_costs_no_budget() {
        let mut newcomers = Newcomers::new(4);
        assert_eq!(admit(&mut newcomers, 1..9, 2, 0), (vec![1, 2], 0));
        assert_eq!(admit(&mut newcomers, 2..9, 2, 1), (vec![2, 3], 0));
        assert_eq!(admit(&mut newcomers, 4..9, 2, 2), (vec![4], 1), "1, 2 and 3 were new before");
        assert_eq!(admit(&mut newcomers, 4..9, 2, 3), (vec![4], 1));
    }
}
