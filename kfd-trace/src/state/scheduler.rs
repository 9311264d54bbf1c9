//! The rules for preemptions and runlists: of a GPU, of the process on whose behalf its list changes, and of the
//! others that wait meanwhile.

use super::change::Change;
use super::process::{Process, ProcessKey};
use super::rows::State;
use super::schedules::LastList;
use crate::model::event::Event;
use crate::model::mes::MesQueue;
use crate::model::runlist::{Preemption, Reason, Runlist};

impl State {
    pub(super) fn preempt(&mut self, event: &Event, preemption: &Preemption, change: &mut Change) {
        let Some(gpu_id) = preemption.gpu_id else { return };
        let scheduled = self.scheduled.entry(gpu_id).or_default();
        scheduled
            .preempted
            .entry(preemption.reason)
            .or_default()
            .returns(preemption.errno, preemption.latency_ns);
        // Of a process that touched poisoned memory alone the queues are taken off, and reset.
        let of_one = preemption.reason == Some(Reason::Poison);
        // Nothing is on the GPU until the next list is. After a failure some are off, or none, until the reset that
        // follows.
        let nothing = LastList {
            processes: scheduled.last.and_then(|last| last.processes),
            queues: Some(0),
            cp_queues: Some(0),
            oversubscribed: Some(false),
        };
        scheduled.last = (preemption.errno == 0 && !of_one).then_some(nothing);
        if !of_one {
            self.charge(event, gpu_id, 1, preemption.latency_ns, change);
        }
    }

    pub(super) fn runlist(&mut self, event: &Event, list: &Runlist, change: &mut Change) {
        let Some(gpu_id) = list.gpu_id else { return };
        let scheduled = self.scheduled.entry(gpu_id).or_default();
        let lists = scheduled.lists.entry(list.reason).or_default();
        if list.errno == 0 {
            lists.sent += 1;
            let Runlist { processes, queues, cp_queues, oversubscribed, .. } = *list;
            scheduled.last = Some(LastList { processes, queues, cp_queues, oversubscribed });
        } else {
            *lists.failed.entry(list.errno).or_default() += 1;
        }
        self.charge(event, gpu_id, 0, list.unmapped_ns.unwrap_or(0), change);
    }

    pub(super) fn mes_queue(&mut self, change: &MesQueue) {
        let Some(gpu_id) = change.gpu_id else { return };
        let scheduled = self.scheduled.entry(gpu_id).or_default();
        scheduled.mes.entry(change.op).or_default().returns(change.errno, change.latency_ns);
    }

    /// Time of a change: to the process on whose behalf it is, and to the others that have active queues there.
    fn charge(&mut self, event: &Event, gpu_id: u32, count: u64, ns: u64, change: &mut Change) {
        let own = event.process.map(ProcessKey::Traced);
        change.process = own.filter(|key| self.rows.contains_key(key));
        for row in self.rows.values_mut().filter(|row| row.alive()) {
            let is_own = Some(row.key) == own;
            // A further context of the same PID (7.2) does not wait for another process.
            let waits = !is_own && (event.tgid.is_none() || row.tgid != event.tgid) && row.runs_on(gpu_id);
            if is_own || waits {
                let preempts = row.preempts.entry(gpu_id).or_default();
                let of = if is_own { &mut preempts.own } else { &mut preempts.others };
                of.count += count;
                of.ns = of.ns.saturating_add(ns);
            }
            if waits {
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
    use super::super::schedules::{Preempted, Preempts};
    use super::*;
    use crate::model::event::{Body, ProcessSeen};
    use crate::model::mes::MesOp;
    use crate::model::mes::samples::mes_queue;
    use crate::model::runlist::samples;
    use crate::state::samples::{create, event, seen, state};

    const GPU: u32 = 58270;

    fn preemption(reason: Reason, latency_ns: u64) -> Preemption {
        Preemption { reason: Some(reason), latency_ns, ..samples::preemption() }
    }

    fn list(unmapped_ns: Option<u64>) -> Runlist {
        Runlist { unmapped_ns, processes: Some(2), queues: Some(3), ..samples::list() }
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
        assert_eq!(
            preempts(&state, 700),
            Preempts { own: Preempted { count: 1, ns: 57 }, ..Preempts::default() }
        );
        assert_eq!(
            preempts(&state, 800),
            Preempts { others: Preempted { count: 1, ns: 57 }, ..Preempts::default() }
        );
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
    fn a_further_context_of_a_pid_does_not_wait_for_the_first() {
        let mut state = two();
        let Body::ProcessSeen(process) = seen(false) else { unreachable!() };
        let further = ProcessSeen { context_id: Some(1), ..process };
        state.apply(&event(3, 9, 700, Body::ProcessSeen(further)));
        state.apply(&event(4, 9, 700, create(3)));
        let change = state.apply(&event(10, 1, 700, Body::Preempt(preemption(Reason::Create, 50))));
        assert_eq!((change.hit, state.live().count()), (vec![800], 3));
    }

    #[test]
    fn poison_takes_the_queues_of_one_process_off() {
        let mut state = two();
        state.apply(&event(9, 1, 700, Body::Runlist(list(None))));
        let change = state.apply(&event(10, 1, 700, Body::Preempt(preemption(Reason::Poison, 50))));
        assert_eq!((change.hit, preempts(&state, 800)), (vec![], Preempts::default()));
        assert_eq!(state.snapshot().scheduled[&GPU].last, None, "how many of how many is not known");
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
        let created = &all.preempted[&Some(Reason::Create)];
        assert_eq!((created.stat.returned, created.stat.latency_ns, created.stat.buckets[1]), (1, 2_000, 1));
        assert_eq!((all.preempted[&Some(Reason::Destroy)].errors[&62], all.last), (1, None));
        assert_eq!(all.lists[&Some(Reason::Create)].sent, 1);
        let well = all.preempted.values().filter(|sum| sum.stat.returned > 0);
        assert_eq!(well.count(), 1);
    }

    #[test]
    fn what_mes_does_is_counted_by_gpu_and_operation() {
        let mut state = two();
        let change = |op, errno| Body::MesQueue(MesQueue { op, errno, latency_ns: 2_000, ..mes_queue() });
        let before = state.snapshot();
        let done = state.apply(&event(10, 1, 700, change(MesOp::Add, 0)));
        assert_eq!(
            (done.hit, done.process.is_some()),
            (vec![], true),
            "it is of one process, and no other waits"
        );
        state.apply(&event(11, 2, 800, change(MesOp::Add, 110)));
        let earlier = state.snapshot();
        state.apply(&event(12, 1, 700, change(MesOp::Remove, 0)));
        let now = state.snapshot();
        let mes = &now.scheduled[&GPU].mes;
        assert_eq!((mes[&MesOp::Add].stat.returned, mes[&MesOp::Add].stat.latency_ns), (1, 2_000));
        assert_eq!((mes[&MesOp::Add].errors[&110], mes[&MesOp::Remove].stat.returned), (1, 1));
        assert_eq!(preempts(&state, 800), Preempts::default());
        let since = |earlier| now.clone().scheduled_since(earlier).scheduled[&GPU].mes.clone();
        assert_eq!(since(&before).len(), 2);
        assert_eq!(since(&earlier).into_keys().collect::<Vec<_>>(), [MesOp::Remove]);
    }
}
