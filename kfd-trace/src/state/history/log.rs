//! The entries of one class, bounded.

use super::entry::Entry;
use super::owner::{Owner, OwnerKey, packed};
use crate::state::process::Process;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Divisor: one owner gets at most this fraction of a class, so that its storm of events evicts only its own
/// entries.
const SHARE: usize = 8;

/// Bytes per entry besides the entry itself: its slot, its number at its owner, and allocator overhead.
const PLACES: usize = 80;

/// Bounds of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassLimits {
    pub(super) entries: usize,
    /// Owners, maps and allocator overhead included.
    pub(super) bytes: usize,
}

/// What is kept of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub entries: usize,
    pub bytes: usize,
    pub max_entries: usize,
    pub max_bytes: usize,
    /// Limit per process.
    pub max_of_process: usize,
    pub dropped: u64,
    /// Time of the newest dropped entry, in nanoseconds since the Unix epoch: later entries are complete.
    pub dropped_until_ns: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Log {
    limits: ClassLimits,
    /// By number, in order of arrival. `None`: dropped before an older one. At most half as many as there are entries.
    slots: VecDeque<(u64, Option<Arc<Entry>>)>,
    entries: usize,
    /// By key ([`packed`]).
    owners: BTreeMap<(u64, u64), Owned>,
    bytes: usize,
    dropped: u64,
    dropped_until_ns: Option<i64>,
}

/// The entries of one owner.
#[derive(Debug)]
struct Owned {
    /// The owner as known now. Entries made before more was known share an older copy.
    owner: Arc<Owner>,
    numbers: VecDeque<u64>,
}

impl Log {
    pub(super) fn new(limits: ClassLimits) -> Self {
        let (slots, owners) = (VecDeque::new(), BTreeMap::new());
        Log { limits, slots, entries: 0, owners, bytes: 0, dropped: 0, dropped_until_ns: None }
    }

    /// The known owner if unchanged, else a new one.
    pub(super) fn owner(&self, key: OwnerKey, row: Option<&Process>, comm: Option<&str>) -> Arc<Owner> {
        match self.owners.get(&packed(key)) {
            Some(known) if known.owner.is(row, comm) => Arc::clone(&known.owner),
            _ => Arc::new(Owner::new(key, row, comm)),
        }
    }

    /// `number`: greater than all previous ones.
    pub(super) fn push(&mut self, number: u64, entry: impl Into<Arc<Entry>>) {
        let entry = entry.into();
        self.bytes += cost(&entry);
        let own = entry.owner.as_ref().map(|owner| self.owned(owner, number));
        self.slots.push_back((number, Some(entry)));
        self.entries += 1;
        let share = self.limits.entries / SHARE;
        if let Some((oldest, count)) = own
            && count > share
            && let Some(at) = self.slot(oldest)
        {
            self.drop(at);
        }
        while self.entries > 0 && (self.entries > self.limits.entries || self.bytes > self.limits.bytes) {
            self.drop(0);
        }
    }

    /// Where the entry with this number is.
    fn slot(&self, number: u64) -> Option<usize> {
        self.slots.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    /// Returns the number of the owner's oldest entry, and its entry count.
    fn owned(&mut self, owner: &Arc<Owner>, number: u64) -> (u64, usize) {
        let known = self.owners.entry(packed(owner.key())).or_insert_with(|| {
            self.bytes += owner.bytes();
            Owned { owner: Arc::clone(owner), numbers: VecDeque::new() }
        });
        if !Arc::ptr_eq(&known.owner, owner) {
            self.bytes += owner.bytes();
            known.owner = Arc::clone(owner);
        }
        known.numbers.push_back(number);
        (known.numbers.front().copied().unwrap_or(number), known.numbers.len())
    }

    /// Drops the entry of a slot, which must be the oldest of its owner.
    fn drop(&mut self, at: usize) {
        let Some(entry) = self.slots.get_mut(at).and_then(|(_, entry)| entry.take()) else { return };
        self.entries -= 1;
        while self.slots.front().is_some_and(|(_, entry)| entry.is_none()) {
            self.slots.pop_front();
        }
        if self.slots.len() > self.entries + self.entries / 2 {
            self.slots.retain(|(_, entry)| entry.is_some());
        }
        self.bytes -= cost(&entry);
        self.dropped += 1;
        self.dropped_until_ns = self.dropped_until_ns.max(Some(entry.wall_ns));
        let Some(owner) = &entry.owner else { return };
        let key = packed(owner.key());
        let Some(owned) = self.owners.get_mut(&key) else { return };
        owned.numbers.pop_front();
        let next = owned.numbers.front().copied();
        if next.is_none() {
            self.owners.remove(&key);
        }
        let next = next.and_then(|number| self.slots.get(self.slot(number)?)?.1.as_ref()?.owner.as_ref());
        if !next.is_some_and(|next| Arc::ptr_eq(next, owner)) {
            self.bytes -= owner.bytes();
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<Entry>)> {
        self.slots.iter().filter_map(|(number, entry)| Some((*number, entry.as_ref()?)))
    }

    pub(super) fn kept(&self) -> Kept {
        Kept {
            entries: self.entries,
            bytes: self.bytes,
            max_entries: self.limits.entries,
            max_bytes: self.limits.bytes,
            max_of_process: self.limits.entries / SHARE,
            dropped: self.dropped,
            dropped_until_ns: self.dropped_until_ns,
        }
    }
}

fn cost(entry: &Entry) -> usize {
    size_of::<Entry>() + PLACES + entry.what.heap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::ProcessId;
    use crate::state::history::entry::What;
    use crate::state::process::ProcessKey;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn entry(mono_ns: u64, owner: Option<Arc<Owner>>) -> Entry {
        Entry { mono_ns, wall_ns: 0, owner, tid: 1, task_tgid: 1, what: What::ProcessRelease }
    }

    fn key(process: u64) -> OwnerKey {
        (Some(ProcessKey::Adopted(process)), Some(7))
    }

    #[test]
    fn what_is_dropped_takes_its_owner_with_it() {
        let mut log = Log::new(ClassLimits { entries: 8, bytes: 1 << 20 });
        for number in 1..=100 {
            let owner = log.owner(key(number), None, Some("x"));
            log.push(number, entry(number, Some(owner)));
        }
        let steady = log.kept().bytes;
        for number in 101..=200 {
            // Two entries per owner.
            let owner = log.owner(key(number / 2), None, Some("x"));
            log.push(number, entry(number, Some(owner)));
            assert!(log.kept().bytes <= steady, "{:?}", log.kept());
        }
        for number in 201..=208 {
            log.push(number, entry(number, None));
        }
        assert_eq!(log.kept().bytes, 8 * (size_of::<Entry>() + 80), "no owner is left");
    }

    #[test]
    fn an_owner_that_changes_costs_what_is_left_of_it() {
        let mut log = Log::new(ClassLimits { entries: 64, bytes: 1 << 20 });
        let mut push = |number: u64| {
            // Threads of a process without a row, each with its own name.
            let owner =
                log.owner((None, Some(7)), None, Some(if number.is_multiple_of(2) { "a" } else { "b" }));
            log.push(number, entry(0, Some(owner)));
            (log.kept().entries, log.kept().bytes)
        };
        let steady = (1..=100).map(&mut push).last();
        assert_eq!((101..=1_000).map(&mut push).last(), steady);
    }

    #[test]
    fn different_keys_stay_different_when_they_are_packed() {
        let processes = [
            None,
            Some(ProcessKey::Adopted(0)),
            Some(ProcessKey::Adopted(7)),
            Some(ProcessId(0).into()),
            Some(ProcessId(7).into()),
        ];
        let all = processes
            .into_iter()
            .flat_map(|process| [None, Some(0), Some(7), Some(u32::MAX)].map(|tgid| (process, tgid)));
        let distinct: BTreeSet<_> = all.clone().map(packed).collect();
        assert_eq!(distinct.len(), all.count());
    }

    proptest! {
        /// As a list that is searched from its front would have it, whatever the order of owners.
        #[test]
        fn dropped_is_the_oldest_of_all_or_of_an_owner_with_too_many(owners in vec(0..4_u64, 0..400)) {
            const ENTRIES: usize = 24;
            let mut log = Log::new(ClassLimits { entries: ENTRIES, bytes: 1 << 20 });
            let mut list: Vec<(u64, u64)> = Vec::new();
            for (number, process) in (1..).zip(owners) {
                // The last one is no process: its entries have no owner, and no share.
                let owner = (process < 3).then(|| log.owner(key(process), None, None));
                log.push(number, entry(process, owner));
                list.push((number, process));
                if process < 3 && list.iter().filter(|(_, other)| *other == process).count() > ENTRIES / 8 {
                    let oldest = list.iter().position(|(_, other)| *other == process);
                    oldest.map(|oldest| list.remove(oldest));
                }
                if list.len() > ENTRIES {
                    list.remove(0);
                }
                let kept: Vec<_> = log.iter().map(|(number, entry)| (number, entry.mono_ns)).collect();
                prop_assert_eq!(&kept, &list);
                prop_assert_eq!(log.kept().entries, list.len());
                prop_assert!(log.slots.len() <= list.len() + list.len() / 2);
            }
        }
    }
}
