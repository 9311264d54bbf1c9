//! The maps of a running tracer: the table of processes, and everything that is read at once.

mod calls;
mod expired;
pub(crate) mod lookup;
pub(crate) mod mapped;
pub(crate) mod missed;
pub(crate) mod reclaim;
mod sums;

use self::calls::CallerSlots;
use self::expired::Expired;
use self::lookup::{Lookup, PASIDS, PROCESSES, error};
use self::mapped::Mapped;
use super::error::LoadError;
use super::load;
use crate::events::tables::{Crowded, IoctlRow, Tables};
use crate::model::counters::Counters;
use crate::model::event::ProcessId;
use aya::Ebpf;
use aya::maps::HashMap;
use kfd_trace_common::counter::Trouble;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::process::Entry;
use kfd_trace_common::stat::IoctlStat;
use std::collections::BTreeSet;

/// Drops the entries of ended processes. The entry by address is usually removed already; where the process's
/// release cannot be probed (no BTF of the driver) it is dropped here.
fn forget(lookup: &Lookup<'_>, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
    let mut left = BTreeSet::new();
    for (address, entry) in lookup.entries(&PROCESSES)? {
        if ended.contains(&ProcessId(entry.id)) {
            left.insert(address);
            lookup.remove(&PROCESSES, address)?;
        }
    }
    lookup.void()?;
    if left.is_empty() {
        return Ok(());
    }
    // The PASID may belong to another process by now: remove only what leads to a dropped entry.
    for (pasid, address) in lookup.entries(&PASIDS)? {
        if left.contains(&address) {
            lookup.remove(&PASIDS, pasid)?;
        }
    }
    Ok(())
}

/// The arrays that are mapped into this process, and the program that reads the other maps.
pub(crate) struct SharedMaps {
    counters: Mapped,
    losses: Mapped,
    /// Calls that found the sums of ioctls full, by command number.
    rest: Mapped,
    slots: CallerSlots,
    expired: Expired,
    /// Results of [`Lookup`].
    entry: Mapped,
}

impl SharedMaps {
    pub(crate) fn new(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        let entry = lookup::load_program(ebpf)?;
        let words = |map| Mapped::new::<u64>(ebpf, map);
        Ok(SharedMaps {
            counters: words(load::COUNTERS)?,
            losses: words(load::LOSSES)?,
            rest: Mapped::new::<IoctlStat>(ebpf, "IOCTL_REST")?,
            slots: CallerSlots::new(ebpf)?,
            expired: Expired::default(),
            entry,
        })
    }

    pub(crate) fn lookup<'a>(&'a self, ebpf: &'a Ebpf) -> Lookup<'a> {
        Lookup { ebpf, answer: &self.entry }
    }

    pub(crate) fn read(&self, ebpf: &Ebpf) -> Result<Tables, LoadError> {
        let (lookup, counters) = (self.lookup(ebpf), self.counters());
        let (mut ioctls, stats) = sums::ioctls(&lookup, &self.slots)?;
        ioctls.extend(self.rest(&counters));
        let (errors, error_counts) = sums::errors(&lookup, &self.slots)?;
        let (open, calls) = self.slots.open_calls(&lookup)?;
        let slots = self.slots.taken()?;
        let crowded = Crowded { ioctls: stats, errors: error_counts, in_flight: calls, slots };
        Ok(Tables { ioctls, errors, counters, crowded, ..Tables::default() }.with_open(open))
    }

    /// The tables that are mapped, as far as they can be.
    pub(crate) fn mapped(&self) -> Tables {
        let (mut ioctls, errors) = sums::of_slots(&self.slots);
        let counters = self.counters();
        ioctls.extend(self.rest(&counters));
        Tables { ioctls, errors, counters, ..Tables::default() }
    }

    /// Does not touch the memory if there can be nothing in it.
    fn rest(&self, counters: &Counters) -> Vec<IoctlRow> {
        let was_full = counters.trouble(Trouble::IoctlStatsFull) > 0;
        if was_full { sums::rest(self.rest.elements::<IoctlStat>()) } else { Vec::new() }
    }

    fn counters(&self) -> Counters {
        Counters { counted: mapped::sums(self.counters.load()), losses: self.losses.load().collect() }
    }

    /// Lost records of all kinds, plus what could not be recorded in the first place.
    pub(crate) fn unreported(&self) -> u64 {
        let counters = Counters { counted: Vec::new(), losses: self.losses.load().collect() };
        let lost = Kind::ALL.iter().map(|kind| counters.lost(*kind));
        lost.chain(Trouble::UNREPORTED.iter().map(|trouble| counters.trouble(*trouble))).sum()
    }

    /// From now on the programs cache which process a file belongs to: everything that changes it is probed.
    pub(crate) fn remember(&self, ebpf: &Ebpf) -> Result<(), LoadError> {
        self.lookup(ebpf).remember()
    }

    /// Removes the identities of ended processes.
    pub(crate) fn forget(&self, ebpf: &Ebpf, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
        forget(&self.lookup(ebpf), ended)
    }

    /// Drops what the maps have counted for ended processes.
    pub(crate) fn retire(&mut self, ebpf: &Ebpf, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
        let lookup = Lookup { ebpf, answer: &self.entry };
        sums::retire(&lookup, &self.slots, ended)?;
        self.slots.retire(&lookup, ended)
    }

    /// One round of freeing slots and of removing what was left over: see [`CallerSlots::tidy`] and [`Expired`]. Returns
    /// the processes whose release is over, and was not seen to return.
    pub(crate) fn tidy(
        &mut self,
        ebpf: &Ebpf,
        ended: impl Fn(u32, u32) -> bool,
        idle: impl Fn(u32) -> bool,
    ) -> Result<BTreeSet<ProcessId>, LoadError> {
        let lookup = Lookup { ebpf, answer: &self.entry };
        if self.slots.tidy(&lookup, ended)? {
            lookup.void()?;
        }
        let released = self.expired.tidy(&lookup, idle)?;
        let entries = released.into_iter().map(|address| lookup.read(&PROCESSES, address));
        // Its address may belong to another process by now.
        let released =
            entries.filter_map(|entry| entry.map(|entry| entry.filter(|e| e.releasing != 0)).transpose());
        released.map(|entry| entry.map(|entry| ProcessId(entry.id))).collect()
    }

    /// The number of the process at this address, if the BPF side has seen it.
    pub(crate) fn known(&self, ebpf: &Ebpf, address: u64) -> Result<Option<ProcessId>, LoadError> {
        Ok(self.lookup(ebpf).read(&PROCESSES, address)?.map(|entry| ProcessId(entry.id)))
    }

    /// The number of the process at this address; assigns one if the BPF side has not seen it yet.
    pub(crate) fn number(&self, ebpf: &mut Ebpf, address: u64, fresh: Entry) -> Result<ProcessId, LoadError> {
        const NO_EXIST: u64 = 1;
        if let Some(known) = self.known(ebpf, address)? {
            return Ok(known);
        }
        let map = PROCESSES.name;
        let processes = ebpf.map_mut(map).ok_or(LoadError::NoMap(map))?;
        let mut processes: HashMap<_, u64, Entry> = processes.try_into().map_err(error(map))?;
        // A probe may be faster: then this fails, and the probe's number is used.
        let _ = processes.insert(address, fresh, NO_EXIST);
        let entry = processes.get(&address, 0).map_err(error(map))?;
        by_pasid(ebpf, entry.pasid, address)?;
        Ok(ProcessId(entry.id))
    }
}

fn by_pasid(ebpf: &mut Ebpf, pasid: u32, address: u64) -> Result<(), LoadError> {
    if pasid == 0 {
        return Ok(());
    }
    let map = PASIDS.name;
    let pasids = ebpf.map_mut(map).ok_or(LoadError::NoMap(map))?;
    let mut pasids: HashMap<_, u32, u64> = pasids.try_into().map_err(error(map))?;
    pasids.insert(pasid, address, 0).map_err(error(map))
}
