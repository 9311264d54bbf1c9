//! The rules for queues that a debugger suspends and resumes.

use super::process::Process;
use super::queue::{Debugger, Queue, Rare, Suspended};
use crate::model::event::Event;
use crate::model::suspension::{QueueResult, Queues, Suspension};

/// What a call made of a queue.
#[derive(Clone, Copy)]
enum Made {
    Suspended,
    Resumed,
    Unclear,
}

impl Process {
    pub(super) fn suspend_queues(&mut self, call: &Suspension, event: &Event) {
        self.suspension(call, event, Made::Suspended);
    }

    pub(super) fn resume_queues(&mut self, call: &Suspension, event: &Event) {
        self.suspension(call, event, Made::Resumed);
    }

    fn suspension(&mut self, call: &Suspension, event: &Event, done: Made) {
        // The driver fails as a whole only before it touches a queue (`get_queue_ids`).
        if call.errno != 0 {
            return;
        }
        let by = Debugger { pid: event.task_tgid, comm: call.by_comm.clone() };
        let (listed, more) = match &call.queues {
            Queues::All => {
                self.queues.values_mut().for_each(|queue| queue.suspension(done, &by, event.mono_ns));
                return;
            }
            Queues::Named { listed, more } => (listed, *more),
        };
        for queue in self.queues.values_mut() {
            let made = match listed.iter().find(|named| named.queue_id == queue.queue_id) {
                Some(named) => match named.result {
                    Some(QueueResult::Ok) => done,
                    Some(QueueResult::Invalid) => continue,
                    Some(QueueResult::Error) | None => Made::Unclear,
                },
                // It may be one of those that do not fit in the record.
                None if more > 0 => Made::Unclear,
                None => continue,
            };
            queue.suspension(made, &by, event.mono_ns);
        }
    }
}

/// Of a queue that was never suspended.
static NEVER: Suspended = Suspended { by: None, since_ns: None, count: 0, unclear: false };

impl Queue {
    /// How it came to be suspended.
    #[must_use]
    pub fn suspended(&self) -> &Suspended {
        self.rare.as_ref().map_or(&NEVER, |rare| &rare.suspended)
    }

    /// Observed suspends; `None` where they cannot be observed.
    #[must_use]
    pub fn suspensions(&self) -> Option<u64> {
        let Suspended { count, unclear, .. } = *self.suspended();
        (self.facts.suspended.is_some() || unclear).then_some(count)
    }

    fn suspension(&mut self, made: Made, by: &Debugger, at_ns: u64) {
        self.changed_ns = at_ns;
        let Suspended { since_ns, count, .. } = *self.suspended();
        match made {
            // Again: by whom and since when stays.
            Made::Suspended if self.facts.suspended == Some(true) && since_ns.is_some() => return,
            Made::Suspended => {
                let (by, since_ns) = (Some(by.clone()), Some(at_ns));
                self.keep_suspended(Suspended { by, since_ns, count: count + 1, unclear: false });
                self.facts.suspended = Some(true);
            }
            Made::Resumed => {
                self.keep_suspended(Suspended { count, ..Suspended::default() });
                self.facts.suspended = Some(false);
            }
            Made::Unclear => {
                self.keep_suspended(Suspended { count, unclear: true, ..Suspended::default() });
                self.facts.suspended = None;
            }
        }
        self.settle_active();
    }

    fn keep_suspended(&mut self, suspended: Suspended) {
        self.keep(Rare { suspended, ..self.rare() });
    }

    /// Its properties were read: what they show of it holds, by whom and since when only if it is still suspended.
    pub(super) fn found_suspended(&mut self, suspended: Option<bool>) {
        let Some(suspended) = suspended else { return };
        let Some(known) = self.rare.as_mut().map(|rare| &mut rare.suspended) else { return };
        if !suspended {
            (known.by, known.since_ns) = (None, None);
        }
        known.unclear = false;
    }

    /// Sets `active` as the driver has it after an eviction, a restore, a suspend or a resume
    /// (kfd_device_queue_manager.c, `QUEUE_IS_ACTIVE`).
    pub(super) fn settle_active(&mut self) {
        let unclear = self.suspended().unclear;
        let facts = &mut self.facts;
        facts.active = match (facts.ring_size, facts.ring_address, facts.percent) {
            _ if facts.evicted == Some(true) || facts.suspended == Some(true) => Some(false),
            _ if unclear => None,
            (Some(size), Some(address), Some(percent)) => Some(size > 0 && address != 0 && percent > 0),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Body, ProcessId, QueueFacts};
    use crate::model::incident::{Eviction, QueueUpdate};
    use crate::model::suspension::NamedQueue;
    use crate::model::suspension::samples::{resume_of_all, suspension};
    use crate::state::State;
    use crate::state::samples::{create, event, facts, seen, state};

    const GDB: u32 = 4711;

    /// Three queues.
    fn debugged() -> State {
        let mut state = state();
        state.apply(&event(1, 1, 700, seen(false)));
        for queue_id in [3, 4, 5] {
            state.apply(&event(2, 1, 700, create(queue_id)));
        }
        state
    }

    fn by_debugger(at_ns: u64, body: Body) -> Event {
        Event { task_tgid: GDB, ..event(at_ns, 1, 700, body) }
    }

    fn suspend(state: &mut State, at_ns: u64, call: Suspension) {
        let change = state.apply(&by_debugger(at_ns, Body::QueuesSuspended(call)));
        assert_eq!((change.process, change.anomalies), (Some(ProcessId(1).into()), vec![]));
    }

    fn resume(state: &mut State, at_ns: u64, call: Suspension) {
        state.apply(&by_debugger(at_ns, Body::QueuesResumed(call)));
    }

    fn named(queues: &[(u32, Option<QueueResult>)], more: u32) -> Suspension {
        let listed =
            queues.iter().map(|(queue_id, result)| NamedQueue { queue_id: *queue_id, result: *result });
        Suspension { queues: Queues::Named { listed: listed.collect(), more }, ..suspension() }
    }

    /// Of queues 3, 4 and 5: suspended, active.
    fn shown(state: &State) -> [(Option<bool>, Option<bool>); 3] {
        let row = state.process(ProcessId(1).into()).expect("a row");
        [3, 4, 5].map(|id| (row.queues[&id].facts.suspended, row.queues[&id].facts.active))
    }

    fn queue(state: &State, id: u32) -> &Queue {
        &state.process(ProcessId(1).into()).expect("a row").queues[&id]
    }

    const RUNS: (Option<bool>, Option<bool>) = (Some(false), Some(true));
    const STOPPED: (Option<bool>, Option<bool>) = (Some(true), Some(false));
    const UNCLEAR: (Option<bool>, Option<bool>) = (None, None);

    #[test]
    fn two_of_three_are_suspended_and_resumed() {
        let mut state = debugged();
        suspend(&mut state, 10, suspension());
        assert_eq!(shown(&state), [STOPPED, STOPPED, RUNS]);
        let by = Debugger { pid: GDB, comm: Some("rocgdb".to_owned()) };
        let expected = Suspended { by: Some(by), since_ns: Some(10), count: 1, unclear: false };
        assert_eq!(*queue(&state, 3).suspended(), expected);
        suspend(&mut state, 20, suspension());
        assert_eq!(*queue(&state, 3).suspended(), expected, "it was already");
        resume(&mut state, 30, named(&[(3, Some(QueueResult::Ok))], 0));
        assert_eq!(shown(&state), [RUNS, STOPPED, RUNS]);
        assert_eq!(*queue(&state, 3).suspended(), Suspended { count: 1, ..Suspended::default() });
        resume(&mut state, 40, resume_of_all());
        assert_eq!(shown(&state), [RUNS; 3]);
    }

    #[test]
    fn what_fails_as_a_whole_changes_nothing() {
        let mut state = debugged();
        let failed = Suspension { errno: 14, count: None, ..named(&[(3, None)], 7) };
        suspend(&mut state, 10, failed);
        assert_eq!(shown(&state), [RUNS; 3]);
    }

    #[test]
    fn without_a_result_it_is_not_known() {
        let mut state = debugged();
        suspend(&mut state, 10, named(&[(3, Some(QueueResult::Error)), (4, Some(QueueResult::Invalid))], 0));
        assert_eq!(shown(&state), [UNCLEAR, RUNS, RUNS]);
        suspend(&mut state, 20, named(&[(4, Some(QueueResult::Ok))], 1));
        assert_eq!(shown(&state), [UNCLEAR, STOPPED, UNCLEAR], "each other one may be the one more");
        resume(&mut state, 30, resume_of_all());
        assert_eq!(shown(&state), [RUNS; 3]);
    }

    #[test]
    fn a_restore_does_not_run_what_is_suspended() {
        let mut state = debugged();
        suspend(&mut state, 10, named(&[(3, Some(QueueResult::Ok)), (4, None)], 0));
        let gpu = Eviction { gpu_id: facts(3).gpu_id, trigger: None, errno: 0, latency_ns: 1 };
        state.apply(&event(20, 1, 700, Body::Evict(gpu)));
        resume(&mut state, 25, named(&[(5, Some(QueueResult::Ok))], 0));
        assert_eq!(shown(&state).map(|(_, active)| active), [Some(false); 3]);
        state.apply(&event(30, 1, 700, Body::Restore(gpu)));
        assert_eq!(shown(&state), [STOPPED, UNCLEAR, RUNS]);
    }

    #[test]
    fn an_update_shows_what_was_missed() {
        let mut state = debugged();
        suspend(&mut state, 10, named(&[(3, Some(QueueResult::Ok)), (4, None)], 0));
        let update = |now: QueueFacts| {
            Body::QueueUpdate(QueueUpdate { now, cu_mask: None, mask_unread: false, errno: Some(0) })
        };
        state.apply(&event(20, 1, 700, update(QueueFacts { suspended: None, active: None, ..facts(4) })));
        assert_eq!(shown(&state)[1].0, None, "it is not shown");
        for queue_id in [3, 4] {
            state.apply(&event(30, 1, 700, update(facts(queue_id))));
        }
        assert_eq!(shown(&state), [RUNS; 3]);
        assert_eq!(*queue(&state, 3).suspended(), Suspended { count: 1, ..Suspended::default() });
        let found = QueueFacts { suspended: Some(true), active: Some(false), ..facts(5) };
        state.apply(&event(40, 1, 700, update(found)));
        assert_eq!((shown(&state)[2], queue(&state, 5).suspended().since_ns), (STOPPED, None));
        suspend(&mut state, 50, named(&[(5, Some(QueueResult::Ok))], 0));
        assert_eq!(queue(&state, 5).suspended().since_ns, Some(50), "the record comes after its effect");
    }

    #[test]
    fn a_queue_that_takes_the_id_is_not_suspended() {
        let mut state = debugged();
        suspend(&mut state, 10, suspension());
        state.apply(&event(20, 1, 700, crate::state::samples::destroy(3)));
        state.apply(&event(30, 1, 700, create(3)));
        assert_eq!((shown(&state)[0], queue(&state, 3).suspended().clone()), (RUNS, Suspended::default()));
    }
}
