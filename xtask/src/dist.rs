//! `cargo xtask dist`: a tarball, a .deb and an .rpm of the release binary, and their checksums, below target/dist.
//!
//! The same commit gives the same bytes, wherever it is built: dates are those of the commit, and no path of the machine
//! is left in the binary.

mod contents;
mod deb;
mod parts;
mod remap;
mod rpm;
mod tarball;
mod tree;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};

use crate::paths;
use crate::run::{self, step};

const SUMMARY: &str = "eBPF tracer of AMD's compute driver (amdgpu/KFD)";
const DESCRIPTION: [&str; 4] = [
    "Tells who has which queue on which AMD GPU, since when, doing what, and what",
    "went wrong, as the kernel sees it: a stream for the terminal, a table of what",
    "runs now, and a daemon with Prometheus metrics, a JSON API, a page for people",
    "and a memory of who held what.",
];
const COPYRIGHT: &str = "2026 The kfd-trace developers";
/// Where DEBFULLNAME and DEBEMAIL name nobody, it is nobody who can be written to.
const MAINTAINER: (&str, &str) = ("The kfd-trace developers", "kfd-trace@kfd-trace.invalid");

/// A machine's names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// For Rust.
    target: &'static str,
    /// For uname and .rpm.
    uname: &'static str,
    debian: &'static str,
}

const X86_64: Machine = Machine { target: crate::guest::TARGET, uname: "x86_64", debian: "amd64" };

/// What packages say of themselves.
struct About {
    version: String,
    machine: Machine,
    /// Seconds since 1970.
    epoch: u64,
    maintainer: String,
    copyright: &'static str,
}

pub(crate) fn dist() -> Result<()> {
    let folder = paths::target().join("dist");
    let made = packages(X86_64, &folder)?;
    for path in made {
        println!("{}", path.display());
    }
    Ok(())
}

/// Builds the binary and packs it into this folder; gives the files.
fn packages(machine: Machine, folder: &Path) -> Result<Vec<PathBuf>> {
    let about = About::new(machine)?;
    let binary = remap::build(machine)?;
    let parts = parts::gather(&binary, machine)?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (version, deploy) = (&about.version, paths::root().join("deploy"));
    let name = format!("kfd-trace-{version}-{}-linux", machine.uname);
    let [tarball, deb, rpm] = [
        format!("{name}.tar.gz"),
        format!("kfd-trace_{version}_{}.deb", machine.debian),
        format!("kfd-trace-{version}-1.{}.rpm", machine.uname),
    ]
    .map(|file| folder.join(file));
    step("packing");
    tarball::build(&parts, &about, &name, &tarball)?;
    deb::build(&parts, &about, &deploy.join("debian"), &folder.join("deb"), &deb)?;
    rpm::build(&parts, &about, &deploy.join("rpm/kfd-trace.spec"), &folder.join("rpm"), &rpm)?;
    Ok(vec![tarball, deb, rpm])
}

impl About {
    fn new(machine: Machine) -> Result<Self> {
        let [name, email] = [("DEBFULLNAME", MAINTAINER.0), ("DEBEMAIL", MAINTAINER.1)]
            .map(|(key, other)| std::env::var(key).unwrap_or_else(|_| other.to_owned()));
        Ok(About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine,
            epoch: epoch()?,
            maintainer: format!("{name} <{email}>"),
            copyright: COPYRIGHT,
        })
    }

    #[cfg(test)]
    fn sample() -> Self {
        About {
            version: "0.1.0".to_owned(),
            machine: X86_64,
            epoch: 1_000_000_000,
            maintainer: "A <a@example.org>".to_owned(),
            copyright: COPYRIGHT,
        }
    }
}

/// The time that all dates are set to: SOURCE_DATE_EPOCH, else that of the commit.
fn epoch() -> Result<u64> {
    let told = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(told) => told,
        Err(_) => {
            run::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(paths::root()))
                .context(
                    "no commit tells the date of the packages: set SOURCE_DATE_EPOCH, in seconds since 1970",
                )?
        }
    };
    told.trim()
        .parse()
        .with_context(|| format!("SOURCE_DATE_EPOCH: `{}` is no number of seconds", told.trim()))
}

/// Without name and time.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzBuilder::new().write(Vec::new(), Compression::best());
    // A vector takes everything.
    let written = out.write_all(bytes).and_then(|()| out.finish());
    written.unwrap_or_default()
}
