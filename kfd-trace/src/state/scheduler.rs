//! The rules for preemptions and runlists: of a GPU, of the process on whose behalf its list changes, and of the
//! others that wait meanwhile.

use super::change::Change;
use super::process::{Process, ProcessKey};
use super::rows::State;
use super::schedules::LastList;
use crate::model::event::Event;
use crate::model::runlist::{Preemption, Reason, Runlist};

impl State {
    pub(super) fn preempt(&mut self, event: &Event, preemption: &Preemption, change: &mut Change) {
        let Some(gpu_id) = preemption.gpu_id else { return };
        let scheduled = self.scheduled.entry(gpu_id).or_default();
        if preemption.errno == 0 {
            scheduled.preempted.entry(preemption.reason).or_default().add(preemption.latency_ns);
            // Nothing is on the GPU until the next list is.
            scheduled.last = Some(LastList {
                processes: scheduled.last.and_then(|last| last.processes),
                queues: Some(0),
                cp_queues: Some(0),
                oversubscribed: Some(false),
            });
        } else {
            *scheduled.failed.entry((preemption.reason, preemption.errno)).or_default() += 1;
            // Some are off, or none, until the reset that follows.
            scheduled.last = None;
        }
        if preemption.reason == Some(Reason::Poison) {
            // Only the queues of the process that touched poisoned memory are taken off, and reset.
            scheduled.last = None;
            return;
        }
        self.charge(event, gpu_id, 1, preemption.latency_ns, change);
    }

    pub(super) fn runlist(&mut self, event: &Event, list: &Runlist, change: &mut Change) {
        let Some(gpu_id) = list.gpu_id else { return };
        let scheduled = self.scheduled.entry(gpu_id).or_default();
        if list.errno == 0 {
            *scheduled.lists.entry(list.reason).or_default() += 1;
            let Runlist { processes, queues, cp_queues, oversubscribed, .. } = *list;
            scheduled.last = Some(LastList { processes, queues, cp_queues, oversubscribed });
        } else {
            *scheduled.unsent.entry((list.reason, list.errno)).or_default() += 1;
        }
        self.charge(event, gpu_id, 0, list.unmapped_ns.unwrap_or(0), change);
    }

    /// Time of a change: to the process on whose behalf it is, and to the others that have active queues there.
    fn charge(&mut self, event: &Event, gpu_id: u32, count: u64, ns: u64, change: &mut Change) {
        let own = event.process.map(ProcessKey::Traced);
        change.process = own.filter(|key| self.rows.contains_key(key));
        for row in self.rows.values_mut().filter(|row| row.alive()) {
            let is_own = Some(row.key) == own || (event.tgid.is_some() && row.tgid == event.tgid);
            if is_own && Some(row.key) != own {
                // A further context of the same PID (7.2).
                continue;
            }
            if is_own {
                let preempts = row.preempts.entry(gpu_id).or_default();
                preempts.own += count;
                preempts.own_ns = preempts.own_ns.saturating_add(ns);
            } else if row.runs_on(gpu_id) {
                let preempts = row.preempts.entry(gpu_id).or_default();
                preempts.others += count;
                preempts.others_ns = preempts.others_ns.saturating_add(ns);
                change.hit.extend(row.tgid);
            }
        }
        change.hit.sort_unstable();
        change.hit.dedup();
    }
}

impl Process {
    /// It has a queue there that may be on the GPU's list.
    fn runs_on(&self, gpu_id: u32) -> bool {
        let here = self.queues.values().filter(|queue| queue.facts.gpu_id == Some(gpu_id));
        let mut active = here.map(|queue| queue.facts.active);
        active.any(|active| active != Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedules::Preempts;
    use super::*;
    use crate::model::event::Body;
    use crate::state::samples::{create, event, seen, state};

    const GPU: u32 = 58270;

    fn preemption(reason: Reason, latency_ns: u64) -> Preemption {
        let (gpu_id, reason) = (Some(GPU), Some(reason));
        Preemption { gpu_id, reason, latency_ns, errno: 0, oversubscribed: Some(false) }
    }

    fn list(unmapped_ns: Option<u64>) -> Runlist {
        Runlist {
            gpu_id: Some(GPU),
            reason: Some(Reason::Create),
            unmapped_ns,
            errno: 0,
            processes: Some(2),
            queues: Some(3),
            cp_queues: Some(2),
            oversubscribed: Some(true),
        }
    }

    /// Two processes with a queue each.
    fn two() -> State {
        let mut state = state();
        for (id, pid) in [(1, 700), (2, 800)] {
            state.apply(&event(1, id, pid, seen(false)));
            state.apply(&event(2, id, pid, create(3)));
        }
        state
    }

    fn preempts(state: &State, pid: u32) -> Preempts {
        state.process_of_tgid(pid).and_then(|row| row.preempts.get(&GPU)).copied().unwrap_or_default()
    }

    #[test]
    fn time_goes_to_whom_it_is_for_and_to_those_who_wait() {
        let mut state = two();
        let change = state.apply(&event(10, 1, 700, Body::Preempt(preemption(Reason::Create, 50))));
        assert_eq!(
            (change.hit, change.process),
            (vec![800], Some(ProcessKey::Traced(event(10, 1, 700, Body::Close).process.unwrap())))
        );
        state.apply(&event(11, 1, 700, Body::Runlist(list(Some(7)))));
        assert_eq!(preempts(&state, 700), Preempts { own: 1, own_ns: 57, ..Preempts::default() });
        assert_eq!(preempts(&state, 800), Preempts { others: 1, others_ns: 57, ..Preempts::default() });
    }

    #[test]
    fn what_is_for_no_process_lets_all_wait() {
        let mut state = two();
        let of_none = Event {
            process: None,
            tgid: None,
            ..event(10, 1, 0, Body::Preempt(preemption(Reason::Stop, 5)))
        };
        let change = state.apply(&of_none);
        assert_eq!((change.hit, change.process), (vec![700, 800], None));
        assert!(change.anomalies.is_empty());
    }

    #[test]
    fn who_is_evicted_does_not_wait() {
        let mut state = two();
        let evicted =
            crate::model::incident::Eviction { gpu_id: Some(GPU), trigger: None, errno: 0, latency_ns: 1 };
        state.apply(&event(5, 2, 800, Body::Evict(evicted)));
        let change = state.apply(&event(10, 1, 700, Body::Preempt(preemption(Reason::Create, 50))));
        assert_eq!(change.hit, Vec::<u32>::new());
    }

    #[test]
    fn a_gpu_has_counts_and_its_last_list() {
        let mut state = two();
        let of_gpu = |state: &State| state.snapshot().scheduled[&GPU].clone();
        state.apply(&event(9, 1, 700, Body::Runlist(list(None))));
        assert_eq!(of_gpu(&state).last.unwrap().queues, Some(3));
        state.apply(&event(10, 1, 700, Body::Preempt(preemption(Reason::Create, 2_000))));
        let last = of_gpu(&state).last.unwrap();
        assert_eq!((last.queues, last.processes, last.oversubscribed), (Some(0), Some(2), Some(false)));
        let failed = Preemption { errno: 62, ..preemption(Reason::Destroy, 9) };
        state.apply(&event(11, 1, 700, Body::Preempt(failed)));
        let all = of_gpu(&state);
        let created = all.preempted[&Some(Reason::Create)];
        assert_eq!((created.count, created.sum_ns, created.buckets[1]), (1, 2_000, 1));
        assert_eq!((all.failed[&(Some(Reason::Destroy), 62)], all.last), (1, None));
        assert_eq!(all.lists[&Some(Reason::Create)], 1);
        assert_eq!(all.preempted.len(), 1);
    }
}
