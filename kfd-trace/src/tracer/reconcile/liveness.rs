//! Whether the process of a row has ended, by the driver's lists of one scan.
//!
//! In: the list of sysfs and the walk of the scan, the state, a row of it. Out: yes or no; the caller
//! believes a result that it got twice. Pure.

use super::scan::Walked;
use crate::model::inventory::Place;
use crate::state::{Inventory, Process, Shown, State};

/// `alone`: sysfs is the only source ([`sysfs_is_alone`](super::judge::sysfs_is_alone)); `not_in_proc`: /proc
/// shows that the process has ended.
pub(crate) fn is_gone(
    state: &State,
    row: &Process,
    sysfs: &Inventory,
    walked: &Walked,
    alone: bool,
    not_in_proc: impl FnOnce() -> bool,
) -> bool {
    let Some(place) = row.place() else { return false };
    let by_sysfs = state.shown(sysfs, row);
    match (walked.list().map(|kernel| state.shown(kernel, row)), by_sysfs) {
        (Some(Shown::Itself), _) | (None, Shown::Itself) => false,
        // The kernel's table distinguishes processes by number: what sysfs has there belongs to the other
        // one.
        (Some(Shown::Another), _) => true,
        (Some(Shown::Nothing), by_sysfs) => by_sysfs == Shown::Nothing,
        // The next scan walks, if that is possible.
        (None, Shown::Another) => alone || matches!(walked, Walked::NotRequested),
        (None, Shown::Nothing) => not_in_proc() || alone && sysfs_decides_for(sysfs, place),
    }
}

/// What sysfs does not have at this place does not exist: its folder is made with the driver and before any
/// process (`kfd_procfs_init`, kfd_process.c), so it may be empty. It covers a further context (7.2) only
/// where the parent folder of the context's own one exists, that of its process (`kfd_create_process_sysfs`).
fn sysfs_decides_for(sysfs: &Inventory, (tgid, context_id): Place) -> bool {
    match context_id {
        None => sysfs.there,
        Some(_) => sysfs.has((tgid, None)),
    }
}

#[cfg(test)]
mod tests;
