//! Every kernel image that Debian has and that is not booted: the newest of each series, Debian and flavour.
//! In: the package index of all suites. Out: fixtures of each.

use crate::apt::{Apt, Gone};
use crate::run::{note, step};
use crate::vm::fixtures;
use crate::vm::kernels::Kernel;
use crate::vm::offer::{self, Index as _, Packages};
use crate::vm::series::{self, Build, Image};
use crate::{lock, paths};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is taken out of the packages, by the beginning of a file's name.
const WANTED: [&str; 3] = ["vmlinuz", "amdgpu.ko", "gpu-sched.ko"];

/// Releases of a build that are tried: those that the archive lists and does not have are passed over.
const TRIED: usize = 3;

/// Makes the missing fixtures: one folder per release below the one returned. `booted`: releases that are
/// tested in another way.
pub(crate) fn fixtures(booted: &[&str]) -> Result<PathBuf> {
    let root = paths::target().join("images");
    let _cache = lock::hold(&paths::cache())?;
    let apt = Apt::images()?;
    let names = apt.names("linux-image-")?;
    let mut kept = Vec::new();
    for build in others(&names, booted) {
        match newest(&apt, &names, &build, &root)? {
            Ok(release) => kept.push(release),
            Err(why) => note(format!("Linux {}: left out, {why}", build.newest.release)),
        }
    }
    for entry in fs::read_dir(&root).with_context(|| format!("cannot read {}", root.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !kept.iter().any(|release| *release == name) {
            fs::remove_dir_all(&path).with_context(|| format!("cannot clear {}", path.display()))?;
        }
    }
    Ok(root)
}

/// The newest release of a build that the archive still has, or what is missing of the first.
fn newest(apt: &Apt, names: &[String], build: &Build<'_>, root: &Path) -> Result<Result<String, String>> {
    let mut why = None;
    for release in build.releases.iter().take(TRIED) {
        let missing = match offer::of_release(apt, names, release)? {
            Ok(packages) => match fixture(apt, &packages, root) {
                Err(error) if error.is::<Gone>() => format!("{error:#}"),
                made => return made.map(|()| Ok(packages.release)),
            },
            Err(missing) => missing,
        };
        why = why.or(Some(missing));
    }
    Ok(Err(why.unwrap_or_default()))
}

/// Those of which no image is booted.
fn others<'a>(names: &'a [String], booted: &[&str]) -> Vec<Build<'a>> {
    let kind = |image: &Image<'_>| (image.series.to_owned(), image.debian, image.flavour);
    let is_booted = |build: &Build<'_>| {
        let booted = booted.iter().filter_map(|release| Image::of_release(release));
        booted.into_iter().any(|one| kind(&one) == kind(&build.newest))
    };
    let builds = series::builds(names.iter().map(String::as_str));
    builds.into_iter().filter(|build| !is_booted(build)).collect()
}

/// The packages are not kept: all of Debian's kernels take gigabytes.
fn fixture(apt: &Apt, packages: &Packages, root: &Path) -> Result<()> {
    let Packages { release, version, images } = packages;
    let dir = &root.join(release);
    if fixtures::is_made(dir, &fixtures::key(release, version)) {
        return Ok(());
    }
    step(format!("fetching Linux {release} ({version})"));
    let tree = paths::cache().join("image");
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot clear {}", tree.display()))?;
    }
    for package in images {
        let deb = apt.download(package, version)?;
        take_out(&deb, &tree).with_context(|| format!("files of {package}"))?;
        fs::remove_file(&deb).with_context(|| format!("cannot delete {}", deb.display()))?;
    }
    let kernel = Kernel { release: release.clone(), version: version.clone(), tree: tree.clone() };
    fixtures::of_kernel(&kernel, dir)?;
    fs::remove_dir_all(&tree).with_context(|| format!("cannot clear {}", tree.display()))
}

/// Unpacks the wanted files alone.
fn take_out(deb: &Path, tree: &Path) -> Result<()> {
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run dpkg-deb")?;
    let stdout = child.stdout.take().context("dpkg-deb has no stdout")?;
    fs::create_dir_all(tree).with_context(|| format!("cannot make {}", tree.display()))?;
    let mut archive = tar::Archive::new(stdout);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if WANTED.iter().any(|wanted| name.starts_with(wanted)) {
            entry.unpack_in(tree)?;
        }
    }
    let status = child.wait().context("cannot wait for dpkg-deb")?;
    if !status.success() {
        bail!("dpkg-deb failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::others;

    #[test]
    fn a_kernel_that_is_booted_is_not_among_them_and_its_other_builds_are() {
        let names = [
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.118+deb12-amd64",
            "linux-image-6.12.118+deb12-rt-amd64",
            "linux-image-6.12.118+deb13-amd64",
            "linux-image-6.16.12+deb13-amd64",
        ]
        .map(str::to_owned);
        let found = others(&names, &["6.12.117+deb12-amd64"]);
        let releases: Vec<_> = found.iter().map(|build| build.newest.release).collect();
        let expected = ["6.12.118+deb12-rt-amd64", "6.12.118+deb13-amd64", "6.16.12+deb13-amd64"];
        assert_eq!(releases, expected);
    }
}
