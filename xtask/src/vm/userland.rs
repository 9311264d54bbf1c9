//! The guest's Debian programs: lsof, fuser, strace, rocminfo and busybox with the libraries they need, and
//! nothing else of their packages; rocm-smi and tmux for tests, and bpftrace for the boot that compares with it. Out:
//! cached cpio pieces.

use crate::apt::{self, Apt};
use crate::paths;
use crate::run::{self, note, size, step};
use crate::stamp::Stamp;
use crate::vm::initramfs::Archive;
use anyhow::{Context as _, Result};
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{Dyn as _, FileHeader as _, SectionHeader as _};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 5] = ["busybox-static", "lsof", "psmisc", "rocminfo", "strace"];

/// Path of each program in its package, and in the guest.
const PROGRAMS: [(&str, &str); 6] = [
    ("bin/busybox", "bin/busybox"),
    ("bin/fuser", "bin/fuser"),
    ("usr/bin/lsof", "bin/lsof"),
    ("usr/bin/pstree", "bin/pstree"),
    ("usr/bin/rocminfo", "bin/rocminfo"),
    ("usr/bin/strace", "bin/strace"),
];

/// An addition to [`piece`], which has the folders and the loader, in some guests.
#[derive(Debug)]
pub(crate) struct More {
    name: &'static str,
    packages: &'static [&'static str],
    /// As [`PROGRAMS`].
    programs: &'static [(&'static str, &'static str)],
    /// Folders that are copied into the guest whole, and their paths there.
    folders: &'static [(&'static str, &'static str)],
    links: &'static [(&'static str, &'static str)],
    /// Libraries that are loaded by name: they are in no file's list of needed libraries.
    loaded: &'static [&'static str],
}

/// Thirteen times the size of [`piece`]: in no boot but the one that measures.
pub(crate) const BPFTRACE: More = More {
    name: "bpftrace",
    packages: &["bpftrace"],
    programs: &[("usr/bin/bpftrace", "bin/bpftrace")],
    folders: &[],
    links: &[],
    loaded: &[],
};

/// In no boot that measures: the cost of an allocation depends on the memory in use. rocm-smi is a program in
/// Python, which runs `sh -c "ps ..."` for names, with options that busybox does not support, whose shell
/// prefers its own `ps` to any other. tmux, on whose screen `top` is shown, needs a locale of UTF-8.
pub(crate) const OF_TESTS: More = More {
    name: "of-tests",
    packages: &["dash", "libc-bin", "procps", "rocm-smi", "tmux"],
    programs: &[
        ("bin/dash", "bin/sh"),
        ("bin/ps", "bin/ps"),
        ("usr/bin/python3.11", "bin/python3"),
        ("usr/bin/tmux", "bin/tmux"),
    ],
    folders: &[
        ("usr/lib/locale/C.utf8", "lib/locale/C.utf8"),
        ("usr/lib/python3.11", "lib/python3.11"),
        ("usr/libexec/rocm_smi", "libexec/rocm_smi"),
    ],
    links: &[("usr/libexec", "../libexec"), ("bin/rocm-smi", "../usr/libexec/rocm_smi/rocm_smi.py")],
    loaded: &["librocm_smi64.so.1"],
};

const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
const LIBRARY_DIRS: [&str; 3] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib"];

/// libdrm_amdgpu's marketing names: read by the ROCm thunk.
const DATA: &str = "usr/share/libdrm/amdgpu.ids";

/// Name services only from files: lsof and fuser look up user names.
const ETC: [(&str, &str); 4] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("etc/group", "root:x:0:\nvideo:x:44:\nrender:x:105:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/hosts", "127.0.0.1 localhost\n"),
];

/// The cpio piece, made at first use.
pub(crate) fn piece(apt: &Apt) -> Result<PathBuf> {
    let piece = paths::cache().join("userland.cpio");
    let key = format!("{PACKAGES:?} {PROGRAMS:?} {LIBRARY_DIRS:?} {LOADER} {DATA} {ETC:?}");
    let stamp = Stamp::beside(&piece, key);
    if piece.exists() && stamp.holds() {
        return Ok(piece);
    }
    let tree = tree(apt, "userland", &PACKAGES)?;
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
    add_programs(&tree, &PROGRAMS, &mut archive, &mut libraries)?;
    archive.file(LOADER, 0o755, read(&tree.join(LOADER))?);
    archive.file(DATA, 0o644, read(&tree.join(DATA))?);
    for (path, text) in ETC {
        archive.file(path, 0o644, text.as_bytes().to_vec());
    }
    for applet in applets(&tree.join("bin/busybox"))? {
        if !PROGRAMS.iter().any(|(_, to)| to.strip_prefix("bin/") == Some(&applet)) {
            archive.symlink(&format!("bin/{applet}"), "busybox");
        }
    }
    finish(archive, &tree, &libraries, piece, &stamp)
}

/// A cpio piece on top of [`piece`], made at first use.
pub(crate) fn more(apt: &Apt, more: &More) -> Result<PathBuf> {
    let piece = paths::cache().join(format!("{}.cpio", more.name));
    let key = format!("{more:?}");
    let stamp = Stamp::beside(&piece, key);
    if piece.exists() && stamp.holds() {
        return Ok(piece);
    }
    let tree = tree(apt, more.name, more.packages)?;
    let mut archive = Archive::new();
    let mut libraries = BTreeSet::new();
    for name in more.loaded {
        libraries.insert((*name).to_owned());
        collect_libraries(&tree, &read(&library(&tree, name)?)?, &mut libraries)?;
    }
    for (from, to) in more.folders {
        let parent = to.rsplit_once('/').map_or(*to, |(parent, _)| parent);
        archive.dir(parent);
        add_folder(&tree, &tree.join(from), to, &mut archive, &mut libraries)?;
    }
    add_programs(&tree, more.programs, &mut archive, &mut libraries)?;
    for (link, to) in more.links {
        archive.symlink(link, to);
    }
    finish(archive, &tree, &libraries, piece, &stamp)
}

/// A folder with all in it, and the names of the libraries that its extensions of Python need.
fn add_folder(
    tree: &Path,
    from: &Path,
    to: &str,
    archive: &mut Archive,
    libraries: &mut BTreeSet<String>,
) -> Result<()> {
    archive.dir(to);
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a name that is no text")?;
        let to = format!("{to}/{name}");
        // The guest resolves the link, not this machine.
        if path.is_symlink() {
            let target = fs::read_link(&path).with_context(|| format!("cannot read {}", path.display()))?;
            archive.symlink(&to, &target.to_string_lossy());
            continue;
        }
        if path.is_dir() {
            add_folder(tree, &path, &to, archive, libraries)?;
            continue;
        }
        let bytes = read(&path)?;
        if path.extension().is_some_and(|extension| extension == "so") {
            collect_libraries(tree, &bytes, libraries).with_context(|| format!("libraries of {name}"))?;
        }
        archive.file(&to, 0o755, bytes);
    }
    Ok(())
}

/// Packages with all their dependencies, unpacked.
fn tree(apt: &Apt, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let tree = paths::cache().join(name);
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    step(format!("fetching the guest's programs: {}", packages.join(", ")));
    apt::unpack(&apt.download_closure(packages)?, &tree)?;
    Ok(tree)
}

/// Adds the libraries, and writes the piece.
fn finish(
    mut archive: Archive,
    tree: &Path,
    libraries: &BTreeSet<String>,
    piece: PathBuf,
    stamp: &Stamp,
) -> Result<PathBuf> {
    for name in libraries {
        archive.file(&format!("lib/{name}"), 0o755, read(&library(tree, name)?)?);
    }
    let bytes = archive.finish()?;
    note(format!("{}: {} libraries, {}", piece.display(), libraries.len(), size(bytes.len() as u64)));
    stamp.clear()?;
    fs::write(&piece, bytes).with_context(|| format!("cannot write {}", piece.display()))?;
    stamp.set()?;
    Ok(piece)
}

/// Adds programs, and collects the names of the libraries that they need.
fn add_programs(
    tree: &Path,
    programs: &[(&str, &str)],
    archive: &mut Archive,
    libraries: &mut BTreeSet<String>,
) -> Result<()> {
    for (from, to) in programs {
        let bytes = read(&tree.join(from))?;
        collect_libraries(tree, &bytes, libraries).with_context(|| format!("libraries of {from}"))?;
        archive.file(to, 0o755, bytes);
    }
    Ok(())
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
