//! Builds the patched QEMU. In: Debian's source package of the unpacked QEMU's version, and the patch. Out: a
//! folder in the cache with the program, and links to the libraries and the firmware of Debian's packages.
//!
//! Everything but the download runs in a root of Debian 13, whose libraries the program is started with.

use super::{PACKAGE, PROGRAM, builds, debian, recipe, version};
use crate::apt::Apt;
use crate::lock;
use crate::paths;
use crate::run::{self, note, size, step};
use crate::vm::root::Root;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

pub(super) const PATCH: &str = include_str!("../../../qemu/icount-prologue.patch");

/// Words for QEMU's configure. The test bed needs no more than the emulation and its devices, which are on by
/// default: virtio-blk, ivshmem, serial ports, debugcon, and migration.
pub(super) const CONFIGURE: [&str; 10] = [
    "--cc=gcc",
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--enable-system",
    "--enable-tcg",
    "--enable-kvm",
    "--disable-debug-info",
    "--disable-docs",
    "--disable-download",
    "--disable-install-blobs",
];

/// Debian packages that unpack, configure and build it. With pip, configure does not install one of its own.
const PACKAGES: [&str; 19] = [
    "bash",
    "coreutils",
    "dash",
    "diffutils",
    "dpkg-dev",
    "findutils",
    "gcc",
    "grep",
    "libc6-dev",
    "libglib2.0-dev",
    "mawk",
    "meson",
    "ninja-build",
    "patch",
    "pkgconf",
    "python3-pip",
    "python3-venv",
    "sed",
    "zlib1g-dev",
];

/// Runs in the root: arguments for configure follow.
const BUILD: &str = r#"set -e
cd /work
rm -rf source
dpkg-source --no-check --extract ./*.dsc source
cd source
patch --strip=1 --fuzz=0 < ../icount-prologue.patch
mkdir build
cd build
../configure "$@"
ninja qemu-system-x86_64
strip -o /work/qemu qemu-system-x86_64
"#;

/// Builds it unless the cache has it.
pub(crate) fn build() -> Result<()> {
    let version = buildable()?;
    let recipe = recipe(&version);
    let place = builds().join(recipe.name());
    if place.exists() {
        step(format!("QEMU {version} with icount-prologue.patch: present"));
        return Ok(());
    }
    let dir = paths::cache().join("qemu-build");
    let held = lock::hold(&dir)?;
    // Another one may have built it meanwhile.
    if place.exists() {
        return Ok(());
    }
    let cache = lock::hold(&paths::cache())?;
    let root = Root::at(&dir.join("root"), &PACKAGES)?;
    let work = dir.join("work");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("cannot clear {}", work.display()))?;
    }
    fs::create_dir(&work).with_context(|| format!("cannot make {}", work.display()))?;
    step(format!("fetching the source of QEMU {version}"));
    Apt::trixie_sources()?.download_source("qemu", &version, &work)?;
    drop(cache);
    fs::write(work.join("icount-prologue.patch"), PATCH).context("cannot write the patch")?;
    step("building QEMU (six minutes of CPU time)");
    let mut command = root.enter(&[(&work, "/work")]);
    command.args(["bash", "-c", BUILD, "build"]).args(recipe.configure);
    command.arg(format!("--with-pkgversion=Debian {version} with icount-prologue.patch"));
    // Flags and variables of the caller must not reach the build.
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/tmp").env("LC_ALL", "C.UTF-8");
    run::logged(&mut command, &dir.join("build.log"))?;
    keep(&work.join("qemu"), &place)?;
    // What was built for earlier recipes is used no more; root and source are not needed again.
    for old in fs::read_dir(builds()).context("the builds cannot be listed")? {
        let old = old?.path();
        if old != place {
            fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    for folder in ["root", "work"] {
        fs::remove_dir_all(dir.join(folder)).with_context(|| format!("cannot clear {}", dir.display()))?;
    }
    drop(held);
    Ok(())
}

/// The version of Debian's unpacked QEMU, which is fetched anew where the archive no longer has its source.
fn buildable() -> Result<String> {
    let tree = debian()?;
    let old = version(&tree)?;
    let has_source = |version: &str| {
        let _cache = lock::hold(&paths::cache())?;
        Apt::trixie_sources()?.has_source("qemu", version)
    };
    // What was built from it needs it no more.
    if builds().join(recipe(&old).name()).exists() || has_source(&old)? {
        return Ok(old);
    }
    note(format!("the archive has no source of QEMU {old}: fetching Debian's QEMU anew"));
    let cache = lock::hold(&paths::cache())?;
    Apt::trixie()?.refresh()?;
    fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    drop(cache);
    let new = version(&debian()?)?;
    if !has_source(&new)? {
        bail!("the archive has QEMU {new}, but not its source");
    }
    Ok(new)
}

/// Places the program, all or nothing, in a folder beside those of other recipes. Links are relative, since a
/// target folder may be moved.
fn keep(program: &Path, place: &Path) -> Result<()> {
    let built = fs::metadata(program).context("the build made no program")?;
    let partial = place.with_file_name("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot clear {}", partial.display()))?;
    }
    let to = partial.join(PROGRAM);
    let bin = to.parent().context("the program has no folder")?;
    fs::create_dir_all(bin).with_context(|| format!("cannot make {}", bin.display()))?;
    fs::rename(program, &to).with_context(|| format!("cannot place {}", to.display()))?;
    for folder in ["lib", "lib64", "share"] {
        let link = partial.join("usr").join(folder);
        let target = Path::new("../../..").join(PACKAGE).join("usr").join(folder);
        symlink(target, &link).with_context(|| format!("cannot make {}", link.display()))?;
    }
    fs::rename(&partial, place).with_context(|| format!("cannot place {}", place.display()))?;
    note(format!("{}: {}", place.display(), size(built.len())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_build_is_started_with_loader_libraries_and_firmware_of_debian() {
        let cache = tempfile::tempdir().expect("a folder");
        let debian = cache.path().join(PACKAGE).join("usr");
        for folder in ["lib64", "lib/x86_64-linux-gnu", "lib/ipxe/qemu", "share/qemu", "share/seabios"] {
            fs::create_dir_all(debian.join(folder)).expect("a folder");
        }
        fs::write(debian.join("lib64/ld-linux-x86-64.so.2"), "").expect("a loader");
        let program = cache.path().join("qemu");
        fs::write(&program, "built").expect("a program");
        let place = cache.path().join("qemu-patched/1.0_0");
        keep(&program, &place).expect("kept");

        assert_eq!(fs::read_to_string(place.join(PROGRAM)).ok().as_deref(), Some("built"));
        let command = super::super::command(&place);
        let words = command.get_args().map(Path::new).filter(|word| word.is_absolute());
        let paths: Vec<&Path> = words.chain([Path::new(command.get_program())]).collect();
        assert_eq!(paths.len(), 6, "loader, libraries, program and three folders of firmware: {paths:?}");
        for path in paths {
            assert!(path.starts_with(&place) && path.exists(), "{}", path.display());
        }
        let [bios, rom] = ["share/seabios/bios.bin", "lib/ipxe/qemu/one.rom"];
        for file in [bios, rom] {
            fs::write(debian.join(file), file).expect("firmware");
        }
        let files = super::super::files(&place).expect("folders");
        let usr = place.join("usr");
        assert_eq!(files, [place.join(PROGRAM), usr.join(bios), usr.join(rom)]);
    }
}
