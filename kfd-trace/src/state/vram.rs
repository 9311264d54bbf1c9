//! What the driver counts of the memory of processes, beside what their ioctls show ([`super::memory`]).

use super::input::{Input, Vram};
use super::process::Process;
use super::rows::State;
use crate::model::inventory::Listed;

impl State {
    /// Takes over what the driver counts, where it is not as before. Processes without a row, or with one that is
    /// younger than the reading, are left out. `from_ns`: when the reading began.
    pub fn count_vram<'l>(&mut self, from_ns: u64, listed: impl IntoIterator<Item = &'l Listed>) {
        let mut changed = Vec::new();
        for process in listed {
            let row = self.places.get(process.place()).and_then(|key| self.rows.get(&key));
            let differs = |row: &Process| row.first_seen_ns <= from_ns && row.memory.vram != process.vram;
            if row.is_some_and(differs) {
                changed.push(Vram { place: process.place(), bytes: process.vram.clone() });
            }
        }
        if !changed.is_empty() {
            self.set_vram(changed);
        }
    }

    pub(super) fn set_vram(&mut self, changed: Vec<Vram>) {
        self.note(|| Input::Vram(changed.clone()));
        for Vram { place, bytes } in changed {
            if let Some(row) = self.places.get(place).and_then(|key| self.rows.get_mut(&key)) {
                row.memory.vram = bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Body, ProcessId};
    use crate::model::memory::Domain;
    use crate::model::memory::samples::{GTT, VRAM, allocated, freed, imported};
    use crate::state::memory::{MOST, Memory};
    use crate::state::samples::{event, seen, state};

    const GPU: u32 = 7;

    fn having(bodies: &[Body]) -> State {
        let mut state = state();
        state.apply(&event(10, 1, 700, seen(false)));
        bodies.iter().for_each(|body| drop(state.apply(&event(20, 1, 700, body.clone()))));
        state
    }

    fn row(state: &State) -> &Process {
        state.process(ProcessId(1).into()).expect("it has a row")
    }

    fn sums(state: &State) -> Vec<(Domain, u64, u64)> {
        let sums = row(state).memory.sums().iter();
        sums.map(|((_, domain), sum)| (*domain, sum.bytes, sum.allocations)).collect()
    }

    #[test]
    fn what_is_freed_is_held_no_longer() {
        let all = [allocated(1, GPU, 4096, VRAM), allocated(2, GPU, 8192, VRAM), allocated(3, GPU, 1, GTT)];
        let state = having(&all);
        assert_eq!(sums(&state), [(Domain::Vram, 12288, 2), (Domain::Gtt, 4096, 1)]);
        let state = having(&[&all[..], &[freed(1), freed(3), imported(4, GPU)]].concat());
        assert_eq!(sums(&state), [(Domain::Vram, 8192, 1), (Domain::Imported, 0, 1)]);
        assert_eq!(row(&state).memory_is_whole(), Some(true));
        let handles: Vec<u64> = row(&state).memory.held().map(|(handle, _)| handle).collect();
        assert_eq!(handles, [2, 4]);
    }

    #[test]
    fn what_was_not_seen_is_not_taken_for_nothing() {
        assert_eq!(row(&having(&[])).memory_is_whole(), None);
        let unknown = having(&[freed(9)]);
        assert_eq!((sums(&unknown), row(&unknown).memory_is_whole()), (vec![], Some(false)));
        let again = having(&[allocated(1, GPU, 4096, VRAM), allocated(1, GPU, 8192, VRAM)]);
        assert_eq!(sums(&again), [(Domain::Vram, 8192, 1)], "its end was lost");
        assert_eq!(row(&again).memory_is_whole(), Some(false));
        let mut standing = state();
        standing.apply(&event(10, 1, 700, seen(true)));
        standing.apply(&event(20, 1, 700, allocated(1, GPU, 4096, VRAM)));
        assert_eq!(row(&standing).memory_is_whole(), Some(false), "it may have had some before");
    }

    #[test]
    fn more_than_can_be_followed_is_known_to_be_more() {
        let mut state = having(&[]);
        for handle in 0..=MOST as u64 {
            state.apply(&event(20, 1, 700, allocated(handle, GPU, 4096, VRAM)));
        }
        assert_eq!(sums(&state), [(Domain::Vram, 4096 * MOST as u64, MOST as u64)]);
        assert_eq!(row(&state).memory_is_whole(), Some(false));
    }

    #[test]
    fn the_drivers_count_is_of_the_row_that_was_there_and_goes_with_it() {
        let mut state = having(&[allocated(1, GPU, 4096, VRAM)]);
        let listed = |tgid, bytes| Listed { tgid, vram: [(GPU, bytes)].into(), ..Listed::default() };
        state.count_vram(5, &[listed(700, 1)]);
        assert!(row(&state).memory.vram().is_empty(), "of a process before it");
        state.start_tape();
        state.count_vram(30, &[listed(700, 4096), listed(800, 1)]);
        state.count_vram(40, &[listed(700, 4096)]);
        assert_eq!(row(&state).memory.vram(), &[(GPU, 4096)].into());
        assert_eq!(state.take_tape().len(), 1, "only what changes it");
        state.apply(&event(50, 1, 700, Body::ProcessRelease));
        assert_eq!(row(&state).memory, Memory::default(), "the driver has freed it");
    }
}
