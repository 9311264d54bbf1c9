//! Moves into a cgroup, as a container runtime does with the processes it starts.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Joins a cgroup below /sys/fs/cgroup; creates it if it is missing.
pub(crate) fn join(name: &str) -> Result<()> {
    let cgroup = Path::new("/sys/fs/cgroup").join(name);
    fs::create_dir_all(&cgroup).with_context(|| format!("make cgroup {}", cgroup.display()))?;
    fs::write(cgroup.join("cgroup.procs"), "0").with_context(|| format!("join cgroup {}", cgroup.display()))
}
