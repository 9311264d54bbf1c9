//! The entries of one class, bounded.

use super::entry::Entry;
use super::owner::{Owner, OwnerKey};
use crate::state::process::Process;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Of a class one owner has this part at most, so that one that storms pushes out its own.
const SHARE: usize = 8;

/// Bytes of an entry beside its own: its places in both maps, and what the allocator needs.
const PLACES: usize = 80;

/// Bounds of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) entries: usize,
    /// With owners, and with what maps and allocator need.
    pub(super) bytes: usize,
}

/// What is kept of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub entries: usize,
    pub bytes: usize,
    pub max_entries: usize,
    pub max_bytes: usize,
    /// Of one process.
    pub max_of_process: usize,
    pub dropped: u64,
    /// The time of the newest that was dropped, nanoseconds of the Unix epoch: what came later is whole.
    pub dropped_until_ns: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Log {
    limits: Limits,
    /// By the order in which they came.
    entries: BTreeMap<u64, Arc<Entry>>,
    owners: BTreeMap<OwnerKey, Owned>,
    bytes: usize,
    dropped: u64,
    dropped_until_ns: Option<i64>,
}

/// What one owner has.
#[derive(Debug)]
struct Owned {
    /// As it is known now. Entries from before more was told of it have another one.
    owner: Arc<Owner>,
    numbers: VecDeque<u64>,
}

impl Log {
    pub(super) fn new(limits: Limits) -> Self {
        let (entries, owners) = (BTreeMap::new(), BTreeMap::new());
        Log { limits, entries, owners, bytes: 0, dropped: 0, dropped_until_ns: None }
    }

    /// The owner as it is known already, or a new one.
    pub(super) fn owner(&self, key: OwnerKey, row: Option<&Process>, comm: Option<&str>) -> Arc<Owner> {
        match self.owners.get(&key) {
            Some(known) if known.owner.is(row, comm) => Arc::clone(&known.owner),
            _ => Arc::new(Owner::new(key, row, comm)),
        }
    }

    /// `number`: above all before.
    pub(super) fn push(&mut self, number: u64, entry: Entry) {
        self.bytes += cost(&entry);
        let own = entry.owner.as_ref().map(|owner| self.owned(owner, number));
        self.entries.insert(number, Arc::new(entry));
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

    /// Gives the owner's oldest entry, and how many it has.
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

    /// Drops an entry that is the oldest of its owner.
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
