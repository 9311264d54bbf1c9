//! Where things stand in the workspace. Everything made by xtask lies under `target/` and can be
//! made again from nothing.

use std::path::{Path, PathBuf};

/// The workspace's root folder.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// cargo's target folder (`CARGO_TARGET_DIR` is honoured, as cargo does).
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Downloads and what is unpacked from them; safe to keep between runs.
pub(crate) fn cache() -> PathBuf {
    target().join("vm-cache")
}

/// What is made for one kernel: logs, initramfs, modules built for it.
pub(crate) fn vm(release: &str) -> PathBuf {
    target().join("vm").join(release)
}

/// Root folders with the files of each kernel that the kernel-model tests read.
pub(crate) fn fixtures() -> PathBuf {
    target().join("fixtures")
}
