//! A sysfs like /sys but for some of its files, for a tracer to read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A sysfs that lacks `kernel/btf/amdgpu` and nothing else.
///
/// # Errors
/// When it cannot be made.
///
/// # Panics
/// When the kernel has no such file.
pub fn without_btf() -> Result<TempDir> {
    let root = tempfile::tempdir()?;
    for (below, leave) in [("", "kernel"), ("kernel", "btf"), ("kernel/btf", "amdgpu")] {
        mirror(&root, below, leave)?;
    }
    assert!(root.path().join("kernel/btf/vmlinux").exists() && Path::new("/sys/kernel/btf/amdgpu").exists());
    Ok(root)
}

/// Puts what stands in a folder of /sys into that of another sysfs, but for one name.
///
/// # Errors
/// When a folder cannot be read or made.
pub fn mirror(root: &TempDir, below: &str, leave: &str) -> Result<()> {
    let (real, folder) = (Path::new("/sys").join(below), root.path().join(below));
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(&real).with_context(|| format!("list /sys/{below}"))? {
        let name = entry?.file_name();
        if name != leave {
            symlink(real.join(&name), folder.join(&name))?;
        }
    }
    Ok(())
}

/// Makes a tracer read that one.
pub fn flag(root: &TempDir) -> String {
    format!("--path.sysfs={}", root.path().display())
}
