//! Calls inside the driver whose return was missed (kfd-trace-ebpf/src/nested.rs). In: the entries of their
//! maps, once in a while, and which threads are in no call. Out: which entries to remove, and the processes whose
//! release is over.
//!
//! An entry that is left over would be taken for the thread's next call: an eviction would get the reason of
//! an earlier one. A thread that has ended is in no call, nor is a kworker without work. None of these calls lasts five
//! minutes: they wait for preemptions, which time out after 9 s (`queue_preemption_timeout_ms`), and for resets.

use super::lookup::{Lookup, LookupTable};
use crate::probes::error::LoadError;
use kfd_trace_common::lookup::table;
use kfd_trace_common::nested::{Eviction, MesCall, Releasing, Schedule, Suspension, Update, UserQueue};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two rounds, which must be called once a second.
const EACH: u32 = 2;

/// Rounds for which an entry stays the same until it is removed.
const ROUNDS: u32 = 150;

const UPDATES: LookupTable<u32, [u8; size_of::<Update>()]> = by_tid("UPDATES", table::UPDATES);
const EVICTIONS: LookupTable<u32, [u8; size_of::<Eviction>()]> = by_tid("EVICTIONS", table::EVICTIONS);
const USER_QUEUES: LookupTable<u32, [u8; size_of::<UserQueue>()]> = by_tid("USER_QUEUES", table::USER_QUEUES);
const SUSPENSIONS: LookupTable<u32, [u8; size_of::<Suspension>()]> =
    by_tid("SUSPENSIONS", table::SUSPENSIONS);
const RELEASING: LookupTable<u32, [u8; size_of::<Releasing>()]> = by_tid("RELEASING", table::RELEASING);
const RELEASING_NUMBER: u64 = table::RELEASING;
const SCHEDULES: LookupTable<u32, [u8; size_of::<Schedule>()]> = by_tid("SCHEDULES", table::SCHEDULES);
const MES_CALLS: LookupTable<u32, [u8; size_of::<MesCall>()]> = by_tid("MES_CALLS", table::MES_CALLS);

const fn by_tid<V>(name: &'static str, number: u64) -> LookupTable<u32, V> {
    LookupTable::new(name, number, |tid| [tid as u64, 0])
}

/// Table and tid.
type Place = (u64, u32);

#[derive(Debug, Default)]
pub(crate) struct Expired {
    seconds: u32,
    /// What each entry was, and for how many rounds.
    seen: BTreeMap<Place, (Vec<u8>, u32)>,
}

impl Expired {
    /// Must be called once a second. `idle`: whether the thread of this tid is in no call of the driver. Returns the
    /// addresses of the `struct kfd_process` whose release is over, and was not seen to return.
    pub(crate) fn tidy(
        &mut self,
        lookup: &Lookup<'_>,
        idle: impl Fn(u32) -> bool,
    ) -> Result<BTreeSet<u64>, LoadError> {
        let mut released = BTreeSet::new();
        self.seconds += 1;
        if !self.seconds.is_multiple_of(EACH) {
            return Ok(released);
        }
        let mut now = BTreeMap::new();
        read(lookup, &UPDATES, &mut now)?;
        read(lookup, &EVICTIONS, &mut now)?;
        read(lookup, &USER_QUEUES, &mut now)?;
        read(lookup, &SUSPENSIONS, &mut now)?;
        read(lookup, &RELEASING, &mut now)?;
        read(lookup, &SCHEDULES, &mut now)?;
        read(lookup, &MES_CALLS, &mut now)?;
        for ((table, tid), value) in self.round(now, idle) {
            if let (RELEASING_NUMBER, Some(address)) = (table, value.first_chunk()) {
                released.insert(u64::from_le_bytes(*address));
            }
            lookup.expire(table, tid)?;
        }
        Ok(released)
    }

    /// Entries that were there a round ago, and whose threads are in no call now; and those that have been the same for
    /// too long. They are seen as new if they are there again.
    fn round(&mut self, now: BTreeMap<Place, Vec<u8>>, idle: impl Fn(u32) -> bool) -> Vec<(Place, Vec<u8>)> {
        let mut before = std::mem::take(&mut self.seen);
        let mut expired = Vec::new();
        for (place, value) in now {
            let rounds =
                before.remove(&place).filter(|(was, _)| *was == value).map_or(1, |(_, rounds)| rounds + 1);
            if rounds > ROUNDS || rounds > 1 && idle(place.1) {
                expired.push((place, value));
            } else {
                self.seen.insert(place, (value, rounds));
            }
        }
        expired
    }
}

fn read<const N: usize>(
    lookup: &Lookup<'_>,
    table: &LookupTable<u32, [u8; N]>,
    into: &mut BTreeMap<Place, Vec<u8>>,
) -> Result<(), LoadError> {
    let entries = lookup.entries(table)?.into_iter();
    into.extend(entries.map(|(tid, value)| ((table.number, tid), value.to_vec())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(all: &[(u32, u8)]) -> BTreeMap<Place, Vec<u8>> {
        all.iter().map(|(tid, value)| ((table::EVICTIONS, *tid), vec![*value])).collect()
    }

    #[test]
    fn an_entry_that_stays_the_same_expires_once() {
        let mut expired = Expired::default();
        for _ in 0..ROUNDS {
            assert!(expired.round(entries(&[(7, 1)]), |_| false).is_empty());
        }
        assert_eq!(expired.round(entries(&[(7, 1)]), |_| false), [((table::EVICTIONS, 7), vec![1])]);
        assert!(expired.round(entries(&[(7, 1)]), |_| false).is_empty(), "it is a new one");
    }

    #[test]
    fn one_that_changes_or_ends_in_between_stays() {
        let mut expired = Expired::default();
        for round in 0..5 * ROUNDS {
            let changing = u8::from(round.is_multiple_of(ROUNDS));
            let now = if round % ROUNDS == 1 {
                entries(&[(7, changing)])
            } else {
                entries(&[(7, changing), (8, 1)])
            };
            assert!(expired.round(now, |_| false).is_empty(), "round {round}");
        }
    }

    #[test]
    fn a_thread_in_no_call_leaves_its_entry_at_the_second_look() {
        let mut expired = Expired::default();
        let now = || entries(&[(7, 1), (8, 1)]);
        let idle = |tid| tid == 8;
        assert!(
            expired.round(now(), idle).is_empty(),
            "its call may have begun and ended between the two readings"
        );
        assert_eq!(expired.round(now(), idle), [((table::EVICTIONS, 8), vec![1])]);
        assert!(expired.round(entries(&[(7, 1), (8, 2)]), idle).is_empty(), "another call");
        assert!(expired.round(entries(&[(7, 1), (8, 3)]), idle).is_empty(), "and another one");
    }
}
