//! A sysfs like /sys but for some of its files, for a tracer to read.

use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

/// A sysfs that lacks `kernel/btf/amdgpu` and nothing else.
///
/// # Errors
/// When it cannot be made.
///
/// # Panics
/// When the kernel has no such file.
pub fn without_btf() -> Result<TempDir> {
    let root = lacking(&["kernel/btf/amdgpu"])?;
    assert!(root.path().join("kernel/btf/vmlinux").exists() && Path::new("/sys/kernel/btf/amdgpu").exists());
    Ok(root)
}

/// A sysfs that lacks these files or folders. Every user may read it, also a service with a /tmp of its own.
///
/// # Errors
/// When it cannot be made.
pub fn lacking(paths: &[&str]) -> Result<TempDir> {
    let root = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/run")?;
    mirror(Path::new("/sys"), root.path(), paths)?;
    Ok(root)
}

/// Links to what stands in a folder, but for these, seen from there.
fn mirror(real: &Path, folder: &Path, lacking: &[&str]) -> Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(real).with_context(|| format!("list {}", real.display()))? {
        let name = entry?.file_name();
        let (real, folder) = (real.join(&name), folder.join(&name));
        let within = |path: &&str| Some(Path::new(path).strip_prefix(&name).ok()?.to_str()?.to_owned());
        let within: Vec<String> = lacking.iter().filter_map(within).collect();
        if within.is_empty() {
            symlink(&real, &folder)?;
        } else if within.iter().all(|path| !path.is_empty()) {
            mirror(&real, &folder, &within.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// Makes a tracer read that one.
pub fn flag(root: &TempDir) -> String {
    format!("--path.sysfs={}", root.path().display())
}
