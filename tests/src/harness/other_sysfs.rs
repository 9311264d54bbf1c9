//! A sysfs like /sys but for some of its files, for a tracer to read.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
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
    let root = lacking("kernel/btf/amdgpu")?;
    assert!(root.path().join("kernel/btf/vmlinux").exists() && Path::new("/sys/kernel/btf/amdgpu").exists());
    Ok(root)
}

/// A sysfs that lacks one file or folder. Every user may read it, also a service with a /tmp of its own.
///
/// # Errors
/// When it cannot be made.
pub fn lacking(path: &str) -> Result<TempDir> {
    let root = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/run")?;
    let mut below = String::new();
    for name in path.split('/') {
        mirror(&root, &below, name)?;
        below = format!("{below}{}{name}", if below.is_empty() { "" } else { "/" });
    }
    Ok(root)
}

/// Puts what stands in a folder of /sys into that of another sysfs, but for one name.
///
/// # Errors
/// When a folder cannot be read or made.
fn mirror(root: &TempDir, below: &str, leave: &str) -> Result<()> {
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
