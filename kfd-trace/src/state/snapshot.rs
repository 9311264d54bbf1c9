//! The state at one moment, for the outputs.

use super::gpu::GpuStates;
use super::process::Process;
use super::queue::Queue;
use super::schedules::{Preempts, Schedules};
use super::totals::Totals;
use std::collections::HashMap;

/// Owned and ordered: by tgid, then by first sight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Live processes, and the remembered ones that ended.
    pub processes: Vec<Process>,
    pub gpus: GpuStates,
    pub scheduled: Schedules,
    pub totals: Totals,
}

impl Snapshot {
    /// Live processes.
    pub fn live(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.alive())
    }

    /// Live queues with their processes.
    pub fn queues(&self) -> impl Iterator<Item = (&Process, &Queue)> {
        self.live().flat_map(|process| process.queues.values().map(move |queue| (process, queue)))
    }

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

#[cfg(test)]
mod tests {
    use super::super::process::ProcessKey;
    use super::super::schedules::{Lists, Preempted, Scheduled};
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
