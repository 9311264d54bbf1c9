//! The rules for GPU-wide events (resets and hangs), and for faults, which belong to one process.

use super::change::Change;
use super::process::ProcessKey;
use super::rows::State;
use crate::model::event::Event;

impl State {
    pub(super) fn reset_begins(&mut self, gpu_id: u32, now_ns: u64) {
        if let Some(scheduled) = self.scheduled.get_mut(&gpu_id) {
            scheduled.last = None;
        }
        let gpu = self.gpus.entry(gpu_id).or_default();
        gpu.resets += 1;
        if gpu.resetting_since_ns.replace(now_ns).is_some() {
            gpu.unfinished_resets += 1;
        }
    }

    pub(super) fn reset_ends(&mut self, gpu_id: u32, now_ns: u64, change: &mut Change) {
        let gpu = self.gpus.entry(gpu_id).or_default();
        change.lasted_ns = gpu.resetting_since_ns.take().map(|since| now_ns.saturating_sub(since));
        gpu.reset_ns = gpu.reset_ns.saturating_add(change.lasted_ns.unwrap_or(0));
        gpu.hung_since_ns = None;
    }

    /// The driver detects the same hang at every operation until the reset is complete, also while a reset
    /// suspends the processes: it does not mean that a reset is over or has failed.
    pub(super) fn hangs(&mut self, gpu_id: u32, now_ns: u64) {
        let gpu = self.gpus.entry(gpu_id).or_default();
        if gpu.hung_since_ns.is_none() {
            gpu.hangs += 1;
            gpu.hung_since_ns = Some(now_ns);
        }
    }

    /// The driver was unloaded: the end of resets and hangs under way will not be reported.
    pub(super) fn gpus_go(&mut self) {
        for gpu in self.gpus.values_mut() {
            gpu.hung_since_ns = None;
            if gpu.resetting_since_ns.take().is_some() {
                gpu.unfinished_resets += 1;
            }
        }
    }

    pub(super) fn vm_fault(&mut self, key: ProcessKey, gpu_id: Option<u32>) {
        if let Some(gpu_id) = gpu_id {
            self.gpus.entry(gpu_id).or_default().vm_faults += 1;
        }
        if let Some(row) = self.rows.get_mut(&key) {
            *row.vm_faults.entry(gpu_id).or_default() += 1;
        }
    }

    /// Processes that have queues on this GPU: those that a reset or hang of it affects.
    #[must_use]
    pub fn tgids_on(&self, gpu_id: u32) -> Vec<u32> {
        let on =
            self.live().filter(|row| row.queues.values().any(|queue| queue.facts.gpu_id == Some(gpu_id)));
        let mut tgids: Vec<u32> = on.filter_map(|row| row.tgid).collect();
        tgids.sort_unstable();
        tgids.dedup();
        tgids
    }

    pub(super) fn of_gpu(
        &mut self,
        gpu_id: Option<u32>,
        event: &Event,
        change: &mut Change,
        rule: impl FnOnce(&mut Self, u32, u64, &mut Change),
    ) {
        // An unreadable GPU is counted by the BPF side.
        if let Some(gpu_id) = gpu_id {
            change.hit = self.tgids_on(gpu_id);
            rule(self, gpu_id, event.mono_ns, change);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::model::event::{Body, Event};
    use crate::model::incident::{Eviction, VmFault};
    use crate::state::samples::{create, event, seen, state};

    const GPU: u32 = 58270;

    fn without_process(at: u64, body: Body) -> Event {
        Event { process: None, tgid: None, ..event(at, 1, 0, body) }
    }

    #[test]
    fn a_hang_is_one_until_the_reset_that_it_leads_to_is_over() {
        let mut state = state();
        state.apply(&event(1, 1, 700, seen(false)));
        state.apply(&event(2, 1, 700, create(3)));
        let gpu_id = Some(GPU);
        for at in [10, 20, 30] {
            let change = state.apply(&without_process(at, Body::HwsHang { gpu_id }));
            assert!(change.anomalies.is_empty(), "no process owns it: {change:?}");
            assert_eq!(change.hit, [700]);
        }
        state.apply(&without_process(40, Body::GpuResetBegin { gpu_id }));
        let change = state.apply(&without_process(95, Body::GpuResetEnd { gpu_id }));
        assert_eq!(change.lasted_ns, Some(55));
        let gpu = state.snapshot().gpus[&GPU];
        assert_eq!((gpu.hangs, gpu.resets, gpu.reset_ns, gpu.hung_since_ns), (1, 1, 55, None));
        state.apply(&without_process(100, Body::HwsHang { gpu_id }));
        assert_eq!(state.snapshot().gpus[&GPU].hangs, 2);
    }

    #[test]
    fn the_end_of_a_reset_alone_has_no_duration() {
        let mut state = state();
        let change = state.apply(&without_process(95, Body::GpuResetEnd { gpu_id: Some(GPU) }));
        assert_eq!((change.lasted_ns, state.snapshot().gpus[&GPU].resets), (None, 0));
    }

    #[test]
    fn times_that_no_clock_has_are_summed_up_without_a_panic() {
        let mut state = state();
        let gpu_id = Some(GPU);
        state.apply(&event(0, 1, 700, seen(false)));
        let eviction = Eviction { gpu_id, trigger: None, errno: 0, latency_ns: 3 };
        for _ in 0..3 {
            state.apply(&without_process(0, Body::GpuResetBegin { gpu_id }));
            state.apply(&without_process(u64::MAX, Body::GpuResetEnd { gpu_id }));
            state.apply(&event(0, 1, 700, Body::Evict(eviction)));
            state.apply(&event(u64::MAX, 1, 700, Body::Restore(eviction)));
        }
        state.apply(&event(0, 1, 700, Body::Evict(eviction)));
        assert_eq!(state.snapshot().gpus[&GPU].reset_ns, u64::MAX);
        assert_eq!(state.totals().evicted_ns[&GPU], u64::MAX);
        assert_eq!(state.process_of_tgid(700).expect("row").evicted.evicted_ns(7), u64::MAX);
    }

    #[test]
    fn a_reset_that_does_not_end_is_closed_by_the_next_one_without_a_duration() {
        let mut state = state();
        let gpu_id = Some(GPU);
        state.apply(&without_process(10, Body::GpuResetBegin { gpu_id }));
        state.apply(&without_process(15, Body::HwsHang { gpu_id }));
        let gpu = state.snapshot().gpus[&GPU];
        assert_eq!((gpu.resetting_since_ns, gpu.unfinished_resets), (Some(10), 0), "a hang does not end it");
        state.apply(&without_process(1_000, Body::GpuResetBegin { gpu_id }));
        let gpu = state.snapshot().gpus[&GPU];
        assert_eq!((gpu.resets, gpu.unfinished_resets, gpu.resetting_since_ns), (2, 1, Some(1_000)));
        let change = state.apply(&without_process(1_040, Body::GpuResetEnd { gpu_id }));
        let gpu = state.snapshot().gpus[&GPU];
        assert_eq!((change.lasted_ns, gpu.reset_ns, gpu.resetting_since_ns), (Some(40), 40, None));
        state.apply(&without_process(2_000, Body::GpuResetBegin { gpu_id }));
        assert_eq!(state.snapshot().gpus[&GPU].unfinished_resets, 1, "the one before ended");
    }

    #[test]
    fn faults_count_for_process_and_gpu() {
        let mut state = state();
        state.apply(&event(1, 1, 700, seen(false)));
        for _ in 0..2 {
            state.apply(&event(5, 1, 700, Body::VmFault(VmFault { gpu_id: Some(GPU), access: None })));
        }
        assert_eq!(state.snapshot().gpus[&GPU].vm_faults, 2);
        assert_eq!(state.process_of_tgid(700).expect("row").vm_faults[&Some(GPU)], 2);
    }
}
