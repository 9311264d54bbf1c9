//! What is known of GPUs' lists of queues and their preemptions: values, without the rules ([`super::scheduler`]).

use super::ioctls::{IoctlSum, subtract};
use super::process::Process;
use super::snapshot::Snapshot;
use crate::model::runlist::Reason;
use std::collections::{BTreeMap, HashMap};

/// What a GPU was made to run. A reason is `None` where the calling function is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduled {
    /// Preemptions: durations of those that took all queues off, and the errnos of those that did not.
    pub preempted: BTreeMap<Option<Reason>, IoctlSum>,
    pub lists: BTreeMap<Option<Reason>, Lists>,
    /// The last list; `None` before the first one is seen.
    pub last: Option<LastList>,
}

impl Scheduled {
    /// What was counted since an earlier moment; the last list is today's.
    fn since(&self, earlier: Option<&Self>) -> Self {
        let none = Self::default();
        let earlier = earlier.unwrap_or(&none);
        let mut preempted = self.preempted.clone();
        for (reason, sum) in &earlier.preempted {
            if let Some(all) = preempted.get_mut(reason) {
                all.subtract(sum);
            }
        }
        preempted.retain(|_, sum| sum.stat.returned > 0 || !sum.errors.is_empty());
        let mut lists = self.lists.clone();
        for (reason, before) in &earlier.lists {
            if let Some(all) = lists.get_mut(reason) {
                all.sent = all.sent.saturating_sub(before.sent);
                subtract(&mut all.failed, &before.failed);
            }
        }
        lists.retain(|_, lists| *lists != Lists::default());
        Self { preempted, lists, last: self.last }
    }
}

/// Lists that were made for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Submitted.
    pub sent: u64,
    /// They could not be made or submitted, by positive errno.
    pub failed: BTreeMap<i32, u64>,
}

/// The list that a GPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastList {
    /// With queues on the GPU; `None` where that could not be read, as in the others.
    pub processes: Option<u32>,
    pub queues: Option<u32>,
    pub cp_queues: Option<u32>,
    pub oversubscribed: Option<bool>,
}

/// Preemptions of a GPU that concern a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preempts {
    /// On its behalf.
    pub own: Preempted,
    /// On behalf of others, or of no process, while it had active queues there.
    pub others: Preempted,
}

/// Some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preempted {
    pub count: u64,
    /// Time that the GPU's queues were taken off, or off, nanoseconds.
    pub ns: u64,
}

impl Preempts {
    fn since(self, earlier: Self) -> Self {
        let since = |now: Preempted, before: Preempted| Preempted {
            count: now.count.saturating_sub(before.count),
            ns: now.ns.saturating_sub(before.ns),
        };
        Self { own: since(self.own, earlier.own), others: since(self.others, earlier.others) }
    }
}

impl Snapshot {
    /// Of preemptions and lists, what was counted since an earlier snapshot of the same state: other processes and
    /// reasons are left out. All else is today's.
    #[must_use]
    pub fn scheduled_since(mut self, earlier: &Self) -> Self {
        for (gpu_id, scheduled) in &mut self.scheduled {
            *scheduled = scheduled.since(earlier.scheduled.get(gpu_id));
        }
        let by_key: HashMap<_, _> = earlier.processes.iter().map(|row| (row.key, row)).collect();
        // A process that was only listed has another key once a probe sees it.
        let started = |row: &Process| row.tgid.zip(row.start_boottime_ns);
        let by_start: HashMap<_, _> =
            earlier.processes.iter().filter_map(|row| Some((started(row)?, row))).collect();
        for row in &mut self.processes {
            let by_start = || started(row).and_then(|start| by_start.get(&start));
            if let Some(before) = by_key.get(&row.key).or_else(by_start) {
                for (gpu_id, preempts) in &mut row.preempts {
                    *preempts = preempts.since(before.preempts.get(gpu_id).copied().unwrap_or_default());
                }
            }
            row.preempts.retain(|_, preempts| *preempts != Preempts::default());
        }
        self
    }
}

/// By gpu_id.
pub type Schedules = BTreeMap<u32, Scheduled>;

#[cfg(test)]
mod tests {
    use super::super::process::ProcessKey;
    use super::super::source::Sources;
    use super::*;
    use crate::model::event::ProcessId;

    const GPU: u32 = 7;

    fn others(count: u64) -> Preempts {
        Preempts { others: Preempted { count, ns: count * 10 }, ..Preempts::default() }
    }

    fn row(key: ProcessKey, start_ns: u64, count: u64) -> Process {
        let mut row = Process::new(key, Some(700), Sources::default(), 0);
        row.start_boottime_ns = Some(start_ns);
        row.preempts.insert(GPU, others(count));
        row
    }

    fn since(earlier: Process, now: Process) -> Option<Preempts> {
        let of = |row| Snapshot { processes: vec![row], ..Snapshot::default() };
        of(now).scheduled_since(&of(earlier)).processes[0].preempts.get(&GPU).copied()
    }

    #[test]
    fn a_listed_process_is_the_same_once_a_probe_sees_it() {
        let (listed, traced) = (ProcessKey::Adopted(1), ProcessKey::Traced(ProcessId(9)));
        assert_eq!(since(row(listed, 5, 3), row(traced, 5, 4)), Some(others(1)));
        assert_eq!(since(row(traced, 5, 3), row(traced, 5, 3)), None);
        // Another process of the same PID.
        assert_eq!(since(row(listed, 4, 3), row(traced, 5, 4)), Some(others(4)));
    }

    #[test]
    fn failures_and_lists_before_are_taken_off() {
        let scheduled = |failures: u64, sent: u64| {
            let mut all = Scheduled::default();
            let sum = all.preempted.entry(None).or_default();
            (0..failures).for_each(|_| sum.returns(62, 0));
            all.lists.insert(None, Lists { sent, failed: [(5, failures)].into() });
            all
        };
        let counted = scheduled(3, 9).since(Some(&scheduled(1, 4)));
        assert_eq!(counted.preempted[&None].errors, [(62, 2)].into());
        assert_eq!(counted.lists[&None], Lists { sent: 5, failed: [(5, 2)].into() });
        let nothing = scheduled(1, 4).since(Some(&scheduled(1, 4)));
        assert_eq!((nothing.preempted.len(), nothing.lists.len()), (0, 0));
    }
}
