//! What the driver counts of the memory of processes, beside what their ioctls show ([`super::memory`]).

use super::input::{Input, ReadTimes, Vram};
use super::process::Process;
use super::rows::State;
use crate::model::inventory::Listed;
use std::collections::{BTreeMap, BTreeSet};

impl State {
    /// Takes over what the driver counts, where it is not as before: nothing is known of a process that the list, which is
    /// complete, does not have. Rows that are younger than the reading are left out.
    pub fn count_vram(&mut self, read: ReadTimes, listed: &[Listed]) {
        let mut changed = Vec::new();
        let mut there = BTreeSet::new();
        for process in listed {
            let Some(key) = self.places.get(process.place()) else { continue };
            there.insert(key);
            let differs =
                |row: &Process| row.first_seen_ns <= read.from_ns && *row.memory.vram() != process.vram;
            if self.rows.get(&key).is_some_and(differs) {
                changed.push(Vram { place: process.place(), bytes: process.vram.clone() });
            }
        }
        let counted = |row: &&Process| row.alive() && !row.memory.vram().is_empty();
        let gone = self.rows.values().filter(counted).filter(|row| !there.contains(&row.key));
        changed.extend(gone.filter_map(|row| Some(Vram { place: row.place()?, bytes: BTreeMap::new() })));
        if !changed.is_empty() {
            self.set_vram(read.until_ns, changed);
        }
    }

    pub(super) fn set_vram(&mut self, at_ns: u64, changed: Vec<Vram>) {
        self.note(|| Input::Vram { at_ns, changed: changed.clone() });
        for Vram { place, bytes } in changed {
            if let Some(row) = self.places.get(place).and_then(|key| self.rows.get_mut(&key)) {
                row.memory.count(bytes);
            }
        }
    }

    /// Records were lost: which allocations a process has is no longer certain.
    pub fn miss_memory(&mut self, at_ns: u64) {
        self.note(|| Input::Missed { at_ns });
        self.memory_missed_ns = self.memory_missed_ns.max(Some(at_ns));
        self.rows.values_mut().filter(|row| row.alive()).for_each(|row| row.memory.misses(at_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::IoctlCall;
    use crate::model::event::{Body, ProcessId};
    use crate::model::memory::Domain;
    use crate::model::memory::samples::{GTT, VRAM, allocated, freed, imported, mapped, unmapped};
    use crate::state::memory::{MOST, MOST_OF_ALL, Memory};
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
    fn a_process_whose_record_was_read_after_a_loss_is_not_taken_for_whole() {
        for (missed_ns, whole) in [(9, Some(true)), (10, Some(false)), (15, Some(false))] {
            let mut state = state();
            state.miss_memory(missed_ns);
            state.apply(&event(10, 1, 700, seen(false)));
            state.apply(&event(20, 1, 700, allocated(1, GPU, 4096, VRAM)));
            assert_eq!(row(&state).memory_is_whole(), whole, "{missed_ns}");
        }
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
        state.count_vram(5.into(), &[listed(700, 1)]);
        assert!(row(&state).memory.vram().is_empty(), "of a process before it");
        state.start_tape();
        state.count_vram(30.into(), &[listed(700, 4096), listed(800, 1)]);
        state.count_vram(40.into(), &[listed(700, 4096)]);
        assert_eq!(row(&state).memory.vram(), &[(GPU, 4096)].into());
        assert_eq!(state.take_tape().len(), 1, "only what changes it");
        state.count_vram(45.into(), &[listed(800, 1)]);
        assert!(row(&state).memory.vram().is_empty(), "the driver has it no longer");
        state.apply(&event(50, 1, 700, Body::ProcessRelease));
        assert_eq!(row(&state).memory, Memory::default(), "the driver has freed it");
    }

    #[test]
    fn after_a_lost_record_nothing_is_certain() {
        let mut state = having(&[allocated(1, GPU, 4096, VRAM)]);
        state.miss_memory(30);
        assert_eq!(row(&state).memory_is_whole(), Some(false));
        let mut state = having(&[]);
        state.miss_memory(30);
        assert_eq!(row(&state).memory_is_whole(), Some(false), "it may have been its first one");
    }

    #[test]
    fn a_handle_that_another_thread_gets_at_once_is_held() {
        let at = |entered_ns, body| {
            let Body::Ioctl(call) = body else { panic!("an ioctl") };
            Body::Ioctl(IoctlCall { entered_ns, ..call })
        };
        let first = at(10, allocated(1, GPU, 4096, VRAM));
        // The one that frees returns last.
        let state = having(&[first, at(30, allocated(1, GPU, 8192, VRAM)), at(20, freed(1))]);
        assert_eq!(sums(&state), [(Domain::Vram, 8192, 1)]);
        assert_eq!(row(&state).memory_is_whole(), Some(false));
    }

    const PEER: u32 = 9;

    /// GPUs of each allocation, by handle.
    fn on_gpus(state: &State) -> Vec<(u64, Option<Vec<u32>>)> {
        let memory = &row(state).memory;
        memory.held().map(|(handle, held)| (handle, memory.mapping(held).map(|on| memory.gpus(on)))).collect()
    }

    /// Made at this time, entered one before.
    fn at(mono_ns: u64, body: Body) -> Body {
        let Body::Ioctl(call) = body else { panic!("an ioctl") };
        Body::Ioctl(IoctlCall { entered_ns: mono_ns - 1, ..call })
    }

    fn known(gpus: &[u32]) -> Option<Vec<u32>> {
        Some(gpus.to_vec())
    }

    #[test]
    fn an_allocation_is_on_the_gpus_that_it_was_mapped_on_and_not_unmapped_from() {
        let both = [allocated(1, GPU, 4096, VRAM), allocated(2, GPU, 1, GTT)];
        let and = |more: &[Body]| on_gpus(&having(&[&both[..], more].concat()));
        assert_eq!(and(&[]), [(1, known(&[])), (2, known(&[]))], "an allocation is on none at first");
        let on_both = mapped(1, &[PEER, GPU], 2);
        assert_eq!(and(&[on_both.clone(), on_both.clone()])[0], (1, known(&[GPU, PEER])), "twice is once");
        assert_eq!(and(&[mapped(1, &[GPU, PEER], 1)])[0], (1, known(&[GPU])), "the second one failed");
        let half = [on_both.clone(), unmapped(1, &[GPU], 1)];
        assert_eq!(and(&half), [(1, known(&[PEER])), (2, known(&[]))]);
        assert_eq!(and(&[unmapped(1, &[GPU], 1)])[0], (1, known(&[])), "was on none");
        // What has the handle next is another one.
        let next = [on_both, freed(1), allocated(1, GPU, 4096, VRAM)];
        let state = having(&[&both[..], &next].concat());
        assert_eq!(on_gpus(&state)[0], (1, known(&[])));
        assert_eq!(row(&state).memory_is_whole(), Some(true));
    }

    #[test]
    fn where_calls_that_map_were_not_seen_it_is_not_known_on_which_gpus_an_allocation_is() {
        let unread = |body| {
            let Body::Ioctl(call) = body else { panic!("an ioctl") };
            Body::Ioctl(IoctlCall { args: call.args[..24].to_vec(), ..call })
        };
        let first = || vec![allocated(1, GPU, 4096, VRAM), mapped(1, &[GPU], 1), allocated(2, GPU, 1, GTT)];
        let and = |more: Vec<Body>| having(&[first(), more].concat());
        let unknown = and(vec![unread(mapped(1, &[PEER], 1)), mapped(1, &[PEER], 1)]);
        assert_eq!(on_gpus(&unknown), [(1, None), (2, known(&[]))]);
        assert_eq!(row(&unknown).memory_is_whole(), Some(true), "its sums are right");
        let crowd: Vec<u32> = (0..64).collect();
        let many = and(vec![mapped(2, &crowd, 64)]);
        assert_eq!(on_gpus(&many), [(1, known(&[GPU])), (2, known(&crowd))]);
        let more = and(vec![mapped(2, &crowd, 64), mapped(2, &[PEER + 99], 1)]);
        assert_eq!(on_gpus(&more), [(1, known(&[GPU])), (2, None)], "more than are followed");
        let stranger = and(vec![mapped(3, &[GPU], 1)]);
        assert_eq!(
            row(&stranger).memory_is_whole(),
            Some(false),
            "it was allocated by a call that was not seen"
        );
        // Lost until 30: what came after is known again.
        let mut lost = and(vec![]);
        lost.miss_memory(30);
        for body in [at(30, allocated(3, GPU, 1, VRAM)), at(40, allocated(4, GPU, 1, VRAM))] {
            lost.apply(&event(40, 1, 700, body));
        }
        lost.apply(&event(50, 1, 700, at(50, mapped(4, &[GPU], 1))));
        assert_eq!(on_gpus(&lost), [(1, None), (2, None), (3, None), (4, known(&[GPU]))]);
    }

    #[test]
    fn a_call_on_what_had_the_handle_before_changes_nothing() {
        let again = [at(10, allocated(1, GPU, 1, VRAM)), at(30, allocated(1, GPU, 1, VRAM))];
        // The one that unmaps returns last.
        let later = [at(40, mapped(1, &[GPU], 1)), at(20, unmapped(1, &[GPU], 1))];
        assert_eq!(on_gpus(&having(&[again, later].concat())), [(1, known(&[GPU]))]);
    }

    #[test]
    fn all_processes_together_are_bounded_and_an_end_makes_room() {
        let mut state = having(&[]);
        state.allocations = MOST_OF_ALL - 1;
        for handle in [1, 2] {
            state.apply(&event(20, 1, 700, allocated(handle, GPU, 4096, VRAM)));
        }
        assert_eq!((sums(&state), state.allocations), (vec![(Domain::Vram, 4096, 1)], MOST_OF_ALL));
        state.apply(&event(50, 1, 700, Body::ProcessRelease));
        assert_eq!(state.allocations, MOST_OF_ALL - 1);
    }
}
