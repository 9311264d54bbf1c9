//! A copy of /sys without some of its files, for a tracer to read.

use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

/// MODULE_VERSION of the loaded driver, below sysfs; a driver of the kernel's own tree has none.
pub const VERSION: &str = "module/amdgpu/version";

/// A sysfs without `kernel/btf/amdgpu` and the version by which the shipped table knows the driver, otherwise
/// complete.
///
/// # Errors
/// When it cannot be created.
///
/// # Panics
/// When the kernel has no BTF of its own: then there are other differences.
pub fn without_btf() -> Result<TempDir> {
    let root = lacking(&["kernel/btf/amdgpu", VERSION])?;
    assert!(root.path().join("kernel/btf/vmlinux").exists());
    Ok(root)
}

/// A sysfs without these files or folders. Every user may read it, also a service with its own /tmp.
///
/// # Errors
/// When it cannot be created.
pub fn lacking(paths: &[&str]) -> Result<TempDir> {
    let root = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/run")?;
    mirror(Path::new("/sys"), root.path(), paths)?;
    Ok(root)
}

/// Links to the entries of a folder, except these, relative to it.
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

/// The flag that makes a tracer read that sysfs.
pub fn flag(root: &TempDir) -> String {
    format!("--path.sysfs={}", root.path().display())
}

/// The flags of a tracer that reads that sysfs and finds no types of the driver in files.
pub fn without_types(root: &TempDir) -> [String; 2] {
    [flag(root), format!("--path.drivers={}", root.path().join("no-drivers").display())]
}
