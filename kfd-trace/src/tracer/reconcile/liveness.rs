//! Whether the process of a row is gone, by the driver's lists of one look.
//!
//! Takes in: the list of sysfs and the walk of the look, the state, a row of it. Gives out: yes or no; the
//! caller believes what it was told twice. Pure.

use super::scan::Walked;
use crate::state::{List, Place, Process, Shown, State};

/// `alone`: sysfs is all that there is ([`sysfs_is_alone`](super::judge::sysfs_is_alone)); `not_in_proc`: /proc shows
/// that the process has ended.
pub(crate) fn is_gone(
    state: &State,
    row: &Process,
    sysfs: &List,
    walked: &Walked,
    alone: bool,
    not_in_proc: impl FnOnce() -> bool,
) -> bool {
    let Some(place) = row.place() else { return false };
    let by_sysfs = state.shown(sysfs, row);
    match (walked.list().map(|kernel| state.shown(kernel, row)), by_sysfs) {
        (Some(Shown::Itself), _) | (None, Shown::Itself) => false,
        // The kernel's table tells processes apart by number: what sysfs has there is the other one's.
        (Some(Shown::Another), _) => true,
        (Some(Shown::Nothing), by_sysfs) => by_sysfs == Shown::Nothing,
        // The next look walks, where that can be.
        (None, Shown::Another) => alone || matches!(walked, Walked::NotAsked),
        (None, Shown::Nothing) => not_in_proc() || alone && sysfs_tells_of(sysfs, place),
    }
}

/// What sysfs lacks at this place is not there: its folder is made with the driver and before any process
/// (`kfd_procfs_init`, kfd_process.c), so it may be empty. Of a further context (7.2) it tells only where the folder stands
/// that its own one is in, that of its process (`kfd_create_process_sysfs`).
fn sysfs_tells_of(sysfs: &List, (tgid, context_id): Place) -> bool {
    match context_id {
        None => sysfs.there,
        Some(_) => sysfs.has((tgid, None)),
    }
}

#[cfg(test)]
mod tests;
