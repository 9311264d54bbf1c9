//! Folders of files with modes that do not depend on the umask.

use anyhow::{Context as _, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Makes the folder anew with these files: path below it, bytes, mode.
pub(super) fn write<'a>(
    root: &Path,
    files: impl IntoIterator<Item = (&'a str, &'a [u8], u32)>,
) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("cannot clear {}", root.display()))?;
    }
    add(root, files)
}

/// Adds these files.
pub(super) fn add<'a>(root: &Path, files: impl IntoIterator<Item = (&'a str, &'a [u8], u32)>) -> Result<()> {
    folder(root)?;
    for (path, bytes, mode) in files {
        let mut at = root.to_owned();
        for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
            at.push(part);
            folder(&at)?;
        }
        let path = root.join(path);
        let written =
            fs::write(&path, bytes).and_then(|()| fs::set_permissions(&path, Permissions::from_mode(mode)));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn folder(path: &Path) -> Result<()> {
    let made =
        fs::create_dir_all(path).and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)));
    made.with_context(|| format!("cannot make {}", path.display()))
}
