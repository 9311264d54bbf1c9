//! The QEMU that guests run in: Debian 13's, unpacked below target/ and started by its own loader, whatever
//! Debian this machine has. QEMU 7.2 of Debian 12 cannot count the instructions of two CPUs: of a boot's
//! CPUs, one may starve until a driver's time-out has passed; since 8.1 a turn of all CPUs together ends at
//! the next timer.

use crate::apt::{self, Apt};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Firmware: QEMU finds it beside its own executable, which is the loader here.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// The folder of the packages, fetched at first use.
pub(crate) fn unpacked() -> Result<PathBuf> {
    apt::unpacked_whole("qemu-system-x86", Apt::trixie)
}

const PROGRAM: &str = "usr/bin/qemu-system-x86_64";

/// QEMU's own file in such a folder. Its firmware is part of what it saves.
pub(crate) fn program(tree: &Path) -> PathBuf {
    tree.join(PROGRAM)
}

/// QEMU of such a folder.
pub(crate) fn command(tree: &Path) -> Command {
    let mut command = apt::program(tree, PROGRAM, &["usr/lib/x86_64-linux-gnu"]);
    for folder in FIRMWARE {
        command.arg("-L").arg(tree.join(folder));
    }
    command
}
