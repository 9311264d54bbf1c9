//! The guest's Debian programs: lsof, fuser, strace, rocminfo and busybox with the libraries they
//! need, and nothing else of their packages; and bpftrace, for the boot that compares with it. Gives cached
//! cpio pieces.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{Dyn as _, FileHeader as _, SectionHeader as _};

use crate::apt::{self, Apt};
use crate::initramfs::Archive;
use crate::paths;
use crate::run::{self, note, size, step};

const PACKAGES: [&str; 5] = ["busybox-static", "lsof", "psmisc", "rocminfo", "strace"];

/// Where the packages put each program, and where the guest finds it.
const PROGRAMS: [(&str, &str); 6] = [
    ("bin/busybox", "bin/busybox"),
    ("bin/fuser", "bin/fuser"),
    ("usr/bin/lsof", "bin/lsof"),
    ("usr/bin/pstree", "bin/pstree"),
    ("usr/bin/rocminfo", "bin/rocminfo"),
    ("usr/bin/strace", "bin/strace"),
];

/// Eight times the size of all others: in no boot but the one that measures.
const BPFTRACE: &str = "bpftrace";

const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
const LIBRARY_DIRS: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// libdrm_amdgpu's marketing names: read by the ROCm thunk.
const DATA: &str = "usr/share/libdrm/amdgpu.ids";

/// Name services only from files: lsof and fuser ask for user names.
const ETC: [(&str, &str); 4] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("etc/group", "root:x:0:\nvideo:x:44:\nrender:x:105:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/hosts", "127.0.0.1 localhost\n"),
];

/// The cpio piece, made at first use.
pub(crate) fn piece(apt: &Apt) -> Result<PathBuf> {
    let piece = paths::cache().join("userland.cpio");
    if piece.exists() {
        return Ok(piece);
    }
    let tree = paths::cache().join("userland");
    if !tree.exists() {
        step(format!("fetching the guest's programs: {}", PACKAGES.join(", ")));
        let debs = apt.download_closure(&PACKAGES)?;
        apt::unpack(&debs, &tree)?;
    }
    let mut archive = Archive::new();
    for dir in ["bin", "etc", "lib", "lib64", "root", "usr", "usr/share", "usr/share/libdrm"] {
        archive.dir(dir);
    }
    // Programs and scripts name their interpreters by either path.
    for (link, to) in [("sbin", "bin"), ("usr/bin", "../bin"), ("usr/sbin", "../bin"), ("usr/lib", "../lib")]
    {
        archive.symlink(link, to);
    }
    let mut libraries = BTreeSet::new();
    for (from, to) in PROGRAMS {
        let bytes = read(&tree.join(from))?;
        collect_libraries(&tree, &bytes, &mut libraries).with_context(|| format!("libraries of {from}"))?;
        archive.file(to, 0o755, bytes);
    }
    archive.file(LOADER, 0o755, read(&tree.join(LOADER))?);
    for name in &libraries {
        archive.file(&format!("lib/{name}"), 0o755, read(&library(&tree, name)?)?);
    }
    archive.file(DATA, 0o644, read(&tree.join(DATA))?);
    for (path, text) in ETC {
        archive.file(path, 0o644, text.as_bytes().to_vec());
    }
    for applet in applets(&tree.join("bin/busybox"))? {
        if !PROGRAMS.iter().any(|(_, to)| to.strip_prefix("bin/") == Some(&applet)) {
            archive.symlink(&format!("bin/{applet}"), "busybox");
        }
    }
    finish(archive, libraries.len(), piece)
}

/// The cpio piece that adds bpftrace, made at first use. It lies over [`piece`], which has the folders and the loader.
pub(crate) fn bpftrace(apt: &Apt) -> Result<PathBuf> {
    let piece = paths::cache().join("bpftrace.cpio");
    if piece.exists() {
        return Ok(piece);
    }
    let tree = paths::cache().join("bpftrace");
    if !tree.exists() {
        step("fetching bpftrace");
        let debs = apt.download_closure(&[BPFTRACE])?;
        apt::unpack(&debs, &tree)?;
    }
    let mut archive = Archive::new();
    let mut libraries = BTreeSet::new();
    let program = read(&tree.join("usr/bin").join(BPFTRACE))?;
    collect_libraries(&tree, &program, &mut libraries).context("libraries of bpftrace")?;
    archive.file("bin/bpftrace", 0o755, program);
    for name in &libraries {
        archive.file(&format!("lib/{name}"), 0o755, read(&library(&tree, name)?)?);
    }
    finish(archive, libraries.len(), piece)
}

fn finish(archive: Archive, libraries: usize, piece: PathBuf) -> Result<PathBuf> {
    let bytes = archive.finish()?;
    note(format!("{}: {libraries} libraries, {}", piece.display(), size(bytes.len() as u64)));
    fs::write(&piece, bytes).with_context(|| format!("cannot write {}", piece.display()))?;
    Ok(piece)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let text = run::output(Command::new(busybox).arg("--list"))?;
    Ok(text.lines().map(str::to_owned).filter(|name| name != "busybox").collect())
}

fn library(tree: &Path, name: &str) -> Result<PathBuf> {
    let found = LIBRARY_DIRS.iter().map(|dir| tree.join(dir).join(name)).find(|path| path.exists());
    found.with_context(|| format!("no package of the guest's holds {name}"))
}

/// Adds the libraries an ELF file needs, and theirs. The loader is not among them.
fn collect_libraries(tree: &Path, elf: &[u8], found: &mut BTreeSet<String>) -> Result<()> {
    for name in needed(elf)? {
        if LOADER.ends_with(&name) || !found.insert(name.clone()) {
            continue;
        }
        collect_libraries(tree, &read(&library(tree, &name)?)?, found)?;
    }
    Ok(())
}

/// The DT_NEEDED names of an ELF file; none for a static one.
fn needed(elf: &[u8]) -> Result<Vec<String>> {
    let header = FileHeader64::<LittleEndian>::parse(elf)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, elf)?;
    let mut names = Vec::new();
    for section in sections.iter() {
        let Some((dynamic, link)) = section.dynamic(endian, elf)? else { continue };
        let strings = sections.strings(endian, elf, link)?;
        for entry in dynamic {
            if entry.tag(endian) == object::elf::DT_NEEDED {
                names.push(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned());
            }
        }
    }
    Ok(names)
}
