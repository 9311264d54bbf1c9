//! The maps of a running tracer: the table of processes, and all that is read at once.

use super::load::{self, LoadError, chain};
use super::mapped::{self, Mapped};
use super::seats::Seats;
use super::sums;
use crate::events::counters::Counters;
use crate::events::event::ProcessId;
use crate::events::tables::{Crowded, Tables};
use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError};
use kfd_trace_common::counter::Trouble;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::IN_FLIGHT_MAX;
use kfd_trace_common::process::{Entry, generation as known_by};
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// Most steps of a walk over a hash map, twice the entries of the largest: it begins anew when its key is deleted under it, as
/// every returning call does to those of calls under way.
pub(super) const WALK_MAX: usize = 2 * IN_FLIGHT_MAX as usize;

/// Drops the rows of a map that a closure picks by key and value. A walk that fails is an error: rows that stayed would be
/// counted again.
macro_rules! drop_rows {
    ($ebpf:expr, $name:expr, $map:ty, $of:expr) => {{
        let map = $ebpf.map_mut($name).ok_or($crate::probes::load::LoadError::NoMap($name))?;
        let mut map: $map = map.try_into().map_err($crate::probes::maps::error($name))?;
        let rows = map.iter().take($crate::probes::maps::WALK_MAX).collect::<Result<Vec<_>, _>>();
        let rows = rows.map_err($crate::probes::maps::error($name))?;
        for (key, _) in rows.into_iter().filter($of) {
            $crate::probes::maps::absent_is_fine(map.remove(&key))
                .map_err($crate::probes::maps::error($name))?;
        }
    }};
}
pub(super) use drop_rows;

pub(super) fn error(map: &'static str) -> impl Fn(MapError) -> LoadError {
    move |error| LoadError::Map { map, why: chain(&error) }
}

pub(super) fn find<'a>(ebpf: &'a Ebpf, map: &'static str) -> Result<&'a Map, LoadError> {
    ebpf.map(map).ok_or(LoadError::NoMap(map))
}

/// Calls that found the maps full are summed up under this process, by their number only.
pub(super) const NOBODY: u64 = 0;

/// The one variable of the programs (kfd-trace-ebpf/src/processes.rs).
const GENERATION: &str = ".bss";

fn generation(ebpf: &mut Ebpf) -> Result<Array<&mut MapData, u64>, LoadError> {
    let map = ebpf.map_mut(GENERATION).ok_or(LoadError::NoMap(GENERATION))?;
    map.try_into().map_err(error(GENERATION))
}

/// From now on the programs remember which process a file has: all that changes it is probed. `now` is a number that they never
/// make.
pub(super) fn remember(ebpf: &mut Ebpf, now: u64) -> Result<(), LoadError> {
    generation(ebpf)?.set(0, now, 0).map_err(error(GENERATION))
}

/// What the programs have remembered is void. `now` as for [`remember`].
fn void(ebpf: &mut Ebpf, now: u64) -> Result<(), LoadError> {
    if generation(ebpf)?.get(&0, 0).map_err(error(GENERATION))? == known_by::NEVER {
        return Ok(());
    }
    remember(ebpf, now)
}

/// Drops the entries of ended processes. One by address is usually gone by then; where its release cannot be probed (no BTF of
/// the driver) it is dropped here. `now` as for [`remember`].
pub(super) fn forget(ebpf: &mut Ebpf, ended: &BTreeSet<ProcessId>, now: u64) -> Result<(), LoadError> {
    let mut left = BTreeSet::new();
    drop_rows!(ebpf, "PROCESSES", HashMap<_, u64, Entry>, |(address, entry)| {
        let ended = ended.contains(&ProcessId(entry.id));
        if ended {
            left.insert(*address);
        }
        ended
    });
    void(ebpf, now)?;
    // The address of another process may stand under the PASID by now: only what leads to a dropped entry goes.
    drop_rows!(ebpf, "PASIDS", HashMap<_, u32, u64>, |(_, address)| left.contains(address));
    Ok(())
}

/// The arrays that are mapped into this process.
pub(super) struct Shared {
    counters: Mapped,
    losses: Mapped,
    seats: Seats,
}

impl Shared {
    pub(super) fn new(ebpf: &Ebpf) -> Result<Self, LoadError> {
        let words = |map| Mapped::new::<u64>(ebpf, map);
        Ok(Shared {
            counters: words(load::COUNTERS)?,
            losses: words(load::LOSSES)?,
            seats: Seats::new(ebpf)?,
        })
    }

    pub(super) fn read(&self, ebpf: &Ebpf) -> Result<Tables, LoadError> {
        let counters = self.counters();
        let (ioctls, stats) = sums::ioctls(ebpf, &self.seats, counters.trouble(Trouble::IoctlStatsFull) > 0)?;
        let (errors, error_counts) = sums::errors(ebpf, &self.seats)?;
        let (in_flight, calls) = self.seats.in_flight(ebpf)?;
        let seats = self.seats.taken();
        let crowded = Crowded { ioctls: stats, errors: error_counts, in_flight: calls, seats };
        Ok(Tables { ioctls, errors, in_flight, counters, crowded, ..Tables::default() })
    }

    /// What is mapped, which cannot fail.
    pub(super) fn mapped(&self) -> Tables {
        let (ioctls, errors) = sums::seated(&self.seats);
        Tables { ioctls, errors, counters: self.counters(), ..Tables::default() }
    }

    fn counters(&self) -> Counters {
        Counters { counted: mapped::sums(self.counters.load()), losses: self.losses.load().collect() }
    }

    /// Lost records, all kinds together, and what could not be told in the first place.
    pub(super) fn untold(&self) -> u64 {
        let counters = Counters { counted: Vec::new(), losses: self.losses.load().collect() };
        let lost = Kind::ALL.iter().map(|kind| counters.lost(*kind));
        lost.chain(Trouble::UNTOLD.iter().map(|trouble| counters.trouble(*trouble))).sum()
    }

    /// Drops what the maps have counted for ended processes.
    pub(super) fn retire(&mut self, ebpf: &mut Ebpf, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
        sums::retire(ebpf, &self.seats, ended)?;
        self.seats.retire(ebpf, ended)
    }

    /// One round of freeing seats: see [`Seats::tidy`]. `now` as for [`remember`].
    pub(super) fn tidy_seats(
        &mut self,
        ebpf: &mut Ebpf,
        now: u64,
        ended: impl Fn(u32, u32) -> bool,
    ) -> Result<(), LoadError> {
        if self.seats.tidy(ebpf, ended)? { void(ebpf, now) } else { Ok(()) }
    }
}

/// The number of the process at this address, where the BPF side has met it.
pub(super) fn known(ebpf: &Ebpf, address: u64) -> Result<Option<ProcessId>, LoadError> {
    const MAP: &str = "PROCESSES";
    let processes: HashMap<_, u64, Entry> = find(ebpf, MAP)?.try_into().map_err(error(MAP))?;
    Ok(processes.get(&address, 0).ok().map(|entry| ProcessId(entry.id)))
}

/// The number of the process at this address; one that the BPF side has not met yet gets one.
pub(super) fn number(ebpf: &mut Ebpf, address: u64, fresh: Entry) -> Result<ProcessId, LoadError> {
    const MAP: &str = "PROCESSES";
    const NO_EXIST: u64 = 1;
    let map = ebpf.map_mut(MAP).ok_or(LoadError::NoMap(MAP))?;
    let mut processes: HashMap<_, u64, Entry> = map.try_into().map_err(error(MAP))?;
    if let Ok(known) = processes.get(&address, 0) {
        return Ok(ProcessId(known.id));
    }
    // A probe may be faster: then this fails, and its number stands.
    let _ = processes.insert(address, fresh, NO_EXIST);
    let entry = processes.get(&address, 0).map_err(error(MAP))?;
    by_pasid(ebpf, entry.pasid, address)?;
    Ok(ProcessId(entry.id))
}

fn by_pasid(ebpf: &mut Ebpf, pasid: u32, address: u64) -> Result<(), LoadError> {
    const MAP: &str = "PASIDS";
    if pasid == 0 {
        return Ok(());
    }
    let map = ebpf.map_mut(MAP).ok_or(LoadError::NoMap(MAP))?;
    let mut pasids: HashMap<_, u32, u64> = map.try_into().map_err(error(MAP))?;
    pasids.insert(pasid, address, 0).map_err(error(MAP))
}

pub(super) fn absent_is_fine(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
