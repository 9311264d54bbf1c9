//! Sums of ioctls: what threads keep in their seats, and what found no place there, in hash maps. Takes in both; gives out rows
//! by process and command, summed over threads and CPUs, and clears those of ended processes.

use super::load::LoadError;
use super::maps::{self, NOBODY};
use super::seats::Seats;
use crate::events::event::ProcessId;
use crate::events::tables::{ErrorRow, IoctlRow};
use aya::Ebpf;
use aya::maps::{MapError, PerCpuHashMap, PerCpuValues};
use kfd_trace_common::stat::{ErrorKey, IoctlKey, IoctlStat, Sum};
use std::collections::{BTreeMap, BTreeSet};

const STATS: &str = "IOCTL_STATS";
const ERRORS: &str = "IOCTL_ERRORS";

/// Rows, and how many of them the hash map holds.
pub(super) type Rows<T> = (Vec<T>, usize);

/// By process and command. `was_full`: some calls are summed up for [`NOBODY`]. Else its rows, one for each number that a
/// command can have, are not looked up: each lookup keeps probes from running on this CPU.
pub(super) fn ioctls(ebpf: &Ebpf, seats: &Seats, was_full: bool) -> Result<Rows<IoctlRow>, LoadError> {
    let mut rows = BTreeMap::<_, IoctlStat>::new();
    for Sum { process, cmd, stat, .. } in taken(seats) {
        rows.entry((process, cmd)).or_insert(IoctlStat::ZERO).add(&stat);
    }
    let map: PerCpuHashMap<_, IoctlKey, IoctlStat> =
        maps::find(ebpf, STATS)?.try_into().map_err(maps::error(STATS))?;
    let mut crowded = 0;
    for key in map.keys() {
        let key = key.map_err(maps::error(STATS))?;
        if key.process == NOBODY && !was_full {
            continue;
        }
        crowded += 1;
        let values = match map.get(&key, 0) {
            Ok(values) => values,
            // Dropped since the walk told of it.
            Err(MapError::KeyNotFound) => continue,
            Err(why) => return Err(maps::error(STATS)(why)),
        };
        let row = rows.entry((key.process, key.cmd)).or_insert(IoctlStat::ZERO);
        values.iter().for_each(|value| row.add(value));
    }
    let named = rows.into_iter().filter(|((process, _), stat)| *process != NOBODY || stat.entered > 0);
    Ok((named.map(|((process, cmd), stat)| ioctl_row(process, cmd, stat)).collect(), crowded))
}

/// By process, command and errno.
pub(super) fn errors(ebpf: &Ebpf, seats: &Seats) -> Result<Rows<ErrorRow>, LoadError> {
    let mut rows = BTreeMap::<_, u64>::new();
    for Sum { process, cmd, errno, errors, .. } in taken(seats).filter(|sum| sum.errno != 0) {
        *rows.entry((process, cmd, errno)).or_default() += errors;
    }
    let map: PerCpuHashMap<_, ErrorKey, u64> =
        maps::find(ebpf, ERRORS)?.try_into().map_err(maps::error(ERRORS))?;
    let mut crowded = 0;
    for entry in map.iter() {
        let (ErrorKey { process, cmd, errno }, values) = entry.map_err(maps::error(ERRORS))?;
        crowded += 1;
        *rows.entry((process, cmd, errno)).or_default() += values.iter().sum::<u64>();
    }
    let rows = rows.into_iter().map(|((process, cmd, errno), count)| error_row(process, cmd, errno, count));
    Ok((rows.collect(), crowded))
}

/// Of seats alone; what stands more than once is given so.
pub(super) fn seated(seats: &Seats) -> (Vec<IoctlRow>, Vec<ErrorRow>) {
    let ioctls = taken(seats).map(|sum| ioctl_row(sum.process, sum.cmd, sum.stat));
    let failed = taken(seats).filter(|sum| sum.errno != 0);
    let errors = failed.map(|sum| error_row(sum.process, sum.cmd, sum.errno, sum.errors));
    (ioctls.collect(), errors.collect())
}

fn ioctl_row(process: u64, cmd: u32, stat: IoctlStat) -> IoctlRow {
    IoctlRow { process: ProcessId(process), cmd, stat }
}

fn error_row(process: u64, cmd: u32, errno: u32, count: u64) -> ErrorRow {
    ErrorRow { process: ProcessId(process), cmd, errno: i32::try_from(errno).unwrap_or(i32::MAX), count }
}

fn taken(seats: &Seats) -> impl Iterator<Item = Sum> {
    seats.sums().filter(|place| place.owner().is_some()).map(|place| place.copy())
}

/// Clears all of processes that have ended. One that was wrongly held to have ended may write there meanwhile.
pub(super) fn retire(ebpf: &mut Ebpf, seats: &Seats, ended: &BTreeSet<ProcessId>) -> Result<(), LoadError> {
    let of_ended = |process: u64| ended.contains(&ProcessId(process));
    for place in seats.sums() {
        if let Some(process) = place.owner().filter(|process| of_ended(*process)) {
            place.let_go(process);
        }
    }
    maps::drop_rows!(ebpf, STATS, PerCpuHashMap<_, IoctlKey, IoctlStat>, |(key, _)| of_ended(key.process));
    maps::drop_rows!(ebpf, ERRORS, PerCpuHashMap<_, ErrorKey, u64>, |(key, _)| of_ended(key.process));
    Ok(())
}

/// Makes the entries that a full map falls back to.
pub(super) fn make_fallback(ebpf: &mut Ebpf) -> Result<(), LoadError> {
    let failed = |why: String| LoadError::Map { map: STATS, why };
    let cpus = aya::util::nr_cpus().map_err(|(_, why)| failed(why.to_string()))?;
    let map = ebpf.map_mut(STATS).ok_or(LoadError::NoMap(STATS))?;
    let mut stats: PerCpuHashMap<_, IoctlKey, IoctlStat> = map.try_into().map_err(maps::error(STATS))?;
    for cmd in 0..=u32::from(u8::MAX) {
        let zero = PerCpuValues::try_from(vec![IoctlStat::ZERO; cpus]);
        let zero = zero.map_err(|why| failed(why.to_string()))?;
        stats.insert(IoctlKey { process: NOBODY, cmd, pad: 0 }, zero, 0).map_err(maps::error(STATS))?;
    }
    Ok(())
}
