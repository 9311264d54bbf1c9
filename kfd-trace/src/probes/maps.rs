//! Readings of the maps: per-CPU values are summed up here, and nowhere else.

use super::load::{LoadError, chain};
use super::mapped::{self, Mapped};
use crate::events::event::ProcessId;
use crate::events::tables::{Counters, ErrorRow, InFlightRow, IoctlRow, Tables};
use aya::Ebpf;
use aya::maps::{HashMap, Map, MapError, PerCpuHashMap, PerCpuValues};
use kfd_trace_common::counter::Trouble;
use kfd_trace_common::in_flight::Slot;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::IN_FLIGHT_MAX;
use kfd_trace_common::process::Entry;
use kfd_trace_common::stat::{ErrorKey, IoctlKey, IoctlStat};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

fn error(map: &'static str) -> impl Fn(MapError) -> LoadError {
    move |error| LoadError::Map { map, why: chain(&error) }
}

fn find<'a>(ebpf: &'a Ebpf, map: &'static str) -> Result<&'a Map, LoadError> {
    ebpf.map(map).ok_or(LoadError::NoMap(map))
}

pub(super) fn read(ebpf: &Ebpf, counters: &Mapped) -> Result<Tables, LoadError> {
    let counters = self::counters(counters);
    Ok(Tables {
        ioctls: ioctls(ebpf, counters.trouble(Trouble::IoctlStatsFull) > 0)?,
        errors: errors(ebpf)?,
        in_flight: in_flight(ebpf)?,
        counters,
        ..Tables::default()
    })
}

/// `was_full`: some calls are summed up for [`NOBODY`]. Else its rows, one for each number that a command can have, are not
/// looked up: each lookup keeps probes from running on this CPU.
fn ioctls(ebpf: &Ebpf, was_full: bool) -> Result<Vec<IoctlRow>, LoadError> {
    const MAP: &str = "IOCTL_STATS";
    let map: PerCpuHashMap<_, IoctlKey, IoctlStat> = find(ebpf, MAP)?.try_into().map_err(error(MAP))?;
    let mut rows = Vec::new();
    for key in map.keys() {
        let key = key.map_err(error(MAP))?;
        if key.process == NOBODY && !was_full {
            continue;
        }
        let values = match map.get(&key, 0) {
            Ok(values) => values,
            // Dropped since the walk told of it.
            Err(MapError::KeyNotFound) => continue,
            Err(why) => return Err(error(MAP)(why)),
        };
        let mut stat = IoctlStat::ZERO;
        values.iter().for_each(|value| stat.add(value));
        if key.process == NOBODY && stat.entered == 0 {
            continue;
        }
        rows.push(IoctlRow { process: ProcessId(key.process), cmd: key.cmd, stat });
    }
    rows.sort_by_key(|row| (row.process, row.cmd));
    Ok(rows)
}

/// Calls that found the map full are summed up under this process, by their number only.
const NOBODY: u64 = 0;

/// Makes the entries that a full map falls back to.
pub(super) fn make_fallback(ebpf: &mut Ebpf) -> Result<(), LoadError> {
    const MAP: &str = "IOCTL_STATS";
    let cpus = aya::util::nr_cpus().map_err(|(_, why)| LoadError::Map { map: MAP, why: why.to_string() })?;
    let map = ebpf.map_mut(MAP).ok_or(LoadError::NoMap(MAP))?;
    let mut stats: PerCpuHashMap<_, IoctlKey, IoctlStat> = map.try_into().map_err(error(MAP))?;
    for cmd in 0..=u32::from(u8::MAX) {
        let zero = PerCpuValues::try_from(vec![IoctlStat::ZERO; cpus]);
        let zero = zero.map_err(|why| LoadError::Map { map: MAP, why: why.to_string() })?;
        stats.insert(IoctlKey { process: NOBODY, cmd, pad: 0 }, zero, 0).map_err(error(MAP))?;
    }
    Ok(())
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

fn errors(ebpf: &Ebpf) -> Result<Vec<ErrorRow>, LoadError> {
    const MAP: &str = "IOCTL_ERRORS";
    let map: PerCpuHashMap<_, ErrorKey, u64> = find(ebpf, MAP)?.try_into().map_err(error(MAP))?;
    let mut rows = Vec::new();
    for entry in map.iter() {
        let (ErrorKey { process, cmd, errno }, values) = entry.map_err(error(MAP))?;
        let errno = i32::try_from(errno).unwrap_or(i32::MAX);
        rows.push(ErrorRow { process: ProcessId(process), cmd, errno, count: values.iter().sum() });
    }
    rows.sort_by_key(|row| (row.process, row.cmd, row.errno));
    Ok(rows)
}

fn in_flight(ebpf: &Ebpf) -> Result<Vec<InFlightRow>, LoadError> {
    const MAP: &str = "IN_FLIGHT";
    let map: HashMap<_, u32, Slot> = find(ebpf, MAP)?.try_into().map_err(error(MAP))?;
    // The walk over a hash map begins anew when its key is deleted under it, as every returning call does.
    let mut rows = BTreeMap::new();
    for entry in map.iter().take(2 * IN_FLIGHT_MAX as usize) {
        let (tid, slot) = entry.map_err(error(MAP))?;
        let Slot { entered_ns, process, cmd, tgid, .. } = slot;
        rows.insert(tid, InFlightRow { process: ProcessId(process), tgid, tid, cmd, entered_ns });
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|row| row.entered_ns);
    Ok(rows)
}

fn counters(counters: &Mapped) -> Counters {
    Counters(mapped::sums(counters.load()))
}

/// Lost records, all kinds together, and what could not be told in the first place.
pub(super) fn untold(counters: &Mapped) -> u64 {
    let counters = self::counters(counters);
    let lost = Kind::ALL.iter().map(|kind| counters.lost(*kind));
    lost.chain(Trouble::UNTOLD.iter().map(|trouble| counters.trouble(*trouble))).sum()
}

/// Drops the rows of a map that a closure picks by key and value.
macro_rules! drop_rows {
    ($ebpf:expr, $name:literal, $map:ty, $of:expr) => {{
        let map = $ebpf.map_mut($name).ok_or(LoadError::NoMap($name))?;
        let mut map: $map = map.try_into().map_err(error($name))?;
        let rows = map.iter().filter_map(Result::ok);
        let keys: Vec<_> = rows.filter($of).map(|(key, _)| key).collect();
        for key in keys {
            absent_is_fine(map.remove(&key)).map_err(error($name))?;
        }
    }};
}

/// Drops all that the maps hold of ended processes. An entry by address is usually gone by then; where its release
/// cannot be probed (no BTF of the driver) it is dropped here.
pub(super) fn retire(ebpf: &mut Ebpf, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
    let of_ended = |process: u64| ended.contains(&ProcessId(process));
    drop_rows!(ebpf, "IOCTL_STATS", PerCpuHashMap<_, IoctlKey, IoctlStat>, |(key, _)| of_ended(key.process));
    drop_rows!(ebpf, "IOCTL_ERRORS", PerCpuHashMap<_, ErrorKey, u64>, |(key, _)| of_ended(key.process));
    drop_rows!(ebpf, "IN_FLIGHT", HashMap<_, u32, Slot>, |(_, slot)| of_ended(slot.process));
    let mut left = BTreeSet::new();
    drop_rows!(ebpf, "PROCESSES", HashMap<_, u64, Entry>, |(address, entry)| {
        let ended = of_ended(entry.id);
        if ended {
            left.insert(*address);
        }
        ended
    });
    // The address of another process may stand under the PASID by now: only what leads to a dropped entry goes.
    drop_rows!(ebpf, "PASIDS", HashMap<_, u32, u64>, |(_, address)| left.contains(address));
    Ok(())
}

fn absent_is_fine(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
