//! The rules for changes of a live queue: updates and MQD writes.

use super::change::Change;
use super::process::Process;
use super::queue::{MqdWrites, PriorityChange, Queue, Rare};
use super::totals::{Anomaly, Totals};
use crate::model::event::Event;
use crate::model::incident::{MqdOp, QueueUpdate};

impl Process {
    pub(super) fn queue_update(
        &mut self,
        update: &QueueUpdate,
        event: &Event,
        totals: &mut Totals,
        change: &mut Change,
    ) {
        let Some(queue) = update.now.queue_id.and_then(|id| self.queues.get_mut(&id)) else {
            totals.anomaly(Anomaly::UpdateOfUnknownQueue);
            change.anomalies.push(Anomaly::UpdateOfUnknownQueue);
            return;
        };
        change.priority_before = queue.renew(&update.now, Some((event.mono_ns, event.task_tgid)));
        queue.updates += 1;
        queue.changed_ns = event.mono_ns;
        // A mask that could not be set is not in effect.
        if update.cu_mask.is_some() && update.errno == Some(0) {
            queue.cu_mask.clone_from(&update.cu_mask);
        }
        if update.mask_unread && matches!(update.errno, None | Some(0)) {
            queue.cu_mask = None;
        }
        *totals.queue_updates.entry((queue.label(), update.errno)).or_default() += 1;
        let known = queue.evictions.evicted;
        if update.now.evicted.is_some_and(|evicted| evicted != known) {
            // The record of an eviction or a restore was lost.
            self.found_evicted(&update.now, event.mono_ns, totals);
        }
    }

    /// An init or a restore is part of a creation that is not yet reported.
    pub(super) fn mqd_write(&mut self, queue_id: u32, gpu_id: Option<u32>, op: MqdOp, totals: &mut Totals) {
        totals.mqd_writes.entry(gpu_id).or_default().add(op);
        match (op, self.queues.get_mut(&queue_id)) {
            (MqdOp::Update, Some(queue)) => queue.mqd_writes.add(op),
            (MqdOp::Update, None) => self.mqd_of_unborn.entry(queue_id).or_default().add(op),
            (MqdOp::Init | MqdOp::Restore, _) => {
                self.mqd_of_unborn.insert(queue_id, MqdWrites::from([(op, 1)]));
            }
        }
    }
}

impl Queue {
    /// Takes the driver's current values; unreported ones stay. `by`: when and by which tgid they were changed, if
    /// that was seen. Returns the priority before, if it is another one now.
    pub(super) fn renew(
        &mut self,
        now: &crate::model::event::QueueFacts,
        by: Option<(u64, u32)>,
    ) -> Option<u32> {
        let created_with = self.created_priority();
        let before = std::mem::replace(&mut self.facts, now.clone());
        self.facts.origin = before.origin;
        self.facts.absorb(&before);
        self.found_suspended(now.suspended);
        let changed = before.priority.filter(|before| self.facts.priority != Some(*before))?;
        let priority = Some(PriorityChange { by, created_with });
        self.keep(Rare { priority, ..self.rare() });
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Body, ProcessId, QueueFacts};
    use crate::model::incident::{CuMask, Eviction};
    use crate::state::State;
    use crate::state::samples::{create, event, facts, seen, state};

    fn with_queue() -> State {
        let mut state = state();
        state.apply(&event(1, 1, 700, seen(false)));
        state.apply(&event(2, 1, 700, write(MqdOp::Init)));
        state.apply(&event(3, 1, 700, create(3)));
        state
    }

    fn write(op: MqdOp) -> Body {
        Body::MqdWrite { queue_id: 3, gpu_id: Some(58270), op }
    }

    fn queue(state: &State) -> &Queue {
        &state.process(ProcessId(1).into()).expect("row").queues[&3]
    }

    #[test]
    fn an_update_shows_the_current_queue() {
        let mut state = with_queue();
        let now = QueueFacts { percent: Some(0), ring_size: Some(4096), priority: None, ..facts(3) };
        let update = QueueUpdate { now, cu_mask: None, mask_unread: false, errno: Some(0) };
        state.apply(&event(9, 1, 700, Body::QueueUpdate(update)));
        let facts = &queue(&state).facts;
        assert_eq!((facts.percent, facts.ring_size, facts.priority), (Some(0), Some(4096), Some(7)));
        assert_eq!(queue(&state).updates, 1);
    }

    #[test]
    fn who_changed_the_priority_is_known_while_it_was_seen() {
        let mut state = with_queue();
        let update = |priority| {
            let now = QueueFacts { priority: Some(priority), ..facts(3) };
            Body::QueueUpdate(QueueUpdate { now, cu_mask: None, mask_unread: false, errno: Some(0) })
        };
        let shown = |state: &State| {
            let queue = queue(state);
            (queue.created_priority(), queue.priority_change().map(|change| change.by))
        };
        let change = state.apply(&event(8, 1, 700, update(7)));
        assert_eq!((shown(&state), change.priority_before), ((Some(7), None), None), "it is the same");
        let change = state.apply(&Event { task_tgid: 77, ..event(9, 1, 700, update(11)) });
        assert_eq!(change.priority_before, Some(7));
        assert_eq!(shown(&state), (Some(7), Some(Some((9, 77)))));
        state.apply(&event(10, 1, 700, update(11)));
        assert_eq!(shown(&state), (Some(7), Some(Some((9, 77)))), "another change");
        let mut queue = queue(&state).clone();
        queue.renew(&QueueFacts { priority: Some(3), ..facts(3) }, None);
        assert_eq!(queue.created_priority(), Some(7));
        assert_eq!(queue.priority_change().map(|change| change.by), Some(None), "only found so");
    }

    #[test]
    fn an_update_shows_that_a_restore_was_missed() {
        let mut state = with_queue();
        let eviction = Eviction { gpu_id: Some(58270), trigger: None, errno: 0, latency_ns: 1 };
        state.apply(&event(5, 1, 700, Body::Evict(eviction)));
        let update = QueueUpdate { now: facts(3), cu_mask: None, mask_unread: false, errno: Some(0) };
        state.apply(&event(9, 1, 700, Body::QueueUpdate(update)));
        let row = state.process(ProcessId(1).into()).expect("row");
        assert!(!row.queues[&3].evictions.evicted && !row.evicted.evicted);
        assert_eq!(row.queues[&3].evictions.total_ns, 4, "a sum that was shown does not fall");
        assert_eq!(state.totals().evicted_ns[&58270], 4);
    }

    #[test]
    fn a_mask_stays_until_the_next_one() {
        let mut state = with_queue();
        let mask = Some(CuMask { words: vec![0xff] });
        for cu_mask in [mask.clone(), None] {
            let update = QueueUpdate { now: facts(3), cu_mask, mask_unread: false, errno: Some(0) };
            state.apply(&event(9, 1, 700, Body::QueueUpdate(update)));
        }
        assert_eq!((queue(&state).cu_mask.clone(), queue(&state).updates), (mask.clone(), 2));
        let cu_mask = Some(CuMask { words: vec![1] });
        let update = QueueUpdate { now: facts(3), cu_mask, mask_unread: false, errno: Some(13) };
        state.apply(&event(10, 1, 700, Body::QueueUpdate(update)));
        assert_eq!(queue(&state).cu_mask, mask, "it was refused");
    }

    #[test]
    fn a_mask_that_may_have_been_replaced_is_unknown() {
        for (errno, stays) in [(None, false), (Some(0), false), (Some(22), true)] {
            let mut state = with_queue();
            let mask = Some(CuMask { words: vec![0xff] });
            let set = |cu_mask, mask_unread, errno| {
                Body::QueueUpdate(QueueUpdate { now: facts(3), cu_mask, mask_unread, errno })
            };
            state.apply(&event(9, 1, 700, set(mask, false, Some(0))));
            state.apply(&event(10, 1, 700, set(None, true, errno)));
            assert_eq!((queue(&state).cu_mask.is_some(), queue(&state).updates), (stays, 2), "{errno:?}");
        }
    }

    #[test]
    fn the_init_before_the_birth_is_the_queues_own() {
        let mut state = with_queue();
        state.apply(&event(9, 1, 700, write(MqdOp::Update)));
        assert_eq!(queue(&state).mqd_writes, MqdWrites::from([(MqdOp::Init, 1), (MqdOp::Update, 1)]));
    }

    #[test]
    fn the_init_of_a_creation_that_failed_is_not_the_next_queues() {
        let mut state = state();
        state.apply(&event(1, 1, 700, seen(false)));
        for _ in 0..2 {
            state.apply(&event(2, 1, 700, write(MqdOp::Init)));
        }
        state.apply(&event(3, 1, 700, create(3)));
        assert_eq!(queue(&state).mqd_writes, MqdWrites::from([(MqdOp::Init, 1)]));
        assert_eq!(state.totals().mqd_writes[&Some(58270)].of(MqdOp::Init), 2);
    }
}
