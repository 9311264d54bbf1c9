//! The rules for queues: creation, end, and failed destroy.

use super::change::Change;
use super::process::{Process, ProcessKey};
use super::queue::{Cause, Queue, QueueEnd, QueueLabel};
use super::rows::State;
use super::sampling;
use super::source::Source;
use super::totals::Anomaly;
use crate::model::event::{Event, Origin, QueueFacts};
use crate::model::ioctl;

/// `AMDKFD_IOC_DESTROY_QUEUE`.
const DESTROY_QUEUE: u8 = 0x03;

impl State {
    pub(super) fn queue_create(
        &mut self,
        key: ProcessKey,
        facts: &QueueFacts,
        now_ns: u64,
        change: &mut Change,
    ) {
        let Some(queue_id) = facts.queue_id else {
            self.anomaly(Anomaly::QueueWithoutId, change);
            return;
        };
        if facts.origin == Origin::Standing {
            self.take_queue(key, now_ns.into(), facts, Source::Kernel);
            return;
        }
        let Some(row) = self.rows.get_mut(&key) else { return };
        match row.queues.get_mut(&queue_id) {
            // It was found while this record was still in the ring buffer.
            Some(queue) if queue.born_ns.is_none() && queue.adopted_ns >= Some(now_ns) => {
                queue.facts.absorb(facts);
                queue.facts.origin = facts.origin;
                queue.born_ns = Some(now_ns);
                queue.mqd_writes = row.mqd_of_unborn.remove(&queue_id).unwrap_or_default();
                queue.sources = queue.sources.with(Source::Probe);
                self.totals.queues_born_later += 1;
            }
            Some(_) => {
                self.anomaly(Anomaly::CreateOfLiveQueue, change);
                let end = QueueEnd { at_ns: now_ns, cause: Cause::Replaced };
                self.end_queue(key, queue_id, None, end, change);
                self.bear(key, queue_id, facts, now_ns);
            }
            None => self.bear(key, queue_id, facts, now_ns),
        }
        let label = QueueLabel { gpu_id: facts.gpu_id, queue_type: facts.queue_type };
        *self.totals.queues_created.entry(label).or_default() += 1;
    }

    fn bear(&mut self, key: ProcessKey, queue_id: u32, facts: &QueueFacts, now_ns: u64) {
        let Some(row) = self.rows.get_mut(&key) else { return };
        let mut queue = Queue::born(queue_id, facts, now_ns);
        queue.mqd_writes = row.mqd_of_unborn.remove(&queue_id).unwrap_or_default();
        row.queues.insert(queue_id, queue);
        let known = facts.gpu_id.and_then(|id| row.evictions.get(&id)).is_some_and(|gpu| gpu.evicted);
        if facts.evicted == Some(true) && !known {
            self.found_evicted(key, facts, now_ns);
        }
    }

    pub(super) fn put(&mut self, key: ProcessKey, queue: Queue) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.queues.insert(queue.queue_id, queue);
        }
    }

    pub(super) fn queue_destroy(
        &mut self,
        key: ProcessKey,
        queue_id: u32,
        gpu_id: Option<u32>,
        event: &Event,
        change: &mut Change,
    ) {
        let Some(row) = self.rows.get(&key) else { return };
        let end = QueueEnd { at_ns: event.mono_ns, cause: cause_of(row, event) };
        if !self.end_queue(key, queue_id, gpu_id, end, change) {
            self.anomaly(Anomaly::DestroyOfUnknownQueue, change);
        }
    }

    /// False if no such queue lives. The end is still remembered: a list read earlier may still show the
    /// queue.
    pub(super) fn end_queue(
        &mut self,
        key: ProcessKey,
        queue_id: u32,
        gpu_id: Option<u32>,
        end: QueueEnd,
        change: &mut Change,
    ) -> bool {
        let Some(row) = self.rows.get_mut(&key) else { return false };
        row.last_ends.insert(queue_id, end.at_ns);
        let Some(mut queue) = row.queues.remove(&queue_id) else { return false };
        queue.end = Some(end);
        queue.facts.gpu_id = queue.facts.gpu_id.or(gpu_id);
        sampling::ends(&queue, &mut row.works);
        *self.totals.queues_destroyed.entry((queue.label(), end.cause)).or_default() += 1;
        change.ended.push(queue.clone());
        row.ended_queues.push_back(queue);
        while row.ended_queues.len() > self.limits.ended_queues {
            row.ended_queues.pop_front();
        }
        true
    }

    pub(super) fn queue_revive(&mut self, key: ProcessKey, queue_id: u32, now_ns: u64, change: &mut Change) {
        if let Some(row) = self.rows.get_mut(&key) {
            // It did not end: a queue that a list shows under this id exists.
            row.last_ends.remove(&queue_id);
        }
        let live = self.rows.get_mut(&key).and_then(|row| row.queues.get_mut(&queue_id));
        if let Some(queue) = live {
            // The record of its end was lost; its sysfs entry was removed nevertheless.
            queue.unlisted = true;
        }
        let revived =
            self.rows.get_mut(&key).filter(|row| !row.queues.contains_key(&queue_id)).and_then(|row| {
                let index = row.ended_queues.iter().rposition(|queue| queue.queue_id == queue_id)?;
                row.ended_queues.remove(index)
            });
        let Some(mut queue) = revived else {
            self.anomaly(Anomaly::DestroyFailedOfUnknownQueue, change);
            return;
        };
        queue.end = None;
        queue.changed_ns = now_ns;
        // Its sysfs entry was removed before the destroy was tried.
        queue.unlisted = true;
        if let Some(row) = self.rows.get_mut(&key) {
            sampling::revives(&mut queue, &mut row.works);
        }
        *self.totals.queues_revived.entry(queue.label()).or_default() += 1;
        self.put(key, queue);
    }
}

/// A released address space explains a destroy whatever the thread was doing: on 7.2 the dying task itself
/// cleans up, and a call whose return was not seen may still appear in flight.
fn cause_of(row: &Process, event: &Event) -> Cause {
    if row.mm_released_ns.is_some() {
        return Cause::ProcessDeath;
    }
    match event.in_ioctl {
        Some(cmd) if ioctl::nr(cmd) == DESTROY_QUEUE => Cause::Ioctl,
        Some(_) => Cause::Other,
        None if row.closed() => Cause::Close,
        None if event.tgid != Some(event.task_tgid) => Cause::ProcessDeath,
        None => Cause::Other,
    }
}
