//! `cargo xtask dist`: a tarball, a .deb and an .rpm of the release binary, and their checksums, below
//! target/dist.
//!
//! The same commit gives the same bytes, wherever it is built: dates are those of the commit, and no path of
//! the machine is left in the binary.

mod again;
pub(crate) mod check;
mod contents;
mod deb;
mod leaks;
mod parts;
mod registers;
mod remap;
mod rpm;
mod tarball;
mod third_party;
mod tree;

use crate::run::{self, note, step};
use crate::{paths, setup};
use anyhow::{Context as _, Result, bail};
use flate2::{Compression, GzBuilder};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUMMARY: &str = "eBPF tracer of AMD's compute driver (amdgpu/KFD)";
const DESCRIPTION: [&str; 4] = [
    "Shows who has which queue on which AMD GPU, since when, doing what, and what",
    "went wrong, as the kernel sees it: a stream for the terminal, a table of what",
    "runs now, and a daemon with Prometheus metrics, a JSON API, a page for people",
    "and a memory of who held what.",
];
const COPYRIGHT: &str = "2026 The kfd-trace developers";
/// Used where DEBFULLNAME and DEBEMAIL are not set: not a person who can be written to.
const MAINTAINER: (&str, &str) = ("The kfd-trace developers", "kfd-trace@kfd-trace.invalid");

/// Checksums of all files.
const SUMS: &str = "SHA256SUMS";

/// A machine's names, and the tool that strips its binaries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// For Rust.
    target: &'static str,
    /// For uname and .rpm.
    uname: &'static str,
    debian: &'static str,
    strip: &'static str,
    registers: registers::Registers,
}

const X86_64: Machine = Machine {
    target: crate::vm::guest::TARGET,
    uname: "x86_64",
    debian: "amd64",
    strip: "strip",
    registers: registers::X86_64,
};
const AARCH64: Machine = Machine {
    target: "aarch64-unknown-linux-musl",
    uname: "aarch64",
    debian: "arm64",
    strip: "aarch64-linux-gnu-strip",
    registers: registers::AARCH64,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// For which machines
    #[arg(long, value_parser = machine, default_value = "x86_64")]
    arch: Machine,
    /// Builds the same commit a second time in another folder, and compares all bytes
    #[arg(long)]
    check: bool,
}

fn machine(name: &str) -> Result<Machine, String> {
    let known = [X86_64, AARCH64].into_iter().find(|machine| machine.uname == name);
    known.ok_or_else(|| "must be x86_64 or aarch64".to_owned())
}

/// The files that were made.
struct Packages {
    tarball: PathBuf,
    deb: PathBuf,
    rpm: PathBuf,
}

/// Metadata that packages contain.
struct About {
    version: String,
    machine: Machine,
    /// Seconds since 1970.
    epoch: u64,
    maintainer: String,
    copyright: &'static str,
}

pub(crate) fn dist(args: &Args) -> Result<()> {
    setup::packaging()?;
    if args.arch.uname == AARCH64.uname {
        setup::cross(AARCH64.target)?;
    }
    let folder = paths::target().join("dist");
    remove_old(&folder, args.arch)?;
    let made = pack(&remap::build(args.arch)?, args.arch, &folder)?;
    checksums(&folder)?;
    for path in [&made.tarball, &made.deb, &made.rpm, &folder.join(SUMS)] {
        println!("{}", path.display());
    }
    if args.check {
        again::check(args.arch, &folder)?;
    }
    Ok(())
}

/// Two packages of a binary in this folder, of this version and of one that dpkg takes for later: a guest
/// installs one and upgrades to the other.
pub(crate) fn two_debs(binary: &Path, folder: &Path) -> Result<[PathBuf; 2]> {
    let about = About::new(X86_64)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let stripped = folder.join("kfd-trace");
    run::output(Command::new(X86_64.strip).arg("-o").arg(&stripped).arg(binary))?;
    let parts = parts::gather(&stripped, binary, X86_64, &folder.join("man"))?;
    let later = About { version: format!("{}+later", about.version), ..About::new(X86_64)? };
    let (first, second) = (folder.join("first.deb"), folder.join("second.deb"));
    let scripts = paths::root().join("deploy/debian");
    for (about, deb) in [(about, &first), (later, &second)] {
        deb::build(&parts, &about, &scripts, &folder.join("deb"), deb)?;
    }
    Ok([first, second])
}

/// Packs a binary into this folder.
fn pack(binary: &Path, machine: Machine, folder: &Path) -> Result<Packages> {
    let about = About::new(machine)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let stripped = folder.join("kfd-trace");
    run::output(Command::new(machine.strip).arg("-o").arg(&stripped).arg(binary))?;
    // The pages of all machines are those of this one.
    let native = if machine.uname == X86_64.uname { binary.to_owned() } else { remap::build(X86_64)? };
    let used = |binary: &Path, machine: Machine| -> Result<_> {
        let bytes = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
        registers::used(&bytes, machine.registers).with_context(|| binary.display().to_string())
    };
    let read = used(binary, machine)?;
    if read != used(&native, X86_64)? {
        bail!("the programs for {} read other arguments than those for {}", machine.uname, X86_64.uname);
    }
    note(format!(
        "programs on functions that read their arguments by the registers of {}: {}",
        machine.uname,
        read.len()
    ));
    let parts = parts::gather(&stripped, &native, machine, &folder.join("man"))?;
    let (version, deploy) = (&about.version, paths::root().join("deploy"));
    let name = format!("kfd-trace-{version}-{}-linux", machine.uname);
    let made = Packages {
        tarball: folder.join(format!("{name}.tar.gz")),
        deb: folder.join(format!("kfd-trace_{version}_{}.deb", machine.debian)),
        rpm: folder.join(format!("kfd-trace-{version}-1.{}.rpm", machine.uname)),
    };
    step("packing");
    tarball::build(&parts, &about, &name, &made.tarball)?;
    deb::build(&parts, &about, &deploy.join("debian"), &folder.join("deb"), &made.deb)?;
    rpm::build(&parts, &about, &deploy.join("rpm/kfd-trace.spec"), &folder.join("rpm"), &made.rpm)?;
    Ok(made)
}

/// All packages in this folder, in order.
fn packages(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| [".tar.gz", ".deb", ".rpm"].iter().any(|end| name.ends_with(end)));
    names.sort();
    Ok(names)
}

/// Removes earlier packages, which would be among the checksums: those of this machine, and of another
/// version those of all.
fn remove_old(folder: &Path, machine: Machine) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for name in packages(folder)?.iter().filter(|name| is_old(name, machine, env!("CARGO_PKG_VERSION"))) {
        let path = folder.join(name);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn is_old(package: &str, machine: Machine, version: &str) -> bool {
    let of_version =
        ["-", "_"].iter().any(|mark| package.starts_with(&format!("kfd-trace{mark}{version}{mark}")));
    !of_version || package.contains(machine.uname) || package.contains(machine.debian)
}

/// Checksums of all packages in this folder, as sha256sum checks them.
fn checksums(folder: &Path) -> Result<()> {
    let names = packages(folder)?;
    let sums = run::output(Command::new("sha256sum").arg("--").args(&names).current_dir(folder))?;
    fs::write(folder.join(SUMS), sums).with_context(|| format!("cannot write to {}", folder.display()))
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

/// The time that all dates are set to: SOURCE_DATE_EPOCH, otherwise that of the commit.
fn epoch() -> Result<u64> {
    let reported = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(reported) => reported,
        Err(_) => {
            run::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(paths::root()))
                .context(
                    "no commit shows the date of the packages: set SOURCE_DATE_EPOCH, in seconds since 1970",
                )?
        }
    };
    reported
        .trim()
        .parse()
        .with_context(|| format!("SOURCE_DATE_EPOCH: `{}` is no number of seconds", reported.trim()))
}

/// Without name and time.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzBuilder::new().write(Vec::new(), Compression::best());
    // Writing to a vector cannot fail.
    let written = out.write_all(bytes).and_then(|()| out.finish());
    written.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_this_version_for_another_machine_stay() {
        let old = |name: &str| is_old(name, X86_64, "0.1.0");
        for name in [
            "kfd-trace-0.1.0-1.aarch64.rpm",
            "kfd-trace_0.1.0_arm64.deb",
            "kfd-trace-0.1.0-aarch64-linux.tar.gz",
        ] {
            assert!(!old(name), "{name}");
        }
        for name in
            ["kfd-trace-0.1.0-1.x86_64.rpm", "kfd-trace_0.1.0_amd64.deb", "kfd-trace_0.1.0~rc1_arm64.deb"]
        {
            assert!(old(name), "{name}");
        }
    }
}
