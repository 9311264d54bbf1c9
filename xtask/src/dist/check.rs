//! Whether the packages are good: the unit's exposure by systemd-analyze, scripts by shellcheck, the .deb by lintian, the
//! .rpm by installing it.
//!
//! systemd-analyze comes from Debian's package, unpacked below target/: the package itself would take over
//! the machine.

use super::{Packages, X86_64, tree};
use crate::apt::{self, Apt};
use crate::run::{self, note, step};
use crate::{build, paths, setup};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each unit, and how exposed it may be: out of ten; systemd calls values below 5 "OK" or better.
const UNITS: [(&str, f64); 2] =
    [("deploy/systemd/kfd-trace.service", 3.1), ("deploy/systemd/kfd-trace-driver-types.service", 3.3)];
/// Folders of scripts; what else is in them is left out.
const SCRIPTS: [&str; 2] = ["deploy/debian", "deploy/slurm"];
/// Below a root folder, by rpm's own choice of place.
const RPM_DATABASE: [&str; 2] = ["root/.rpmdb", "var/lib/rpm"];

/// Packs the binary that `cargo xtask build` makes, and checks the results.
pub(crate) fn check() -> Result<()> {
    for (unit, most) in UNITS {
        check_unit(unit, most)?;
    }
    setup::packaging()?;
    scripts()?;
    let folder = paths::target().join("packages");
    let made = super::pack(&build::build()?, X86_64, &folder)?;
    step("checking the .deb");
    run::run(Command::new("lintian").args(["--fail-on", "error", "--allow-root"]).arg(&made.deb))?;
    step("installing the .rpm into an empty folder, and removing it");
    rpm(&made, &folder.join("root"))
}

fn scripts() -> Result<()> {
    let mut scripts = Vec::new();
    for folder in SCRIPTS.map(|folder| paths::root().join(folder)) {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?.starts_with(b"#!")
            {
                scripts.push(path);
            }
        }
    }
    step(format!("checking {} scripts", scripts.len()));
    run::run(Command::new("shellcheck").args(scripts))
}

fn check_unit(unit: &str, most: f64) -> Result<()> {
    let path = &paths::root().join(unit);
    let mut analyze = systemd_analyze()?;
    analyze.args(["security", "--offline=true", "--no-pager"]).arg(path);
    let done = analyze.output().context("cannot run systemd-analyze")?;
    let complaints = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() || !complaints.trim().is_empty() {
        bail!("{} is not understood: {}", path.display(), complaints.trim());
    }
    let exposed =
        exposure(&String::from_utf8_lossy(&done.stdout)).context("systemd-analyze reported no exposure")?;
    note(format!("{unit}: exposure {exposed}"));
    if exposed >= most {
        bail!(
            "{unit} is exposed by {exposed}, and {most} or more is too much: `systemd-analyze security` shows why"
        );
    }
    Ok(())
}

/// `→ Overall exposure level for kfd-trace.service: 2.5 OK 🙂`
fn exposure(reported: &str) -> Option<f64> {
    let line = reported.lines().find(|line| line.contains("Overall exposure level"))?;
    line.split_once(": ")?.1.split_whitespace().next()?.parse().ok()
}

fn systemd_analyze() -> Result<Command> {
    let libraries = [
        "lib/x86_64-linux-gnu",
        "usr/lib/x86_64-linux-gnu",
        "lib/systemd",
        "usr/lib/x86_64-linux-gnu/systemd",
    ];
    let tree = apt::unpacked_whole("systemd", Apt::open)?;
    Ok(apt::program(&tree, "usr/bin/systemd-analyze", &libraries))
}

fn rpm(made: &Packages, root: &Path) -> Result<()> {
    tree::write(root, [])?;
    in_root(root, "--install", &made.rpm)?;
    let binary = root.join("usr/bin/kfd-trace");
    let version = run::output(Command::new(&binary).arg("--version"))?;
    if version.trim() != format!("kfd-trace {}", env!("CARGO_PKG_VERSION")) {
        bail!("{} says that it is {}", binary.display(), version.trim());
    }
    in_root(root, "--verify", Path::new("kfd-trace"))?;
    in_root(root, "--erase", Path::new("kfd-trace"))?;
    let left = left(root)?;
    if !left.is_empty() {
        bail!("the .rpm leaves behind: {}", left.join(" "));
    }
    Ok(())
}

/// Runs rpm as a user who may enter a root folder.
fn in_root(root: &Path, what: &str, package: &Path) -> Result<()> {
    let mut command = Command::new("unshare");
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        command.args(["--user", "--map-root-user"]);
    }
    run::output(command.args(["--mount", "rpm", "--root"]).arg(root).arg(what).arg(package)).map(drop)
}

/// Files below a root folder, and folders of our own; rpm's database is not ours.
fn left(root: &Path) -> Result<Vec<String>> {
    let (mut open, mut found) = (vec![PathBuf::new()], Vec::new());
    while let Some(folder) = open.pop() {
        let folder = root.join(folder);
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
            let name = below.display().to_string();
            let ours = name.contains("kfd-trace") || !path.is_dir();
            if RPM_DATABASE.contains(&name.as_str()) {
                continue;
            } else if ours {
                found.push(name);
            } else {
                open.push(below);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exposure_stands_in_the_last_line() {
        let reported = "✗ PrivateNetwork=  Service has access  0.5\n\n→ Overall exposure level for kfd-trace.service: 2.5 OK 🙂\n";
        assert_eq!(exposure(reported), Some(2.5));
        assert_eq!(exposure("nothing"), None);
    }

    #[test]
    fn what_is_left_is_reported_and_the_database_is_not() {
        let root = tempfile::tempdir().unwrap();
        let files =
            ["etc/sysconfig/kfd-trace", "root/.rpmdb/rpmdb.sqlite", "usr/share/kfd-trace/prometheus/x"];
        tree::add(root.path(), files.map(|path| (path, &b""[..], 0o644))).unwrap();
        assert_eq!(left(root.path()).unwrap(), ["etc/sysconfig/kfd-trace", "usr/share/kfd-trace"]);
    }
}
