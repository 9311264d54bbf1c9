//! Debian's kernels, fetched and unpacked. In: an offer of the archive. Out: image and modules of a release.

use crate::apt::{self, Apt};
use crate::paths;
use crate::run::step;
use crate::vm::offer::{self, Offer, Packages};
use crate::vm::series::{Image, Series};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::PathBuf;

/// One unpacked kernel.
pub(crate) struct Kernel {
    /// `uname -r`, for example `6.1.0-56-amd64`.
    pub(crate) release: String,
    /// The Debian version of image, headers and source.
    pub(crate) version: String,
    /// Root of the unpacked packages.
    pub(crate) tree: PathBuf,
}

impl Kernel {
    /// `6.1` of `6.1.0-56-amd64`.
    pub(crate) fn series(&self) -> &str {
        Image::of_release(&self.release).map_or(&self.release, |image| image.series)
    }

    /// Whether kbuild needs a C library and compiler newer than those of Debian 12.
    pub(crate) fn has_newer_kbuild(&self) -> bool {
        Image::of_release(&self.release).and_then(|image| image.debian).is_some_and(|debian| debian > 12)
    }

    /// Newer Debian ships the image beside the modules; the maintainer script copies it to /boot.
    pub(crate) fn vmlinuz(&self) -> PathBuf {
        let beside = self.modules().join("vmlinuz");
        let boot = self.tree.join("boot").join(format!("vmlinuz-{}", self.release));
        if beside.exists() { beside } else { boot }
    }

    /// The folder with `modules.dep` or at least `kernel/`.
    pub(crate) fn modules(&self) -> PathBuf {
        let below = |top: &str| self.tree.join(top).join(&self.release);
        let usr = below("usr/lib/modules");
        if usr.exists() { usr } else { below("lib/modules") }
    }
}

/// The newest release of a series, fetched unless the cache has it.
pub(crate) fn fetch(apt: &Apt, series: Series) -> Result<Kernel> {
    match fetch_known(apt, series) {
        // Archives drop a kernel as soon as there is a newer one: the indexes may be too old.
        Err(_) => apt.refresh().and_then(|()| fetch_known(apt, series)),
        fetched => fetched,
    }
}

fn fetch_known(apt: &Apt, series: Series) -> Result<Kernel> {
    match offer::of_series(apt, series)? {
        Offer::Whole(packages) | Offer::Image(packages, _) => unpacked(apt, packages),
        Offer::Nothing(why) => bail!("Linux {}: {why}", series.name()),
    }
}

fn unpacked(apt: &Apt, Packages { release, version, images }: Packages) -> Result<Kernel> {
    // The version is part of the key: Debian rebuilds a release under the same name.
    let tree = paths::cache().join("kernels").join(format!("{release}_{version}"));
    if !tree.exists() {
        step(format!("fetching Linux {release} ({version})"));
        let mut debs = Vec::new();
        for package in &images {
            debs.push(apt.download(package, &version)?);
        }
        fs::create_dir_all(paths::cache().join("kernels")).context("cannot make the kernel cache")?;
        apt::unpack(&debs, &tree)?;
    }
    Ok(Kernel { release, version, tree })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_tells_its_series_and_the_debian_that_it_was_built_for() {
        let of = |release: &str| {
            let kernel = Kernel { release: release.to_owned(), version: String::new(), tree: PathBuf::new() };
            (kernel.series().to_owned(), kernel.has_newer_kbuild())
        };
        for (release, series, newer) in [
            ("5.10.0-46-amd64", "5.10", false),
            ("6.12.117+deb12-amd64", "6.12", false),
            ("6.12.90+deb13.1-amd64", "6.12", true),
            ("7.2.13+deb14-rt-amd64", "7.2", true),
        ] {
            assert_eq!(of(release), (series.to_owned(), newer), "{release}");
        }
    }
}
