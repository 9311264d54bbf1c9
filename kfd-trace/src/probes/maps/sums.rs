//! Sums of ioctls: those that threads keep in their slots, and those that found no room there, in hash maps.
//! In: both. Out: rows by process and command, summed over threads; also clears those of ended processes.

use super::calls::CallerSlots;
use super::lookup::{IOCTL_ERRORS, IOCTL_STATS, Lookup};
use super::mapped::Element;
use crate::events::tables::{ErrorRow, IoctlRow};
use crate::model::event::ProcessId;
use crate::probes::error::LoadError;
use kfd_trace_common::stat::{ErrorKey, IoctlStat, Sum};
use std::collections::{BTreeMap, BTreeSet};

/// Calls that found the maps full are summed under this process, by command number only.
const NO_PROCESS: u64 = 0;

/// Rows, and how many of them are in the hash map.
pub(crate) type Rows<T> = (Vec<T>, usize);

/// By process and command.
pub(crate) fn ioctls(lookup: &Lookup<'_>, slots: &CallerSlots) -> Result<Rows<IoctlRow>, LoadError> {
    let mut rows = BTreeMap::<_, IoctlStat>::new();
    let mut add = |process, cmd, stat| rows.entry((process, cmd)).or_insert(IoctlStat::ZERO).add(&stat);
    taken(slots.sums()?).for_each(|Sum { process, cmd, stat, .. }| add(process, cmd, stat));
    let crowd = lookup.entries(&IOCTL_STATS)?;
    let crowded = crowd.len();
    crowd.into_iter().for_each(|(key, stat)| add(key.process, key.cmd, stat));
    Ok((rows.into_iter().map(|((process, cmd), stat)| ioctl_row(process, cmd, stat)).collect(), crowded))
}

/// By process, command and errno.
pub(crate) fn errors(lookup: &Lookup<'_>, slots: &CallerSlots) -> Result<Rows<ErrorRow>, LoadError> {
    let mut rows = BTreeMap::<_, u64>::new();
    for Sum { process, cmd, errno, errors, .. } in taken(slots.sums()?).filter(|sum| sum.errno != 0) {
        *rows.entry((process, cmd, errno)).or_default() += errors;
    }
    let crowd = lookup.entries(&IOCTL_ERRORS)?;
    let crowded = crowd.len();
    for (ErrorKey { process, cmd, errno }, count) in crowd {
        *rows.entry((process, cmd, errno)).or_default() += count;
    }
    let rows = rows.into_iter().map(|((process, cmd, errno), count)| error_row(process, cmd, errno, count));
    Ok((rows.collect(), crowded))
}

/// Of [`NO_PROCESS`]: calls that found the hash map full, by command number.
pub(crate) fn rest<'a>(stats: impl Iterator<Item = Element<'a>>) -> Vec<IoctlRow> {
    let rows = (0..).zip(stats).map(|(number, stat)| ioctl_row(NO_PROCESS, number, stat.copy()));
    rows.filter(|row| row.stat != IoctlStat::ZERO).collect()
}

/// From slots alone, as far as they can be read; a key that exists more than once is returned more than once.
pub(crate) fn of_slots(slots: &CallerSlots) -> (Vec<IoctlRow>, Vec<ErrorRow>) {
    let sums: Vec<Sum> = taken(slots.sums_at_hand()).collect();
    let ioctls = sums.iter().map(|sum| ioctl_row(sum.process, sum.cmd, sum.stat));
    let failed = sums.iter().filter(|sum| sum.errno != 0);
    let errors = failed.map(|sum| error_row(sum.process, sum.cmd, sum.errno, sum.errors));
    (ioctls.collect(), errors.collect())
}

fn ioctl_row(process: u64, cmd: u32, stat: IoctlStat) -> IoctlRow {
    IoctlRow { process: ProcessId(process), cmd, stat }
}

fn error_row(process: u64, cmd: u32, errno: u32, count: u64) -> ErrorRow {
    ErrorRow { process: ProcessId(process), cmd, errno: i32::try_from(errno).unwrap_or(i32::MAX), count }
}

fn taken<'a>(places: impl Iterator<Item = Element<'a>>) -> impl Iterator<Item = Sum> {
    places.filter(|place| place.owner().is_some()).map(|place| place.copy())
}

/// Clears everything of processes that have ended. A process that was wrongly taken for ended may write there
/// meanwhile.
pub(crate) fn retire(
    lookup: &Lookup<'_>,
    slots: &CallerSlots,
    ended: &BTreeSet<ProcessId>,
) -> Result<(), LoadError> {
    let of_ended = |process: u64| ended.contains(&ProcessId(process));
    for place in slots.sums()? {
        if let Some(process) = place.owner().filter(|process| of_ended(*process)) {
            place.release(process);
        }
    }
    for key in lookup.keys(&IOCTL_STATS)?.into_iter().filter(|key| of_ended(key.process)) {
        lookup.remove(&IOCTL_STATS, key)?;
    }
    for key in lookup.keys(&IOCTL_ERRORS)?.into_iter().filter(|key| of_ended(key.process)) {
        lookup.remove(&IOCTL_ERRORS, key)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn the_rest_has_no_process_and_is_by_command_number() {
        let stat = |entered| IoctlStat { entered, ..IoctlStat::ZERO };
        let words = [stat(0), stat(7)].map(|stat| {
            let words: [u64; 32] = zerocopy::transmute!(stat);
            words.map(AtomicU64::new)
        });
        assert_eq!(rest(words.iter().map(|words| Element::over(words))), [ioctl_row(NO_PROCESS, 1, stat(7))]);
    }
}
