//! Driver unload: everything it had is removed.

use super::change::Change;
use super::input::Input;
use super::process::ProcessKey;
use super::queue::Cause;
use super::rows::State;
use crate::model::event::{Body, Event};

impl State {
    /// Ends what the rows still have. The driver unloads only after its last process, so these ends were
    /// missed or could not be seen. Returns the end of each queue and of its process, as events.
    pub fn driver_unloaded(&mut self, now_ns: u64) -> Vec<(Event, Change)> {
        self.note(|| Input::Unloaded { at_ns: now_ns });
        self.gpus_go();
        self.scheduled.values_mut().for_each(|scheduled| scheduled.last = None);
        let left: Vec<ProcessKey> = self.live().map(|row| row.key).collect();
        left.into_iter().flat_map(|key| self.end_with_the_driver(key, now_ns)).collect()
    }

    fn end_with_the_driver(&mut self, key: ProcessKey, now_ns: u64) -> Vec<(Event, Change)> {
        let mut change = Change::default();
        self.end_process(key, now_ns, Cause::DriverUnloaded, &mut change);
        let of_row = || Change { process: Some(key), ..Change::default() };
        let ended = change.ended.into_iter().map(|queue| {
            let body =
                Body::QueueDestroy { queue_id: queue.queue_id, gpu_id: queue.facts.gpu_id, last: None };
            (self.event_of(key, now_ns, body), Change { ended: vec![queue], ..of_row() })
        });
        let release = (self.event_of(key, now_ns, Body::ProcessRelease), of_row());
        ended.chain([release]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::ProcessId;
    use crate::state::QueueEnd;
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
        let ended = state.driver_unloaded(50);
        let bodies: Vec<_> =
            ended.iter().map(|(event, _)| (event.tgid, event.mono_ns, event.body.clone())).collect();
        let queue = Body::QueueDestroy { queue_id: 3, gpu_id: Some(GPU), last: None };
        let expected = [queue, Body::ProcessRelease].map(|body| (Some(700), 50, body));
        assert_eq!(bodies, expected, "the queue before its process");
        let ends = ended.iter().flat_map(|(_, change)| &change.ended).map(|queue| queue.end);
        let end = QueueEnd { at_ns: 50, cause: Cause::DriverUnloaded };
        assert_eq!(ends.collect::<Vec<_>>(), [Some(end)]);
        assert!(ended.iter().all(|(_, change)| change.process == Some(ProcessId(1).into())));
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
