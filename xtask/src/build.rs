//! The release binary: static musl, with the BPF object embedded (kfd-trace/build.rs builds that).

use crate::paths;
use crate::run::{self, note, size, step};
use crate::vm::guest::{self, TARGET};
use anyhow::{Context as _, Result, bail};
use object::LittleEndian;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that the binary's `kfd_trace_build_info` has its revision from.
const REVISION: &str = "KFD_TRACE_REVISION";

/// Builds and checks it, as tests and measurements take it: without its commit, so that a commit compiles
/// nothing anew.
pub(crate) fn build() -> Result<PathBuf> {
    step("building kfd-trace (release, static)");
    built(|cargo| cargo)
}

/// Builds it as it is given away: it shows its commit.
pub(crate) fn released() -> Result<PathBuf> {
    step("building kfd-trace (release, static) of this commit");
    built(with_revision)
}

fn built(with: impl FnOnce(&mut Command) -> &mut Command) -> Result<PathBuf> {
    let mut cargo = guest::cargo();
    cargo.args(["build", "--release", "-p", "kfd-trace", "--target", TARGET]);
    run::run(with(&mut cargo))?;
    let binary = paths::target().join(TARGET).join("release/kfd-trace");
    check(&binary)?;
    Ok(binary)
}

/// The binary that this builds shows its commit. A variable that is set stays: for sources that are no clone.
pub(crate) fn with_revision(cargo: &mut Command) -> &mut Command {
    if std::env::var_os(REVISION).is_none()
        && let Some(revision) = revision()
    {
        cargo.env(REVISION, revision);
    }
    cargo
}

/// The commit that is checked out; `None` where git does not know it.
fn revision() -> Option<String> {
    let git = |words: &[&str]| {
        let done = Command::new("git").args(words).current_dir(paths::root()).output().ok()?;
        let text = String::from_utf8(done.stdout).ok().filter(|_| done.status.success())?;
        Some(text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain"]).is_none_or(|files| !files.is_empty());
    Some(if changed { commit + "-changed" } else { commit })
}

/// Checks that it runs on every server of its architecture.
pub(crate) fn check(binary: &Path) -> Result<()> {
    let bytes = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    if !is_static(&bytes).with_context(|| format!("{} is no ELF file", binary.display()))? {
        bail!("{} needs a dynamic loader: it would not run on every server", binary.display());
    }
    note(format!("{} ({}, static)", binary.display(), size(bytes.len() as u64)));
    Ok(())
}

/// Whether it requests no interpreter: musl's static executables may be position-independent, with a dynamic
/// section that only relocates themselves.
fn is_static(elf: &[u8]) -> Result<bool> {
    let header = FileHeader64::<LittleEndian>::parse(elf)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, elf)?;
    Ok(!segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP))
}
