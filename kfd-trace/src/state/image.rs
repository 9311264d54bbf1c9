//! A state as values that a recording may begin with: what existed before it, with all that was known of it.
//!
//! In: a state. Out: an [`Image`] and the rows, and from them a state that behaves as the first one from there on.

use super::gpu::GpuStates;
use super::limits::StateLimits;
use super::process::{Process, ProcessKey};
use super::rows::State;
use super::schedules::Schedules;
use super::totals::Totals;
use crate::model::inventory::Place;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A state without its rows. The names of the fields, and of those of a row, are the format of recordings: they are never
/// changed, and fields that are added are optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    ended: VecDeque<ProcessKey>,
    places: Vec<(Place, ProcessKey)>,
    gpus: GpuStates,
    scheduled: Schedules,
    totals: Totals,
    adopted_keys: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_missed_ns: Option<u64>,
}

impl State {
    /// A copy: it takes as long as a snapshot.
    #[must_use]
    pub fn image(&self) -> (Image, Vec<Process>) {
        let rows: Vec<Process> = self.rows.values().cloned().collect();
        let image = Image {
            ended: self.ended.clone(),
            places: self.places.entries(),
            gpus: self.gpus.clone(),
            scheduled: self.scheduled.clone(),
            totals: self.totals.clone(),
            adopted_keys: self.adopted_keys,
            memory_missed_ns: self.memory_missed_ns,
        };
        (image, rows)
    }

    /// The state that this is an image of; [`State::put_row`] adds the rows.
    #[must_use]
    pub fn of_image(image: Image, limits: StateLimits) -> Self {
        let Image { ended, places, gpus, scheduled, totals, adopted_keys, memory_missed_ns } = image;
        let mut state = State::new(limits);
        state.memory_missed_ns = memory_missed_ns;
        (state.ended, state.gpus, state.scheduled) = (ended, gpus, scheduled);
        (state.totals, state.adopted_keys) = (totals, adopted_keys);
        places.into_iter().for_each(|(place, key)| state.places.insert(place, key));
        state
    }

    /// Adds a row of an image.
    pub fn put_row(&mut self, row: Process) {
        self.allocations += row.memory.count_held();
        self.rows.insert(row.key, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Body, Event};
    use crate::state::samples::{create, destroy, event, seen};
    use crate::state::tape::tests::recorded;
    use serde::de::DeserializeOwned;

    fn through_text<T: Serialize + DeserializeOwned>(value: &T) -> T {
        let text = serde_json::to_string(value).expect("text");
        serde_json::from_str(&text).expect(&text)
    }

    fn again(state: &State) -> State {
        let (image, rows) = state.image();
        let mut again = State::of_image(through_text(&image), state.limits());
        rows.iter().for_each(|row| again.put_row(through_text(row)));
        again
    }

    #[test]
    fn a_state_is_made_again_from_its_image_whatever_came_before() {
        let (_, tape, _) = recorded();
        let mut state = crate::state::samples::state();
        assert_eq!(again(&state).image(), state.image());
        for input in tape {
            state.play(input, &mut Vec::new());
            assert_eq!(again(&state).image(), state.image());
        }
    }

    #[test]
    fn what_comes_after_changes_both_in_the_same_way() {
        let (mut state, ..) = recorded();
        state.expire(0);
        let mut again = again(&state);
        let later = [
            (3, 703, seen(false)),
            (3, 703, create(3)),
            // Names its process by the PID alone.
            (0, 701, Body::Open { errno: 0, comm: "train".into() }),
            (3, 703, Body::MmRelease),
            (3, 703, destroy(3)),
            (2, 701, create(9)),
        ];
        let later = later.into_iter().zip(100..).map(|((id, tgid, body), at)| event(at, id, tgid, body));
        let later: Vec<Event> = later.collect();
        for event in &later {
            assert_eq!(again.apply(event), state.apply(event));
        }
        assert_eq!(again.expire(u64::MAX), state.expire(u64::MAX));
        assert_eq!(again.image(), state.image());
    }
}
