//! Settings of the kernel and of kfdsim, for the time of a test.

use std::fs;

use anyhow::{Context, Result};

/// Of kfdsim: a VM on the GPU that a process binds to alone.
pub const EACH_VM: &str = "/sys/module/kfdsim/parameters/each_vm";

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
