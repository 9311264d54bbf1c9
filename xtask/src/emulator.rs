//! The QEMU that guests run in: Debian 13's, unpacked below target/ and started by its own loader, whatever Debian this machine
//! has. QEMU 7.2 of Debian 12 cannot count the instructions of two CPUs: of a boot's CPUs, one may starve until a driver's
//! time-out has passed; since 8.1 a turn of all CPUs together ends at the next timer.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::apt::{self, Apt};
use crate::run::step;
use crate::stamp::Stamp;
use crate::{lock, paths};

const PACKAGE: &str = "qemu-system-x86";

/// Within the packages.
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const QEMU: &str = "usr/bin/qemu-system-x86_64";
/// Firmware: QEMU finds it beside its own executable, which is the loader here.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// The folder of the packages, fetched at first use.
pub(crate) fn unpacked() -> Result<PathBuf> {
    let _cache = lock::hold(&paths::cache())?;
    let tree = paths::cache().join("qemu");
    let stamp = Stamp::beside(&tree, PACKAGE.to_owned());
    if stamp.holds() && tree.exists() {
        return Ok(tree);
    }
    step("fetching QEMU of Debian 13");
    stamp.clear()?;
    if tree.exists() {
        std::fs::remove_dir_all(&tree)?;
    }
    apt::unpack(&Apt::trixie()?.download_closure(&[PACKAGE])?, &tree)?;
    stamp.set()?;
    Ok(tree)
}

/// QEMU of such a folder.
pub(crate) fn command(tree: &Path) -> Command {
    let mut command = Command::new(tree.join(LOADER));
    command.arg("--library-path").arg(tree.join(LIBRARIES)).arg(tree.join(QEMU));
    for folder in FIRMWARE {
        command.arg("-L").arg(tree.join(folder));
    }
    command
}
