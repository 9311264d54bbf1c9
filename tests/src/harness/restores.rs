//! Whether the driver is restoring a process, from tracefs.

use super::tracefs::{At, TracefsProbes};
use anyhow::Result;

/// Restores that the driver makes by itself after an eviction by TTM. One at a time.
#[derive(Debug)]
pub struct Restores(TracefsProbes);

impl Restores {
    /// Follows `restore_process_worker` (kfd_process.c) from here on.
    ///
    /// # Errors
    /// When the kernel refuses a probe.
    pub fn watch() -> Result<Self> {
        let mut probes = TracefsProbes::new("kfd_restores");
        for (at, event) in [(At::Entry, "restore_begins"), (At::Return, "restore_ends")] {
            probes.add(at, event, "restore_process_worker", "")?;
        }
        probes.enable()?;
        Ok(Self(probes))
    }

    /// Whether any is under way. Its effects are visible in sysfs before it has returned.
    ///
    /// # Errors
    /// When tracefs does not show it.
    pub fn under_way(&self) -> Result<bool> {
        let begun = self.0.hits("restore_begins")?;
        Ok(self.0.hits("restore_ends")? < begun)
    }
}
