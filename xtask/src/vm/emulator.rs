//! The QEMU that guests run in: Debian 13's, unpacked below target/ and started by its own loader, whatever
//! Debian this machine has; or, where `cargo xtask vm --build-qemu` has built it, the same version with
//! xtask/qemu/icount-prologue.patch. In: the cache. Out: a folder, and the command that starts QEMU from it.
//!
//! QEMU 7.2 of Debian 12 cannot count the instructions of two CPUs: of a boot's CPUs, one may starve until a
//! driver's time-out has passed; since 8.1 a turn of all CPUs together ends at the next timer.

mod build;
mod choice;

pub(crate) use build::build;

use crate::apt::{self, Apt};
use crate::run::step;
use crate::{folder, paths};
use anyhow::{Context as _, Result};
use choice::{Choice, Recipe};
use flate2::read::GzDecoder;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's package.
const PACKAGE: &str = "qemu-system-x86";

/// Path in the package, and in a folder of [`builds`].
const PROGRAM: &str = "usr/bin/qemu-system-x86_64";

/// Firmware: QEMU finds it beside its own executable, which is the loader here.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// The folder of the QEMU that guests run in; Debian's packages are fetched at first use. Prints which one.
pub(crate) fn unpacked() -> Result<PathBuf> {
    let tree = debian()?;
    let version = version(&tree)?;
    let choice = choice::choose(&built(), &recipe(&version));
    step(choice.report(&version));
    Ok(match choice {
        Choice::Patched(name) => builds().join(name),
        Choice::Debian(_) => tree,
    })
}

/// What decides how such a folder's machines run: QEMU's own file, and firmware, which is a part of what it
/// saves.
pub(crate) fn files(tree: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![tree.join(PROGRAM)];
    // Debian's package of ROMs for network cards is only recommended.
    for folder in FIRMWARE.map(|folder| tree.join(folder)).iter().filter(|folder| folder.exists()) {
        files.extend(folder::files_below(folder)?);
    }
    Ok(files)
}

/// QEMU of such a folder.
pub(crate) fn command(tree: &Path) -> Command {
    let mut command = apt::program(tree, PROGRAM, &["usr/lib/x86_64-linux-gnu"]);
    for folder in FIRMWARE {
        command.arg("-L").arg(tree.join(folder));
    }
    command
}

/// The folder of Debian's packages.
fn debian() -> Result<PathBuf> {
    apt::unpacked_whole(PACKAGE, Apt::trixie)
}

/// What a patched QEMU of this version is made of.
fn recipe(version: &str) -> Recipe<'_> {
    Recipe { version, patch: build::PATCH, configure: &build::CONFIGURE }
}

/// Folder of the patched builds, one folder each.
fn builds() -> PathBuf {
    paths::cache().join("qemu-patched")
}

/// Names of the patched builds; none where nothing was built.
fn built() -> Vec<String> {
    let entries = fs::read_dir(builds()).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Debian's version of the source of an unpacked package: unpacked packages keep it in their changelog only.
fn version(tree: &Path) -> Result<String> {
    let path = tree.join("usr/share/doc").join(PACKAGE).join("changelog.Debian.gz");
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut head = String::new();
    let read = BufReader::new(GzDecoder::new(file)).read_line(&mut head);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    let version = choice::version_of_changelog(&head);
    version.map(str::to_owned).with_context(|| format!("{} names no version", path.display()))
}
