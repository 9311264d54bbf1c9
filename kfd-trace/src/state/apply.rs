//! The rules: what each event changes.

use super::change::Change;
use super::input::Input;
use super::process::{Process, ProcessKey};
use super::queue::Cause;
use super::rows::State;
use super::source::Source;
use super::totals::Anomaly;
use crate::model::event::{Body, Event, ProcessSeen};
use kfd_trace_common::kind::Subject;

impl State {
    /// Applies one event; events come in ring buffer order.
    pub fn apply(&mut self, event: &Event) -> Change {
        self.note(|| Input::Event(event.clone()));
        let mut change = Change::default();
        match event.body.kind().subject() {
            Subject::Caller | Subject::Gpu => self.apply_unowned(event, &mut change),
            Subject::Process | Subject::Queue => {
                let alone = changes_row_alone(&event.body);
                if !(alone && self.apply_to_row(event, &mut change))
                    && let Some(key) = self.owner(event, &mut change)
                    && !(alone && self.apply_to_row(event, &mut change))
                {
                    self.apply_owned(key, event, &mut change);
                }
            }
        }
        change
    }

    /// Applies what [`changes_row_alone`], with one look-up of the row: most records are of this kind. False:
    /// there is no such row.
    #[inline(never)]
    fn apply_to_row(&mut self, event: &Event, change: &mut Change) -> bool {
        let Some(key) = event.process.map(ProcessKey::Traced) else { return false };
        let (now, totals, allocations) = (event.mono_ns, &mut self.totals, &mut self.allocations);
        let Some(row) = self.rows.get_mut(&key).filter(|row| row.alive()) else { return false };
        row.touch(now);
        change.process = Some(key);
        match &event.body {
            Body::QueueUpdate(update) => row.queue_update(update, event, totals, change),
            Body::MqdWrite { queue_id, gpu_id, op } => row.mqd_write(*queue_id, *gpu_id, *op, totals),
            Body::Evict(eviction) => row.evict(eviction, now, totals),
            Body::Restore(eviction) => row.restore(eviction, now, totals, change),
            Body::QueuesSuspended(call) => row.suspend_queues(call, event),
            Body::QueuesResumed(call) => row.resume_queues(call, event),
            Body::Ioctl(call) => row.memory.call(call, now, allocations),
            // Of a failed eviction, what became of each GPU is in its own
            // evictions and restores.
            Body::EvictFailed(_) => {}
            _ => return false,
        }
        true
    }

    /// Events of a whole GPU, or of a caller that need not be a KFD process.
    fn apply_unowned(&mut self, event: &Event, change: &mut Change) {
        match &event.body {
            Body::Open { errno, .. } => self.open(event, *errno, change),
            Body::GpuResetBegin { gpu_id } => {
                self.of_gpu(*gpu_id, event, change, |state, gpu, now, _| state.reset_begins(gpu, now));
            }
            Body::GpuResetEnd { gpu_id } => self.of_gpu(*gpu_id, event, change, Self::reset_ends),
            Body::HwsHang { gpu_id } => {
                self.of_gpu(*gpu_id, event, change, |state, gpu, now, _| state.hangs(gpu, now));
            }
            Body::Preempt(preemption) => self.preempt(event, preemption, change),
            Body::Runlist(list) => self.runlist(event, list, change),
            // DRM user queues are not KFD's.
            Body::UserQueue(_) => {}
            // Owned, see `apply_owned` and `apply_to_row`.
            Body::ProcessSeen(_)
            | Body::Close
            | Body::MmRelease
            | Body::ProcessRelease
            | Body::QueueCreate(_)
            | Body::QueueDestroy { .. }
            | Body::QueueDestroyFailed { .. }
            | Body::Ioctl(_)
            | Body::QueueUpdate(_)
            | Body::MqdWrite { .. }
            | Body::Evict(_)
            | Body::Restore(_)
            | Body::EvictFailed(_)
            | Body::VmFault(_)
            | Body::QueuesSuspended(_)
            | Body::QueuesResumed(_)
            | Body::MesQueue(_) => {}
        }
    }

    /// The live row of the event's process, which is created if there is none.
    fn owner(&mut self, event: &Event, change: &mut Change) -> Option<ProcessKey> {
        let Some(id) = event.process else {
            self.anomaly(Anomaly::OwnerUnknown, change);
            return None;
        };
        let (key, now) = (ProcessKey::Traced(id), event.mono_ns);
        change.process = Some(key);
        let alive = self.touch(key, now).or_else(|| {
            self.meet(key, event, change);
            self.touch(key, now)
        });
        if alive == Some(false) {
            self.anomaly(Anomaly::RecordAfterRelease, change);
            return None;
        }
        Some(key)
    }

    fn apply_owned(&mut self, key: ProcessKey, event: &Event, change: &mut Change) {
        let now = event.mono_ns;
        match &event.body {
            Body::ProcessSeen(seen) => self.seen(key, seen, now),
            Body::Close => self.close(key),
            Body::MmRelease => self.mm_release(key, now),
            Body::ProcessRelease => self.release(key, now, change),
            Body::QueueCreate(facts) => self.queue_create(key, facts, now, change),
            Body::QueueDestroy { queue_id, gpu_id, last } => {
                if let Some(last) = last {
                    self.read_last(key, *queue_id, last, now);
                }
                self.queue_destroy(key, *queue_id, *gpu_id, event, change);
            }
            Body::QueueDestroyFailed { queue_id, .. } => self.queue_revive(key, *queue_id, now, change),
            Body::VmFault(fault) => self.vm_fault(key, fault.gpu_id),
            Body::MesQueue(change) => self.mes_queue(change),
            // See `apply_to_row`.
            Body::Ioctl(_)
            | Body::QueueUpdate(_)
            | Body::MqdWrite { .. }
            | Body::Evict(_)
            | Body::Restore(_)
            | Body::EvictFailed(_)
            | Body::QueuesSuspended(_)
            | Body::QueuesResumed(_) => {}
            // Not owned, see `apply_unowned`.
            Body::Open { .. }
            | Body::GpuResetBegin { .. }
            | Body::GpuResetEnd { .. }
            | Body::HwsHang { .. }
            | Body::UserQueue(_)
            | Body::Preempt(_)
            | Body::Runlist(_) => {}
        }
    }

    /// Whether the row is alive; `None` where there is none.
    fn touch(&mut self, key: ProcessKey, now_ns: u64) -> Option<bool> {
        let row = self.rows.get_mut(&key)?;
        row.touch(now_ns);
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

/// Whether an event changes the row of its process and the totals, and nothing else.
fn changes_row_alone(body: &Body) -> bool {
    matches!(
        body,
        Body::Ioctl(_)
            | Body::QueueUpdate(_)
            | Body::MqdWrite { .. }
            | Body::Evict(_)
            | Body::Restore(_)
            | Body::EvictFailed(_)
            | Body::QueuesSuspended(_)
            | Body::QueuesResumed(_)
    )
}

impl Process {
    /// A record of it came.
    #[inline]
    fn touch(&mut self, now_ns: u64) {
        self.last_event_ns = self.last_event_ns.max(now_ns);
        self.sources = self.sources.with(Source::Probe);
    }
}

#[cfg(test)]
mod tests;
