//! Readings of the maps: per-CPU values are summed up here, and nowhere else.

use super::load::{LoadError, chain};
use crate::events::event::ProcessId;
use crate::events::tables::{Counters, ErrorRow, InFlightRow, IoctlRow, Tables};
use aya::Ebpf;
use aya::maps::{HashMap, Map, MapError, PerCpuArray, PerCpuHashMap};
use kfd_trace_common::counter::COUNTERS;
use kfd_trace_common::in_flight::Slot;
use kfd_trace_common::process::Entry;
use kfd_trace_common::stat::{ErrorKey, IoctlKey, IoctlStat};
use std::io::ErrorKind;

fn error(map: &'static str) -> impl Fn(MapError) -> LoadError {
    move |error| LoadError::Map { map, why: chain(&error) }
}

fn find<'a>(ebpf: &'a Ebpf, map: &'static str) -> Result<&'a Map, LoadError> {
    ebpf.map(map).ok_or(LoadError::NoMap(map))
}

pub(super) fn read(ebpf: &Ebpf) -> Result<Tables, LoadError> {
    Ok(Tables {
        ioctls: ioctls(ebpf)?,
        errors: errors(ebpf)?,
        in_flight: in_flight(ebpf)?,
        counters: counters(ebpf)?,
    })
}

fn ioctls(ebpf: &Ebpf) -> Result<Vec<IoctlRow>, LoadError> {
    const MAP: &str = "IOCTL_STATS";
    let map: PerCpuHashMap<_, IoctlKey, IoctlStat> = find(ebpf, MAP)?.try_into().map_err(error(MAP))?;
    let mut rows = Vec::new();
    for entry in map.iter() {
        let (key, values) = entry.map_err(error(MAP))?;
        let stat = values.iter().fold(IoctlStat::ZERO, added);
        rows.push(IoctlRow { process: ProcessId(key.process), cmd: key.cmd, stat });
    }
    rows.sort_by_key(|row| (row.process, row.cmd));
    Ok(rows)
}

fn added(mut sum: IoctlStat, value: &IoctlStat) -> IoctlStat {
    let IoctlStat { entered, returned, refused, no_return_seen, latency_ns, buckets } = value;
    sum.entered += entered;
    sum.returned += returned;
    sum.refused += refused;
    sum.no_return_seen += no_return_seen;
    sum.latency_ns += latency_ns;
    for (sum, bucket) in sum.buckets.iter_mut().zip(buckets) {
        *sum += bucket;
    }
    sum
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
    let mut rows = Vec::new();
    for entry in map.iter() {
        let (tid, slot) = entry.map_err(error(MAP))?;
        let Slot { entered_ns, process, cmd, .. } = slot;
        rows.push(InFlightRow { process: ProcessId(process), tid, cmd, entered_ns });
    }
    rows.sort_by_key(|row| row.entered_ns);
    Ok(rows)
}

fn counters(ebpf: &Ebpf) -> Result<Counters, LoadError> {
    const MAP: &str = "COUNTERS";
    let map: PerCpuArray<_, u64> = find(ebpf, MAP)?.try_into().map_err(error(MAP))?;
    let sum = |index| map.get(&index, 0).map(|values| values.iter().sum()).map_err(error(MAP));
    Ok(Counters((0..COUNTERS).map(sum).collect::<Result<_, _>>()?))
}

/// Drops all that the maps hold of a process. Its entry by address is usually gone by then; where its release
/// cannot be probed (no BTF of the driver) it is dropped here.
pub(super) fn retire(ebpf: &mut Ebpf, process: ProcessId) -> Result<(), LoadError> {
    const STATS: &str = "IOCTL_STATS";
    const ERRORS: &str = "IOCTL_ERRORS";
    const IN_FLIGHT: &str = "IN_FLIGHT";
    const PROCESSES: &str = "PROCESSES";
    let map = ebpf.map_mut(STATS).ok_or(LoadError::NoMap(STATS))?;
    let mut stats: PerCpuHashMap<_, IoctlKey, IoctlStat> = map.try_into().map_err(error(STATS))?;
    let keys: Vec<IoctlKey> =
        stats.keys().filter_map(Result::ok).filter(|k| k.process == process.0).collect();
    for key in keys {
        absent_is_fine(stats.remove(&key)).map_err(error(STATS))?;
    }
    let map = ebpf.map_mut(ERRORS).ok_or(LoadError::NoMap(ERRORS))?;
    let mut errors: PerCpuHashMap<_, ErrorKey, u64> = map.try_into().map_err(error(ERRORS))?;
    let keys: Vec<ErrorKey> =
        errors.keys().filter_map(Result::ok).filter(|k| k.process == process.0).collect();
    for key in keys {
        absent_is_fine(errors.remove(&key)).map_err(error(ERRORS))?;
    }
    let map = ebpf.map_mut(IN_FLIGHT).ok_or(LoadError::NoMap(IN_FLIGHT))?;
    let mut slots: HashMap<_, u32, Slot> = map.try_into().map_err(error(IN_FLIGHT))?;
    let entries = slots.iter().filter_map(Result::ok);
    let keys: Vec<u32> = entries.filter(|(_, slot)| slot.process == process.0).map(|(key, _)| key).collect();
    for key in keys {
        absent_is_fine(slots.remove(&key)).map_err(error(IN_FLIGHT))?;
    }
    let map = ebpf.map_mut(PROCESSES).ok_or(LoadError::NoMap(PROCESSES))?;
    let mut processes: HashMap<_, u64, Entry> = map.try_into().map_err(error(PROCESSES))?;
    let entries = processes.iter().filter_map(Result::ok);
    let keys: Vec<u64> = entries.filter(|(_, entry)| entry.id == process.0).map(|(key, _)| key).collect();
    for key in keys {
        absent_is_fine(processes.remove(&key)).map_err(error(PROCESSES))?;
    }
    Ok(())
}

fn absent_is_fine(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
