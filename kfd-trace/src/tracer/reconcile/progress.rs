//! What a scan of the driver's lists is reading at the moment, for the log line that shows where one hangs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by the scan and the code that waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<SourceProgress>>);

impl Progress {
    pub(crate) fn reads(&self, what: SourceProgress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    pub(crate) fn now(&self) -> SourceProgress {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a scan reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceProgress {
    /// `class/kfd/kfd/proc`.
    #[default]
    Sysfs,
    /// The identity of a process.
    Process(u32),
    /// The command line and cgroup of a process.
    Details(u32),
    Topology,
}

impl fmt::Display for SourceProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceProgress::Sysfs => f.write_str("the driver's processes in sysfs"),
            SourceProgress::Process(tgid) => write!(f, "process {tgid} in procfs"),
            SourceProgress::Details(tgid) => write!(f, "command line and cgroup of process {tgid} in procfs"),
            SourceProgress::Topology => f.write_str("the driver's GPUs in sysfs"),
        }
    }
}
