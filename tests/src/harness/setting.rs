//! Settings of the kernel and of kfdsim, for the time of a test.

use std::fs;

use anyhow::{Context, Result};

use super::workload::kfdsim_at;

/// Of kfdsim: a VM on the GPU that a process binds to alone.
pub const EACH_VM: &str = "/sys/module/kfdsim/parameters/each_vm";

/// Of amdgpu: how long it waits for a preemption by the hardware scheduler, milliseconds.
pub const PATIENCE: &str = "/sys/module/amdgpu/parameters/queue_preemption_timeout_ms";

/// Something set in the kernel; undone when dropped.
#[derive(Debug)]
pub struct Setting {
    file: &'static str,
    before: String,
}

impl Setting {
    pub fn of(file: &'static str, value: &str) -> Result<Self> {
        let before = fs::read_to_string(file).with_context(|| format!("read {file}"))?;
        fs::write(file, value).with_context(|| format!("set {file}"))?;
        Ok(Self { file, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // later tests do with either value
        let _ = fs::write(self.file, &self.before);
    }
}

/// The scheduler of the first GPU does not answer, until this is dropped: who has changed queues waits, as long as [`PATIENCE`]
/// says.
#[derive(Debug)]
pub struct Hang(());

impl Hang {
    pub fn begin() -> Result<Self> {
        kfdsim_at("hang", 1, 0)?;
        Ok(Hang(()))
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        // where it fails, the time-out ends the wait
        let _ = kfdsim_at("hang", 0, 0);
    }
}
