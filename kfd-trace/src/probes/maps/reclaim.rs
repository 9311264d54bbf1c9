//! Slots that their threads have left. In: all slots and which of their threads have ended, once a second,
//! and processes that have ended. Out: which claims to remove.
//!
//! A thread that is taken for ended may be running a program just now: a new thread with the same ids, or one
//! that continues as another program. So three rounds pass. In the first the slot is marked as suspect and
//! its cached state is invalidated, so that a thread that calls from then on reports again that the slot is
//! its own (kfd-trace-ebpf/src/in_flight.rs, `stay`). In the second the slot is released. In the third its
//! claim is removed, if no thread has reported: only then can another thread take it.

use super::mapped::Element;
use kfd_trace_common::in_flight::{Caller, busy};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds between two checks of all threads.
const EACH: u32 = 5;

/// Slots that are being freed.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    rounds: u32,
    suspected: BTreeMap<u32, Suspect>,
    released: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    /// The thread that owns the slot.
    thread: u64,
    /// The process that was called last, if it has ended.
    process: Option<u64>,
}

/// The result of a round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Slots became suspect that were not before.
    pub(crate) suspects: bool,
    /// Slots whose claims must be removed.
    pub(crate) claims: Vec<u32>,
}

impl Leaving {
    /// A slot by its number: it becomes suspect if it is of a process that has ended.
    pub(crate) fn retire(&mut self, slot: u32, element: Element<'_>, ended: impl Fn(u64) -> bool) {
        let Some(thread) = element.owner() else { return };
        let process = element.copy::<Caller>().call.process;
        if ended(process) {
            self.suspected.insert(slot, Suspect { thread, process: Some(process) });
        }
    }

    /// One round, over the slots in the order of their numbers, which come with them; a slot that was ever taken is
    /// among them. A call in progress does not end with its thread: it is reported as a call whose return was not
    /// seen for as long as its process exists.
    pub(crate) fn round(&mut self, slots: &[(u32, Element<'_>)], ended: impl Fn(u64) -> bool) -> Round {
        let at = |slot: u32| {
            let place = slots.binary_search_by_key(&slot, |(number, _)| *number).ok()?;
            slots.get(place).map(|(_, element)| element)
        };
        let freed = std::mem::take(&mut self.released);
        let claims = freed.into_iter().filter(|slot| at(*slot).is_some_and(|slot| slot.owner().is_none()));
        let claims = claims.collect();
        let leaves = |element: &Element<'_>, thread| is_idle(element) && ended(thread);
        for (slot, suspect) in std::mem::take(&mut self.suspected) {
            let Some(element) = at(slot).filter(|element| element.owner() == Some(suspect.thread)) else {
                continue;
            };
            let sure = match suspect.process {
                Some(process) => element.copy::<Caller>().call.process == process,
                None => leaves(element, suspect.thread),
            };
            if sure && release(element, suspect) {
                self.released.insert(slot);
            }
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(EACH) {
            for (slot, element) in slots {
                let left = element.owner().filter(|thread| leaves(element, *thread));
                let suspect = left.map(|thread| (*slot, Suspect { thread, process: None }));
                self.suspected.extend(suspect);
            }
        }
        Round { suspects: !self.suspected.is_empty(), claims }
    }
}

fn is_idle(element: &Element<'_>) -> bool {
    element.copy::<Caller>().busy != busy::IN_CALL
}

/// A thread that has started a call meanwhile keeps its slot.
fn release(element: &Element<'_>, suspect: Suspect) -> bool {
    let was_idle = is_idle(element);
    if suspect.process.is_none() && !was_idle {
        return false;
    }
    let goes_on = || {
        let Caller { call, .. } = element.copy();
        suspect.process.is_some_and(|process| call.process != process) || (was_idle && !is_idle(element))
    };
    element.release(suspect.thread) && (!goes_on() || !element.give_back(suspect.thread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_trace_common::in_flight::OpenCall;
    use std::sync::atomic::{AtomicU64, Ordering};

    const WORDS: usize = size_of::<Caller>() / size_of::<u64>();

    /// What a slot begins with.
    struct Sitting([AtomicU64; WORDS]);

    impl Sitting {
        fn of(thread: u64, process: u64, busy: u32) -> Self {
            let call = OpenCall { process, ..Caller::NONE.call };
            let caller = Caller { thread, call, busy, ..Caller::NONE };
            let words: [u64; WORDS] = zerocopy::transmute!(caller);
            Sitting(words.map(AtomicU64::new))
        }

        fn element(&self) -> Element<'_> {
            Element::over(&self.0)
        }

        fn becomes(&self, other: &Sitting) {
            let words = self.0.iter().zip(&other.0);
            words.for_each(|(to, from)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
        }

        fn holder(&self) -> u64 {
            self.0[0].load(Ordering::Relaxed)
        }
    }

    fn round(leaving: &mut Leaving, slots: &[Sitting], ended: impl Fn(u64) -> bool) -> Round {
        let elements: Vec<_> = (0..).zip(slots.iter().map(Sitting::element)).collect();
        leaving.round(&elements, ended)
    }

    /// Runs up to the first round that makes a slot suspect.
    fn suspecting(slots: &[Sitting], ended: impl Fn(u64) -> bool + Copy) -> Leaving {
        let mut leaving = Leaving::default();
        for _ in 1..EACH {
            assert_eq!(round(&mut leaving, slots, ended), Round::default());
        }
        assert_eq!(round(&mut leaving, slots, ended), Round { suspects: true, claims: vec![] });
        leaving
    }

    fn claims(claims: &[u32]) -> Round {
        Round { suspects: false, claims: claims.to_vec() }
    }

    #[test]
    fn a_seat_of_an_ended_thread_is_free_after_three_rounds() {
        let slots = [
            Sitting::of(7, 1, busy::NO),
            Sitting::of(8, 1, busy::NO),
            Sitting::of(9, 1, busy::UNWANTED),
            Sitting::of(0, 1, busy::NO),
        ];
        let ended = |thread| thread != 8;
        let mut leaving = suspecting(&slots, ended);
        assert_eq!([0, 1, 2].map(|slot: usize| slots[slot].holder()), [7, 8, 9], "not yet");
        assert_eq!(round(&mut leaving, &slots, ended), claims(&[]));
        assert_eq!([0, 1, 2].map(|slot: usize| slots[slot].holder()), [0, 8, 0]);
        assert_eq!(round(&mut leaving, &slots, ended), claims(&[0, 2]));
        assert_eq!(round(&mut leaving, &slots, ended), claims(&[]), "once");
    }

    #[test]
    fn a_call_under_way_keeps_its_seat() {
        let slots = [Sitting::of(7, 1, busy::IN_CALL)];
        let mut leaving = Leaving::default();
        for _ in 0..=2 * EACH {
            assert_eq!(round(&mut leaving, &slots, |_| true), Round::default());
        }
        assert_eq!(slots[0].holder(), 7);
    }

    #[test]
    fn who_is_there_again_at_the_second_look_stays() {
        let slots = [Sitting::of(7, 1, busy::NO), Sitting::of(8, 1, busy::NO)];
        let mut leaving = suspecting(&slots, |_| true);
        slots[1].0[0].store(18, Ordering::Relaxed);
        assert_eq!(round(&mut leaving, &slots, |thread| thread != 7), claims(&[]));
        assert_eq!(round(&mut leaving, &slots, |thread| thread != 7), claims(&[]));
        assert_eq!((slots[0].holder(), slots[1].holder()), (7, 18));
    }

    #[test]
    fn who_begins_a_call_while_it_is_looked_for_keeps_its_seat() {
        let slots = [Sitting::of(7, 1, busy::NO)];
        let mut leaving = suspecting(&slots, |_| true);
        let calls = |_| {
            slots[0].becomes(&Sitting::of(7, 1, busy::IN_CALL));
            true
        };
        assert_eq!(round(&mut leaving, &slots, calls), claims(&[]));
        assert_eq!(slots[0].holder(), 7);
        assert_eq!(round(&mut leaving, &slots, |_| true), claims(&[]));
    }

    #[test]
    fn an_owner_that_reclaims_its_slot_keeps_its_claim() {
        let slots = [Sitting::of(7, 1, busy::NO)];
        let mut leaving = suspecting(&slots, |_| true);
        assert_eq!(round(&mut leaving, &slots, |_| true), claims(&[]));
        assert_eq!(slots[0].holder(), 0);
        slots[0].0[0].store(7, Ordering::Relaxed);
        assert_eq!(round(&mut leaving, &slots, |_| false), claims(&[]));
    }

    #[test]
    fn a_process_that_ended_leaves_the_seats_of_its_threads_but_not_of_those_that_go_on() {
        let slots =
            [Sitting::of(7, 1, busy::IN_CALL), Sitting::of(8, 2, busy::NO), Sitting::of(9, 1, busy::NO)];
        let mut leaving = Leaving::default();
        for (slot, sitting) in (0u32..).zip(&slots) {
            leaving.retire(slot, sitting.element(), |process| process == 1);
        }
        // The thread has called as another program.
        slots[2].becomes(&Sitting::of(9, 3, busy::NO));
        assert_eq!(round(&mut leaving, &slots, |_| false), claims(&[]));
        assert_eq!([0, 1, 2].map(|slot: usize| slots[slot].holder()), [0, 8, 9]);
        assert_eq!(round(&mut leaving, &slots, |_| false), claims(&[0]));
    }
}
