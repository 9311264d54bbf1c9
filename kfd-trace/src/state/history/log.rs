//! The entries of one class, bounded.

use super::entry::Entry;
use super::owner::{Owner, OwnerKey};
use crate::state::process::Process;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Divisor: one owner gets at most this fraction of a class, so that its storm of events evicts only its own
/// entries.
const SHARE: usize = 8;

/// Bytes per entry besides the entry itself: its slots in both maps, and allocator overhead.
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
    /// In order of arrival.
    entries: BTreeMap<u64, Arc<Entry>>,
    owners: BTreeMap<OwnerKey, Owned>,
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
        let (entries, owners) = (BTreeMap::new(), BTreeMap::new());
        Log { limits, entries, owners, bytes: 0, dropped: 0, dropped_until_ns: None }
    }

    /// The known owner if unchanged, else a new one.
    pub(super) fn owner(&self, key: OwnerKey, row: Option<&Process>, comm: Option<&str>) -> Arc<Owner> {
        match self.owners.get(&key) {
            Some(known) if known.owner.is(row, comm) => Arc::clone(&known.owner),
            _ => Arc::new(Owner::new(key, row, comm)),
        }
    }

    /// `number`: greater than all previous ones.
    pub(super) fn push(&mut self, number: u64, entry: impl Into<Arc<Entry>>) {
        let entry = entry.into();
        self.bytes += cost(&entry);
        let own = entry.owner.as_ref().map(|owner| self.owned(owner, number));
        self.entries.insert(number, entry);
        let share = self.limits.entries / SHARE;
        if let Some((oldest, count)) = own
            && count > share
        {
            self.drop(oldest);
        }
        while self.entries.len() > self.limits.entries || self.bytes > self.limits.bytes {
            let Some(oldest) = self.entries.first_key_value().map(|(number, _)| *number) else { break };
            self.drop(oldest);
        }
    }

    /// Returns the number of the owner's oldest entry, and its entry count.
    fn owned(&mut self, owner: &Arc<Owner>, number: u64) -> (u64, usize) {
        let known = self.owners.entry(owner.key()).or_insert_with(|| {
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

    /// Drops an entry, which must be the oldest of its owner.
    fn drop(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        self.bytes -= cost(&entry);
        self.dropped += 1;
        self.dropped_until_ns = self.dropped_until_ns.max(Some(entry.wall_ns));
        let Some(owner) = &entry.owner else { return };
        let Some(owned) = self.owners.get_mut(&owner.key()) else { return };
        owned.numbers.pop_front();
        let next = owned.numbers.front().and_then(|number| self.entries.get(number)?.owner.as_ref());
        if !next.is_some_and(|next| Arc::ptr_eq(next, owner)) {
            self.bytes -= owner.bytes();
        }
        if owned.numbers.is_empty() {
            self.owners.remove(&owner.key());
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<Entry>)> {
        self.entries.iter().map(|(number, entry)| (*number, entry))
    }

    pub(super) fn kept(&self) -> Kept {
        Kept {
            entries: self.entries.len(),
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
