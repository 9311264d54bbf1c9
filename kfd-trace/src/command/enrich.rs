//! What /proc adds to a process that BPF told of.

use crate::attribute::process::{self, ProcessInfo};
use crate::state::{Process, ProcessDetails};
use std::path::Path;

/// Reads the details of a process, if it is still that very process.
#[must_use]
pub fn details(procfs: &Path, row: &Process) -> Option<ProcessDetails> {
    let info = process::read(procfs, row.tgid?, row.start_boottime_ns).ok()?;
    Some(of(&info))
}

/// The details in what /proc told.
#[must_use]
pub fn of(info: &ProcessInfo) -> ProcessDetails {
    let cmdline = (!info.cmdline.is_empty()).then(|| info.cmdline.join(" "));
    ProcessDetails { cmdline, cgroup: info.cgroup.clone(), container: None }
}
