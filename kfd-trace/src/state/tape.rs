//! A tape of all that changed a state, call by call: played on a new one, it makes the same state, and reports the same
//! events. Recordings consist of it.
//!
//! In: the calls of [`State`] that are not made by another one. Out: an [`Input`] for each.

use super::change::Change;
use super::input::{Input, Sample};
use super::rows::State;
use crate::model::event::Event;

impl State {
    /// From here on, all that changes this state is put on a tape.
    pub fn start_tape(&mut self) {
        self.tape = Some(Vec::new());
    }

    /// What was put on the tape since the last call, in its order.
    pub fn take_tape(&mut self) -> Vec<Input> {
        self.tape.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Forgets everything, as after it was learned from wrong types of the driver.
    pub fn start_anew(&mut self) {
        self.note(|| Input::Anew);
        let tape = self.tape.take();
        *self = State::new(self.limits);
        self.tape = tape;
    }

    #[inline]
    pub(super) fn note(&mut self, input: impl FnOnce() -> Input) {
        if self.tape.is_some() {
            self.keep_input(input);
        }
    }

    #[inline]
    pub(super) fn note_sample(&mut self, sample: &Sample) {
        if self.tape.is_some() {
            self.keep_sample(sample);
        }
    }

    /// Apart: without a tape, which is usual, it costs a comparison.
    #[cold]
    #[inline(never)]
    fn keep_input(&mut self, input: impl FnOnce() -> Input) {
        if let Some(tape) = &mut self.tape {
            tape.push(input());
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_sample(&mut self, sample: &Sample) {
        let Some(tape) = &mut self.tape else { return };
        match tape.last_mut() {
            Some(Input::Sampled(samples)) => samples.push(*sample),
            _ => tape.push(Input::Sampled(vec![*sample])),
        }
    }

    /// Makes one call again. Adds the events that it reports, with what they changed.
    pub fn play(&mut self, input: Input, reported: &mut Vec<(Event, Change)>) {
        match input {
            Input::Event(event) => {
                let change = self.apply(&event);
                reported.push((event, change));
            }
            Input::Details { key, details } => self.enrich(key, details),
            Input::Process { read, process, source } => {
                self.adopt_process(read, &process, source);
            }
            Input::Queue { key, read, queue, source } => self.adopt_queue(key, read, &queue, source),
            Input::Compared(source) => self.compared(source),
            Input::Corrected { finding, listed, at_ns } => {
                reported.extend(self.correct(finding, listed.as_deref(), at_ns));
            }
            Input::Unlisted(finding) => {
                self.keep_unlisted(&finding);
            }
            Input::Gone { key, at_ns } => reported.push(self.gone(key, at_ns)),
            Input::Unloaded { at_ns } => reported.extend(self.driver_unloaded(at_ns)),
            Input::Sought => drop(self.sought()),
            Input::Sampled(samples) => samples.iter().for_each(|sample| {
                self.sampled(sample);
            }),
            Input::Late => self.samples_are_late(),
            Input::Expired { at_ns } => drop(self.expire(at_ns)),
            Input::Anew => self.start_anew(),
            Input::Vram { at_ns, changed } => self.set_vram(at_ns, changed),
            Input::Missed { at_ns } => self.miss_memory(at_ns),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::event::{Body, ProcessId};
    use crate::model::inventory::Listed;
    use crate::model::memory::samples::{VRAM, allocated};
    use crate::model::pointers::Counts;
    use crate::state::samples::{create, event, facts, seen, state};
    use crate::state::{
        Cause, Difference, FoundDifference, Inventory, ProcessDetails, ProcessKey, ReadTimes, Source,
    };

    /// What a tape makes of a new state, by way of its text.
    fn played(tape: &[Input]) -> (State, Vec<(Event, Change)>) {
        let (mut state, mut reported) = (state(), Vec::new());
        for input in tape {
            let text = serde_json::to_string(input).expect("text");
            state.play(serde_json::from_str(&text).expect(&text), &mut reported);
        }
        (state, reported)
    }

    fn shown(mut state: State) -> String {
        state.tape = None;
        format!("{state:?}")
    }

    /// Each kind of call once.
    pub(in crate::state) fn recorded() -> (State, Vec<Input>, Vec<(Event, Change)>) {
        let mut state = state();
        state.start_tape();
        let mut reported = Vec::new();
        let listed = Listed { tgid: 900, uid: Some(7), queues: vec![facts(5)], ..Listed::default() };
        let adopted = state.adopt_process(5, &listed, Source::Sysfs);
        state.adopt_queue(adopted, 5, &facts(5), Source::Sysfs);
        for body in [seen(false), create(3), create(4)] {
            let event = event(10, 1, 700, body);
            let change = state.apply(&event);
            reported.push((event, change));
        }
        let key = ProcessKey::from(ProcessId(1));
        let details = ProcessDetails { cgroup: Some("/a".to_owned()), ..ProcessDetails::default() };
        state.enrich(key, details);
        let held = event(11, 1, 700, allocated(1, 58270, 4096, VRAM));
        let change = state.apply(&held);
        reported.push((held, change));
        let counted = Listed { tgid: 700, vram: [(58270, 4096)].into(), ..Listed::default() };
        state.count_vram(11.into(), &[counted]);
        state.miss_memory(11);
        state.sought();
        let reading = Ok(Counts { submitted: 9, retired: 8 });
        for queue_id in [3, 4] {
            state.sampled(&Sample { key, queue_id, since_ns: 10, reading, at_ns: 12 });
        }
        state.samples_are_late();
        state.compared(Source::Sysfs);
        let list = Inventory::empty(Source::Sysfs, ReadTimes::from(14));
        let list = Inventory { processes: vec![Listed { tgid: 800, ..listed }].into(), ..list };
        let found = |key, tgid, queue_id, difference| FoundDifference {
            key,
            tgid,
            context_id: None,
            queue_id,
            difference,
        };
        let ghost = found(Some(key), 700, 3, Difference::Ghost);
        let missing = found(None, 800, 5, Difference::Missing);
        for finding in [ghost, missing] {
            reported.extend(state.resync(finding, &[&list], 15));
        }
        assert!(state.keep_unlisted(&found(Some(key), 700, 4, Difference::Unlisted)));
        reported.push(state.gone(key, 20));
        reported.extend(state.driver_unloaded(30));
        state.expire(u64::MAX);
        for body in [seen(false), Body::Close] {
            let event = event(40, 2, 701, body);
            let change = state.apply(&event);
            reported.push((event, change));
        }
        let tape = state.take_tape();
        (state, tape, reported)
    }

    #[test]
    fn a_tape_makes_the_same_state_and_reports_the_same() {
        let (state, tape, reported) = recorded();
        let (again, reported_again) = played(&tape);
        assert_eq!(shown(again), shown(state));
        assert_eq!(reported_again, reported);
        let ends = reported.into_iter().flat_map(|(_, change)| change.ended);
        let causes: Vec<_> = ends.filter_map(|queue| Some(queue.end?.cause)).collect();
        assert_eq!(causes, [Cause::NotSeen, Cause::NotSeen, Cause::DriverUnloaded, Cause::DriverUnloaded]);
    }

    #[test]
    fn each_call_is_on_the_tape_once() {
        let (_, tape, _) = recorded();
        let name = |input: &Input| match serde_json::to_value(input).expect("JSON") {
            serde_json::Value::String(name) => name,
            object => object.as_object().and_then(|all| all.keys().next()).expect("a name").clone(),
        };
        let names: Vec<String> = tape.iter().map(name).collect();
        let expected = [
            "process",
            "queue",
            "event",
            "event",
            "event",
            "details",
            "event",
            "vram",
            "missed",
            "sought",
            "sampled",
            "late",
            "compared",
            "corrected",
            "corrected",
            "unlisted",
            "gone",
            "unloaded",
            "expired",
            "event",
            "event",
        ];
        assert_eq!(names, expected, "a correction adopts by itself, and a pass is one");
    }

    #[test]
    fn what_was_learned_from_wrong_types_is_forgotten_and_the_tape_goes_on() {
        let (mut state, _, _) = recorded();
        state.start_anew();
        state.apply(&event(50, 3, 702, seen(false)));
        let tape = state.take_tape();
        assert_eq!(tape.len(), 2);
        assert_eq!(shown(played(&tape).0), shown(state));
    }

    #[test]
    fn without_a_tape_nothing_is_kept() {
        let mut state = state();
        state.apply(&event(10, 1, 700, seen(false)));
        assert_eq!(state.take_tape(), []);
    }
}
