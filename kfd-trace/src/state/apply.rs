//! The rules: what each event changes.

use super::change::Change;
use super::process::{Process, ProcessKey};
use super::queue::Cause;
use super::rows::State;
use super::source::Source;
use super::totals::Anomaly;
use crate::model::event::{Body, Event, ProcessSeen};

impl State {
    /// Applies one event; events come in ring buffer order.
    pub fn apply(&mut self, event: &Event) -> Change {
        let mut change = Change::default();
        match &event.body {
            Body::Open { errno, .. } => {
                self.open(event, *errno, &mut change);
                return change;
            }
            Body::GpuResetBegin { gpu_id } => {
                self.of_gpu(*gpu_id, event, &mut change, |state, gpu, now, _| state.reset_begins(gpu, now));
                return change;
            }
            Body::GpuResetEnd { gpu_id } => {
                self.of_gpu(*gpu_id, event, &mut change, Self::reset_ends);
                return change;
            }
            Body::HwsHang { gpu_id } => {
                self.of_gpu(*gpu_id, event, &mut change, |state, gpu, now, _| state.hangs(gpu, now));
                return change;
            }
            // They bypass KFD: no KFD process owns them.
            Body::UserQueue(_) => return change,
            _ => {}
        }
        let Some(id) = event.process else {
            self.anomaly(Anomaly::OwnerUnknown, &mut change);
            return change;
        };
        let (key, now) = (ProcessKey::Traced(id), event.mono_ns);
        change.process = Some(key);
        let alive = self.touch(key, now).or_else(|| {
            self.meet(key, event, &mut change);
            self.touch(key, now)
        });
        if alive == Some(false) {
            self.anomaly(Anomaly::RecordAfterRelease, &mut change);
            return change;
        }
        match &event.body {
            Body::ProcessSeen(seen) => self.seen(key, seen, now),
            Body::Close => self.close(key),
            Body::MmRelease => self.mm_release(key, now),
            Body::ProcessRelease => self.release(key, now, &mut change),
            Body::QueueCreate(facts) => self.queue_create(key, facts, now, &mut change),
            Body::QueueDestroy { queue_id, gpu_id, last } => {
                if let Some(last) = last {
                    self.read_last(key, *queue_id, last, now);
                }
                self.queue_destroy(key, *queue_id, *gpu_id, event, &mut change);
            }
            Body::QueueDestroyFailed { queue_id, .. } => {
                self.queue_revive(key, *queue_id, now, &mut change);
            }
            Body::QueueUpdate(update) => self.queue_update(key, update, now, &mut change),
            Body::MqdWrite { queue_id, gpu_id, op } => self.mqd_write(key, *queue_id, *gpu_id, *op),
            Body::Evict(eviction) => self.evict(key, eviction, now),
            Body::Restore(eviction) => self.restore(key, eviction, now, &mut change),
            Body::VmFault(fault) => self.vm_fault(key, fault.gpu_id),
            Body::Ioctl(_)
            | Body::Open { .. }
            | Body::GpuResetBegin { .. }
            | Body::GpuResetEnd { .. }
            | Body::HwsHang { .. }
            | Body::UserQueue(_) => {}
        }
        change
    }

    /// Whether the row is alive; `None` where there is none.
    fn touch(&mut self, key: ProcessKey, now_ns: u64) -> Option<bool> {
        let row = self.rows.get_mut(&key)?;
        row.last_event_ns = row.last_event_ns.max(now_ns);
        row.sources = row.sources.with(Source::Probe);
        Some(row.alive())
    }

    /// Creates the row for the first event of its process. The row of a found process becomes this one.
    fn meet(&mut self, key: ProcessKey, event: &Event, change: &mut Change) {
        if !self.claim_adopted(key, event, change) {
            let mut row = Process::new(key, event.tgid, Source::Probe.into(), event.mono_ns);
            if let Body::ProcessSeen(seen) = &event.body {
                row.context_id = seen.context_id;
            }
            self.insert(row, change);
        }
        if !matches!(event.body, Body::ProcessSeen(_)) {
            self.anomaly(Anomaly::ProcessSeenLost, change);
            if let Some(row) = self.rows.get_mut(&key) {
                row.seen_lost = true;
            }
        }
    }

    fn seen(&mut self, key: ProcessKey, seen: &ProcessSeen, now_ns: u64) {
        if seen.standing {
            self.totals.processes_standing += 1;
        } else {
            self.totals.processes_created += 1;
        }
        self.unindex(key);
        if let Some(row) = self.rows.get_mut(&key) {
            row.seen(seen, now_ns);
        }
        self.index(key);
    }

    /// `kfd_open` reports only the tgid, not the process's number.
    fn open(&mut self, event: &Event, errno: i32, change: &mut Change) {
        self.totals.opens += 1;
        if errno != 0 {
            *self.totals.open_errors.entry(errno).or_default() += 1;
        }
        change.process = event.tgid.and_then(|tgid| self.key_of_tgid(tgid));
        let row = change.process.and_then(|key| self.rows.get_mut(&key));
        match row {
            Some(row) if errno == 0 => row.opens += 1,
            Some(row) => row.failed_opens += 1,
            None if errno == 0 => self.anomaly(Anomaly::OpenOfUnknownProcess, change),
            None => {}
        }
    }

    fn close(&mut self, key: ProcessKey) {
        self.totals.closes += 1;
        if let Some(row) = self.rows.get_mut(&key) {
            row.closes += 1;
        }
    }

    fn mm_release(&mut self, key: ProcessKey, now_ns: u64) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.mm_released_ns = Some(now_ns);
            // Its memory can no longer be read.
            row.queues.values_mut().for_each(|queue| queue.activity.lost());
        }
    }

    fn release(&mut self, key: ProcessKey, now_ns: u64, change: &mut Change) {
        let left = self.rows.get(&key).map_or(0, |row| row.queues.len());
        for _ in 0..left {
            self.anomaly(Anomaly::LeftAtRelease, change);
        }
        self.end_process(key, now_ns, Cause::LeftAtRelease, change);
    }
}

#[cfg(test)]
mod tests;
