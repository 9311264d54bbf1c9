//! Root folders of Debian 13, for programs that need a newer C library or compiler than this machine has. In:
//! names of packages. Out: a command that runs inside.
//!
//! A root is unpacked from packages, never set up: no maintainer script has run, and no service runs in it.
//! It is entered in a new mount namespace, so that nothing stays mounted however the command ends.

use crate::apt::{self, Apt};
use crate::run::step;
use crate::stamp::Stamp;
use anyhow::{Context as _, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Enters the root from outside, in a mount namespace made for it. Arguments: the root; each folder and its
/// place in the root; `--`; the command to run inside. objtool and meson read /proc.
const ENTER: &str = r#"set -e
PATH=$PATH:/usr/sbin:/sbin
root=$1; shift
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
shift
exec chroot "$root" "$@"
"#;

pub(crate) struct Root {
    dir: PathBuf,
}

impl Root {
    /// Unpacks these packages with all their dependencies, unless `dir` has them. The caller holds the cache.
    pub(crate) fn at(dir: &Path, packages: &[&str]) -> Result<Self> {
        let root = Self { dir: dir.to_owned() };
        let stamp = Stamp::at(dir.join("unpacked-for"), packages.join(" "));
        if stamp.holds() {
            return Ok(root);
        }
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot clear {}", dir.display()))?;
        }
        step(format!("fetching programs of Debian 13 into {}", dir.display()));
        let debs = Apt::trixie()?.download_closure(packages)?;
        apt::unpack(&debs, dir)?;
        // A maintainer script would have created it.
        let awk = dir.join("usr/bin/awk");
        symlink("mawk", &awk).with_context(|| format!("cannot make {}", awk.display()))?;
        stamp.set()?;
        Ok(root)
    }

    /// Runs the command added to it inside. `mounted`: folders of this machine, and their places in the root.
    /// A user who is not root becomes so in a user namespace.
    pub(crate) fn enter(&self, mounted: &[(&Path, &str)]) -> Command {
        let mut command = Command::new("unshare");
        // SAFETY: no arguments, cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "sh", "-c", ENTER, "enter"]).arg(&self.dir);
        for (folder, place) in mounted {
            command.arg(folder).arg(place);
        }
        command.arg("--");
        command
    }
}
