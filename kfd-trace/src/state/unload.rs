//! Driver unload: everything it had is removed.

use super::change::Change;
use super::process::ProcessKey;
use super::queue::Cause;
use super::rows::State;

impl State {
    /// Ends what the rows still have. The driver unloads only after its last process, so these ends were
    /// missed or could not be seen. Returns one change per process.
    pub fn driver_unloaded(&mut self, now_ns: u64) -> Vec<Change> {
        self.gpus_go();
        self.scheduled.values_mut().for_each(|scheduled| scheduled.last = None);
        let left: Vec<ProcessKey> = self.live().map(|row| row.key).collect();
        let ends = left.into_iter().map(|key| {
            let mut change = Change { process: Some(key), ..Change::default() };
            self.end_process(key, now_ns, Cause::DriverUnloaded, &mut change);
            change
        });
        ends.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Body, Event, ProcessId};
    use crate::state::samples::{create, destroy, event, seen, state};

    const GPU: u32 = 58270;

    #[test]
    fn what_lived_ends_with_the_driver_and_what_had_ended_stays_as_it_was() {
        let mut state = state();
        for (process, tgid) in [(1, 700), (2, 800)] {
            state.apply(&event(10, process, tgid, seen(false)));
            state.apply(&event(11, process, tgid, create(3)));
        }
        state.apply(&event(12, 2, 800, destroy(3)));
        state.apply(&event(13, 2, 800, Body::ProcessRelease));
        let changes = state.driver_unloaded(50);
        let ended: Vec<_> = changes.iter().map(|change| (change.process, change.ended.len())).collect();
        assert_eq!(ended, [(Some(ProcessId(1).into()), 1)]);
        assert_eq!(
            changes[0].ended[0].end.map(|end| (end.at_ns, end.cause)),
            Some((50, Cause::DriverUnloaded))
        );
        assert_eq!((state.live().count(), state.process_of_tgid(700)), (0, None));
        assert_eq!(state.process(ProcessId(2).into()).and_then(|row| row.released_ns), Some(13));
        let totals = state.totals();
        assert_eq!((totals.created(), totals.destroyed(), totals.processes_ended), (2, 2, 2));
        assert_eq!(state.driver_unloaded(60), [], "once");
    }

    #[test]
    fn a_reset_under_way_will_not_end() {
        let mut state = state();
        let without_process = |body| Event { process: None, tgid: None, ..event(5, 0, 0, body) };
        state.apply(&without_process(Body::HwsHang { gpu_id: Some(GPU) }));
        state.apply(&without_process(Body::GpuResetBegin { gpu_id: Some(GPU) }));
        state.driver_unloaded(50);
        let gpu = state.snapshot().gpus[&GPU];
        assert_eq!((gpu.resetting_since_ns, gpu.hung_since_ns, gpu.unfinished_resets), (None, None, 1));
    }
}
