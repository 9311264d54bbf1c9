//! Paths in the workspace. Everything made by xtask is under `target/` and can be made again from nothing.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The workspace's root folder: that of the checkout in which `cargo xtask` runs, not of the one in which it
/// was built, since a target folder may be copied with its checkout.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let started_by_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let here = std::env::current_dir().ok();
        let found = started_by_cargo.as_deref().and_then(workspace);
        found.or_else(|| here.as_deref().and_then(workspace)).unwrap_or_default()
    })
}

/// The nearest folder, this one or above it, that has the parts of the workspace.
fn workspace(from: &Path) -> Option<PathBuf> {
    let is_root =
        |folder: &&Path| folder.join("xtask/Cargo.toml").exists() && folder.join("Cargo.lock").exists();
    from.ancestors().find(is_root).map(Path::to_owned)
}

/// cargo's target folder (`CARGO_TARGET_DIR` is honoured, as cargo does).
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Downloads and unpacked packages; safe to keep between runs.
pub(crate) fn cache() -> PathBuf {
    target().join("vm-cache")
}

/// Files made for one kernel: logs, initramfs, modules built for it.
pub(crate) fn vm(release: &str) -> PathBuf {
    target().join("vm").join(release)
}

/// Root folders with the files of each kernel that the kernel-model tests read.
pub(crate) fn fixtures() -> PathBuf {
    target().join("fixtures")
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn the_root_is_found_from_any_folder_below_it() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("xtask/src")).expect("folders");
        assert_eq!(super::workspace(&root.path().join("xtask/src")), None);
        for file in ["xtask/Cargo.toml", "Cargo.lock"] {
            fs::write(root.path().join(file), "").expect("a file");
        }
        assert_eq!(super::workspace(&root.path().join("xtask/src")), Some(root.path().to_owned()));
        assert_eq!(super::workspace(root.path()), Some(root.path().to_owned()));
    }
}
