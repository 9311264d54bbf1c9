//! Debian's kernels of the matrix, fetched and unpacked. In: a series. Out: the newest release with its image
//! and modules.

use crate::apt::{self, Apt};
use crate::paths;
use crate::run::step;
use crate::vm::series::Series;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;

/// One unpacked kernel.
pub(crate) struct Kernel {
    pub(crate) series: Series,
    /// `uname -r`, for example `6.1.0-56-amd64`.
    pub(crate) release: String,
    /// The Debian version of image, headers and source.
    pub(crate) version: String,
    /// Root of the unpacked packages.
    pub(crate) tree: PathBuf,
}

impl Kernel {
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

/// Resolves the newest release of a series, and fetches it unless the cache has it.
pub(crate) fn fetch(apt: &Apt, series: Series) -> Result<Kernel> {
    match fetch_known(apt, series) {
        // Archives drop a kernel as soon as there is a newer one: the indexes may be too old.
        Err(_) => apt.refresh().and_then(|()| fetch_known(apt, series)),
        fetched => fetched,
    }
}

fn fetch_known(apt: &Apt, series: Series) -> Result<Kernel> {
    let (release, version, packages) = resolve(apt, series)?;
    // The version is part of the key: Debian rebuilds a release under the same name.
    let tree = paths::cache().join("kernels").join(format!("{release}_{version}"));
    if !tree.exists() {
        step(format!("fetching Linux {release} ({version})"));
        let mut debs = Vec::new();
        for package in &packages {
            debs.push(apt.download(package, &version)?);
        }
        fs::create_dir_all(paths::cache().join("kernels")).context("cannot make the kernel cache")?;
        apt::unpack(&debs, &tree)?;
    }
    Ok(Kernel { series, release, version, tree })
}

/// The newest release whose packages are all available in one version. Where kfdsim is built, this includes
/// headers and source.
fn resolve(apt: &Apt, series: Series) -> Result<(String, String, Vec<String>)> {
    let names = apt.names(&format!("linux-image-{}.", series.name()))?;
    for release in series.releases(names.iter().map(String::as_str)) {
        let signed = format!("linux-image-{release}");
        let unsigned = format!("linux-image-{release}-unsigned");
        for image in [signed, unsigned].into_iter().filter(|image| names.contains(image)) {
            let Some(version) = apt.versions(&image)?.into_iter().next() else { continue };
            let mut packages = vec![image];
            // Newer Debian splits the image in three.
            for part in [format!("linux-modules-{release}"), format!("linux-binary-{release}")] {
                if apt.versions(&part)?.contains(&version) {
                    packages.push(part);
                }
            }
            let headers = format!("linux-headers-{release}");
            let source = format!("linux-source-{}", series.name());
            let buildable = !series.has_kfdsim()
                || (apt.versions(&headers)?.contains(&version) && apt.versions(&source)?.contains(&version));
            if buildable {
                return Ok((release, version, packages));
            }
        }
    }
    anyhow::bail!("Debian's indexes hold no complete Linux {} any more", series.name())
}
