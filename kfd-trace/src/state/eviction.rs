//! The rules for evictions and restores: of a queue, of a process on a GPU, and of a whole process.

use super::change::Change;
use super::process::{Process, ProcessKey};
use super::queue::Queue;
use super::rows::State;
use super::totals::Totals;
use crate::model::event::QueueFacts;
use crate::model::incident::Eviction;

impl Process {
    pub(super) fn evict(&mut self, event: &Eviction, now_ns: u64, totals: &mut Totals) {
        let Some(gpu_id) = event.gpu_id else { return };
        if self.evictions.entry(gpu_id).or_default().begin(now_ns, event.trigger) {
            *totals.evictions.entry((gpu_id, event.trigger)).or_default() += 1;
        }
        self.evicted.begin(now_ns, event.trigger);
        for queue in self.queues.values_mut().filter(|queue| queue.facts.gpu_id == event.gpu_id) {
            queue.evictions.begin(now_ns, event.trigger);
            queue.changed_ns = now_ns;
            queue.set_evicted(true);
        }
    }

    pub(super) fn restore(
        &mut self,
        event: &Eviction,
        now_ns: u64,
        totals: &mut Totals,
        change: &mut Change,
    ) {
        let Some(gpu_id) = event.gpu_id else { return };
        change.lasted_ns = self.end_eviction(gpu_id, now_ns, totals);
        *totals.restores.entry(gpu_id).or_default() += 1;
        if !self.evictions.values().any(|gpu| gpu.evicted) {
            self.evicted.end(now_ns);
        }
        for queue in self.queues.values_mut().filter(|queue| queue.facts.gpu_id == event.gpu_id) {
            queue.evictions.end(now_ns);
            queue.changed_ns = now_ns;
            queue.set_evicted(false);
        }
    }

    /// Adds its time to the sum of the GPU. Returns how long it lasted, if known.
    fn end_eviction(&mut self, gpu_id: u32, at_ns: u64, totals: &mut Totals) -> Option<u64> {
        let evictions = self.evictions.entry(gpu_id).or_default();
        let before = evictions.total_ns;
        let lasted = evictions.end(at_ns);
        let total = totals.evicted_ns.entry(gpu_id).or_default();
        *total = total.saturating_add(evictions.total_ns - before);
        lasted
    }

    /// It has ended: nothing restores what was evicted.
    pub(super) fn end_evictions(&mut self, at_ns: u64, totals: &mut Totals) {
        let running = self.evictions.iter().filter(|(_, evictions)| evictions.evicted);
        let running: Vec<u32> = running.map(|(gpu_id, _)| *gpu_id).collect();
        for gpu_id in running {
            self.end_eviction(gpu_id, at_ns, totals);
        }
        self.evicted.end(at_ns);
    }

    /// A queue was found evicted or not: its process has the same state on that GPU if all of its queues
    /// there agree.
    pub(super) fn found_evicted(&mut self, found: &QueueFacts, at_ns: u64, totals: &mut Totals) {
        let (Some(gpu_id), Some(evicted)) = (found.gpu_id, found.evicted) else { return };
        if let Some(queue) = found.queue_id.and_then(|id| self.queues.get_mut(&id)) {
            queue.evictions.found(evicted, at_ns);
        }
        // A single queue may be evicted alone (MES): then the process is not evicted.
        let here = self.queues.values().filter(|queue| queue.facts.gpu_id == found.gpu_id);
        if here.map(|queue| queue.facts.evicted).any(|other| other != Some(evicted)) {
            return;
        }
        if evicted {
            self.evictions.entry(gpu_id).or_default().found(evicted, at_ns);
        } else if self.evictions.get(&gpu_id).is_some_and(|gpu| gpu.evicted) {
            self.end_eviction(gpu_id, at_ns, totals);
        }
        let any = self.evictions.values().any(|gpu| gpu.evicted);
        self.evicted.found(any, at_ns);
    }
}

impl State {
    /// [`Process::found_evicted`] of a row.
    pub(super) fn found_evicted(&mut self, key: ProcessKey, found: &QueueFacts, at_ns: u64) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.found_evicted(found, at_ns, &mut self.totals);
        }
    }
}

impl Queue {
    /// Sets the properties as `evict_process_queues_*` and `restore_process_queues_*` leave them.
    pub(super) fn set_evicted(&mut self, evicted: bool) {
        self.facts.evicted = Some(evicted);
        self.settle_active();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Body, ProcessId};
    use crate::model::incident::{QueueUpdate, Trigger};
    use crate::state::samples::{create, event, facts, seen, state};

    fn eviction(gpu_id: u32, trigger: Option<Trigger>) -> Eviction {
        Eviction { gpu_id: Some(gpu_id), trigger, errno: 0, latency_ns: 5 }
    }

    const GPU: u32 = 58270;

    fn with_queue() -> State {
        let mut state = state();
        state.apply(&event(1, 1, 700, seen(false)));
        state.apply(&event(2, 1, 700, create(3)));
        state
    }

    #[test]
    fn a_queue_is_evicted_with_its_process_on_its_gpu_only() {
        let mut state = with_queue();
        state.apply(&event(10, 1, 700, Body::Evict(eviction(7, Some(Trigger::Ttm)))));
        let row = state.process(ProcessId(1).into()).expect("row");
        assert!(!row.queues[&3].evictions.evicted && row.evicted.evicted);
        state.apply(&event(20, 1, 700, Body::Evict(eviction(GPU, Some(Trigger::Ttm)))));
        let row = state.process(ProcessId(1).into()).expect("row");
        assert!(row.queues[&3].evictions.evicted && row.queues[&3].facts.evicted == Some(true));
        assert_eq!(row.queues[&3].facts.active, Some(false));
        assert_eq!(row.evicted.count, 1, "of the process: once, whatever the number of GPUs");
    }

    #[test]
    fn durations_are_of_each_gpu_and_of_the_whole_process() {
        let mut state = with_queue();
        for (at, gpu) in [(10, 7), (20, GPU)] {
            state.apply(&event(at, 1, 700, Body::Evict(eviction(gpu, Some(Trigger::Userptr)))));
        }
        let change = state.apply(&event(50, 1, 700, Body::Restore(eviction(7, None))));
        assert_eq!(change.lasted_ns, Some(40));
        assert_eq!(state.process(ProcessId(1).into()).expect("row").evicted.evicted_ns(60), 50);
        let change = state.apply(&event(90, 1, 700, Body::Restore(eviction(GPU, None))));
        assert_eq!(change.lasted_ns, Some(70));
        let row = state.process(ProcessId(1).into()).expect("row");
        assert_eq!((row.evicted.total_ns, row.evicted.evicted), (80, false));
        assert_eq!((row.queues[&3].evictions.total_ns, row.queues[&3].facts.active), (70, Some(true)));
        assert_eq!(state.totals().evicted_ns[&GPU], 70);
        assert_eq!(state.totals().evictions[&(GPU, Some(Trigger::Userptr))], 1);
    }

    #[test]
    fn a_second_eviction_is_none_and_a_restore_alone_has_no_duration() {
        let mut state = with_queue();
        state.apply(&event(5, 1, 700, Body::Restore(eviction(GPU, None))));
        for at in [10, 20] {
            state.apply(&event(at, 1, 700, Body::Evict(eviction(GPU, None))));
        }
        let row = state.process(ProcessId(1).into()).expect("row");
        assert_eq!((row.evictions[&GPU].count, row.evictions[&GPU].since_ns), (1, Some(10)));
        assert_eq!(row.queues[&3].evictions.count, 1);
    }

    #[test]
    fn an_eviction_whose_effect_was_seen_first_is_counted() {
        let mut state = with_queue();
        let key = ProcessId(1).into();
        let found = QueueFacts { evicted: Some(true), ..facts(3) };
        let update = QueueUpdate { now: found, cu_mask: None, mask_unread: false, errno: Some(0) };
        state.apply(&event(9, 1, 700, Body::QueueUpdate(update)));
        assert!(state.process(key).is_some_and(|row| row.evicted.evicted && row.evicted.count == 0));
        state.apply(&event(10, 1, 700, Body::Evict(eviction(GPU, Some(Trigger::Ttm)))));
        let row = state.process(key).expect("row");
        assert_eq!((row.evicted.count, row.evictions[&GPU].since_ns), (1, Some(10)));
        assert_eq!(state.totals().evictions[&(GPU, Some(Trigger::Ttm))], 1);
    }

    #[test]
    fn an_eviction_that_was_found_counts_from_there() {
        let mut state = with_queue();
        state.apply(&event(5, 1, 700, Body::Evict(eviction(GPU, Some(Trigger::Ttm)))));
        state.apply(&event(6, 1, 700, Body::Restore(eviction(GPU, None))));
        let found = QueueFacts { evicted: Some(true), ..facts(3) };
        let update = QueueUpdate { now: found, cu_mask: None, mask_unread: false, errno: Some(0) };
        state.apply(&event(9, 1, 700, Body::QueueUpdate(update)));
        let row = state.process(ProcessId(1).into()).expect("row");
        let found = row.evictions[&GPU];
        assert_eq!((found.since_ns, found.trigger, found.lasts_ns(20)), (None, None, Some(11)));
        assert_eq!((row.evicted.evicted_ns(20), row.queues[&3].evictions.evicted_ns(20)), (12, 12));
        let change = state.apply(&event(30, 1, 700, Body::Restore(eviction(GPU, None))));
        assert_eq!(change.lasted_ns, None, "since when is not known");
        assert_eq!(state.totals().evicted_ns[&GPU], 22);
        assert_eq!(state.process(ProcessId(1).into()).expect("row").evictions[&GPU].lasts_ns(40), None);
    }

    #[test]
    fn an_eviction_ends_with_its_process() {
        let mut state = with_queue();
        state.apply(&event(10, 1, 700, Body::Evict(eviction(GPU, Some(Trigger::Svm)))));
        state.apply(&event(40, 1, 700, Body::ProcessRelease));
        let row = state.process(ProcessId(1).into()).expect("row");
        let gpu = row.evictions[&GPU];
        assert_eq!((gpu.evicted, gpu.evicted_ns(99), gpu.trigger), (false, 30, Some(Trigger::Svm)));
        assert_eq!((row.evicted.evicted, row.evicted.evicted_ns(99)), (false, 30));
        assert_eq!(state.totals().evicted_ns[&GPU], 30);
        assert_eq!(state.totals().restores.get(&GPU), None);
    }

    #[test]
    fn one_queue_that_is_put_aside_does_not_evict_its_process() {
        let mut state = with_queue();
        state.apply(&event(3, 1, 700, create(4)));
        let aside = QueueFacts { evicted: Some(true), ..facts(3) };
        let update = QueueUpdate { now: aside, cu_mask: None, mask_unread: false, errno: Some(0) };
        state.apply(&event(9, 1, 700, Body::QueueUpdate(update)));
        let row = state.process(ProcessId(1).into()).expect("row");
        assert!(row.queues[&3].evictions.evicted && !row.queues[&4].evictions.evicted);
        assert!(!row.evicted.evicted);
    }

    #[test]
    fn a_queue_without_a_ring_is_not_active_after_a_restore() {
        let mut queue = Queue::born(1, &QueueFacts { percent: Some(0), ..facts(1) }, 5);
        queue.set_evicted(true);
        queue.set_evicted(false);
        assert_eq!(queue.facts.active, Some(false));
    }
}
