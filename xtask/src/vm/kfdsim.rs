//! The simulated GPU's kernel module, built for one kernel on this machine. In: an unpacked kernel. Out:
//! kfdsim.ko. Headers, kbuild and driver headers are private copies of exactly the same version.

use crate::apt::{self, Apt};
use crate::paths;
use crate::run::{self, note, size, step};
use crate::stamp::Stamp;
use crate::vm::driver::{self, Driver};
use crate::vm::kbuild::{self, Folders};
use crate::vm::kernels::Kernel;
use crate::vm::offer::Index as _;
use anyhow::{Context as _, Result, bail};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// GPL-2.0 sources with their Kbuild.
fn sources() -> PathBuf {
    paths::root().join("tests/kfdsim")
}

/// Builds it for a kernel of a series that has it, unless it is newer than its sources.
pub(crate) fn build(apt: &Apt, kernel: &Kernel) -> Result<PathBuf> {
    let headers = headers(apt, kernel)?;
    let driver = driver_headers(apt, kernel)?;
    let dir = paths::vm(&kernel.release).join("kfdsim");
    let module = dir.join("kfdsim.ko");
    let stamp = Stamp::at(dir.join("built-for"), kernel.version.clone());
    let fresh = stamp.holds()
        && modified(&module).is_some_and(|built| newest(&sources()).is_some_and(|source| source < built));
    if fresh {
        return Ok(module);
    }
    step(format!("building kfdsim for {}", kernel.release));
    copy_sources(&sources(), &dir)?;
    let folders = Folders { headers: &headers, driver: &driver, amd: kbuild::AMD, module: &dir };
    make(kernel, &folders)?;
    stamp.set()?;
    Ok(module)
}

/// Builds it against the headers of a driver that was built elsewhere, always anew.
pub(crate) fn build_for(apt: &Apt, kernel: &Kernel, driver: &Driver) -> Result<PathBuf> {
    let headers = headers(apt, kernel)?;
    let dir = paths::vm(&kernel.release).join("kfdsim-driver");
    step(format!("building kfdsim for {} and the driver of {}", kernel.release, driver.source().display()));
    copy_sources(&sources(), &dir)?;
    let copy = |from: PathBuf, to: &str| {
        fs::copy(&from, dir.join(to)).with_context(|| format!("cannot copy {}", from.display()))
    };
    copy(driver.symvers(), kbuild::SYMVERS)?;
    if let Some(piece) = driver.kbuild() {
        copy(piece, driver::KBUILD)?;
        let mut kbuild =
            File::options().append(true).open(dir.join("Kbuild")).context("kfdsim has no Kbuild")?;
        writeln!(kbuild, "include $(src)/{}", driver::KBUILD).context("cannot write kfdsim's Kbuild")?;
    }
    let source = driver.source();
    make(kernel, &Folders { headers: &headers, driver: &source, amd: driver.amd(), module: &dir })?;
    Ok(dir.join("kfdsim.ko"))
}

fn make(kernel: &Kernel, folders: &Folders<'_>) -> Result<()> {
    run::logged(&mut kbuild::make(kernel, folders)?, &folders.module.join("build.log"))?;
    let built = fs::metadata(folders.module.join("kfdsim.ko")).context("kbuild made no kfdsim.ko")?;
    note(format!("kfdsim.ko: {}", size(built.len())));
    Ok(())
}

/// Headers of the flavour, the common ones and kbuild's tools, unpacked as dpkg would under `/`.
pub(crate) fn headers(apt: &Apt, kernel: &Kernel) -> Result<PathBuf> {
    let (release, version) = (&kernel.release, &kernel.version);
    let tree = paths::cache().join("headers").join(format!("{release}_{version}"));
    if !tree.exists() {
        step(format!("fetching headers of {release}"));
        // kbuild's tools are named after the release since 6.12, after the series before.
        let own = format!("linux-kbuild-{}", release.strip_suffix("-amd64").unwrap_or(release));
        let kbuild =
            if apt.versions(&own)?.is_empty() { format!("linux-kbuild-{}", kernel.series()) } else { own };
        let mut debs = Vec::new();
        for package in [format!("linux-headers-{release}"), kbuild::common_headers(release), kbuild] {
            debs.push(apt.download(&package, version)?);
        }
        fs::create_dir_all(paths::cache().join("headers")).context("cannot make the headers cache")?;
        apt::unpack(&debs, &tree)?;
    }
    Ok(tree)
}

/// The driver's private headers and Makefiles: `drivers/gpu/drm/**/*.h` and `.../amd/**/Makefile` of Debian's
/// source package, below the root of the kernel's sources. Without the lists of registers, nine tenths of them
/// all, which kfdsim does not include.
pub(crate) fn driver_headers(apt: &Apt, kernel: &Kernel) -> Result<PathBuf> {
    let (series, version) = (kernel.series(), &kernel.version);
    let tree = paths::cache().join("source").join(version);
    // One without Makefiles was made by an older xtask.
    if !tree.join(kbuild::AMD).join("amdgpu/Makefile").exists() {
        let _ = fs::remove_dir_all(&tree);
        step(format!("fetching driver headers of {version}"));
        let deb = apt.download(&format!("linux-source-{series}"), version)?;
        let partial = tree.with_extension("partial");
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
        let archive = format!("./usr/src/linux-source-{series}.tar.xz");
        let patterns =
            ["*.h", "amd/*Makefile"].map(|end| format!("linux-source-{series}/drivers/gpu/drm/{end}"));
        // Two archives deep, and only a hundredth of it is needed: nothing else is written to disk.
        let script = "set -o pipefail; dpkg-deb --fsys-tarfile \"$1\" | tar -xO \"$2\" | \
                      tar -xJ -C \"$3\" --strip-components=1 --exclude='*/asic_reg' --wildcards \"$4\" \"$5\"";
        run::output(
            Command::new("bash")
                .args(["-c", script, "bash"])
                .arg(&deb)
                .arg(archive)
                .arg(&partial)
                .args(patterns),
        )?;
        fs::rename(&partial, &tree).with_context(|| format!("cannot place {}", tree.display()))?;
        fs::remove_file(&deb).with_context(|| format!("cannot delete {}", deb.display()))?;
    }
    if !tree.join(kbuild::AMD).join("amdgpu/amdgpu.h").exists() {
        bail!("linux-source-{series} {version} holds no amdgpu headers");
    }
    Ok(tree)
}

/// A fresh copy, so that kbuild's products are not among the sources.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            fs::copy(&path, to.join(name)).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

/// When the newest of the files in a folder, or the folder itself, was changed.
fn newest(dir: &Path) -> Option<SystemTime> {
    let files = fs::read_dir(dir).ok()?.filter_map(|entry| modified(&entry.ok()?.path()));
    files.chain(modified(dir)).max()
}
