//! From the initramfs to the system on the disk (xtask/src/vm/debian.rs makes both), with this boot's own
//! files copied over it.

use crate::job::Module;
use crate::{machine, modules};
use anyhow::{Context as _, Result, bail};
use nix::mount::{MsFlags, mount};
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The required modules, one per line, in the order of insertion.
const MODULES: &str = "/etc/disk-modules";
const DISK: &str = "/dev/vda";
const ROOT: &str = "/disk";
const OVERLAY: &str = "/overlay";

pub(crate) fn wanted() -> bool {
    Path::new(MODULES).exists()
}

/// Returns only on error: otherwise the disk's own init runs in this process.
pub(crate) fn go_over() -> Result<()> {
    match try_to() {
        Err(error) => Err(error.context("cannot go over to the disk")),
        Ok(never) => match never {},
    }
}

fn try_to() -> Result<Infallible> {
    machine::mount("devtmpfs", "/dev", "")?;
    let listed = fs::read_to_string(MODULES).with_context(|| format!("cannot read {MODULES}"))?;
    let module = |file: &str| Module { file: file.to_owned(), parameters: String::new() };
    modules::insert_all(&listed.lines().map(module).collect::<Vec<_>>())?;
    mount(Some(DISK), ROOT, Some("ext4"), MsFlags::MS_NOATIME, None::<&str>)
        .with_context(|| format!("cannot mount {DISK}"))?;
    copy(Path::new(OVERLAY), Path::new(ROOT))?;
    std::env::set_current_dir(ROOT).context("no such root")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>).context("cannot move the root")?;
    nix::unistd::chroot(".").context("cannot change the root")?;
    bail!(Command::new("/sbin/init").exec());
}

/// Merges folders; a file replaces the entry of the same name.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        let copied = if kind.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)
        } else if kind.is_symlink() {
            fs::read_link(entry.path()).and_then(|link| symlink(link, &target)).map_err(Into::into)
        } else {
            fs::copy(entry.path(), &target).map(drop).map_err(Into::into)
        };
        copied.with_context(|| format!("cannot make {}", target.display()))?;
    }
    Ok(())
}
