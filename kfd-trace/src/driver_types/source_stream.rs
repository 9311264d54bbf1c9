//! A driver's source as one stream, so that another user gets a copy of what only this one may read. In: a folder.
//! Out: a tar archive; and from that the copy.
//!
//! Below the folder nothing is opened by more than one name at a time, and no link is followed: whoever owns the
//! folder can change it meanwhile.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use tar::{Archive, Builder, EntryType, Header};

/// A file of a driver has 20 MiB at most (lists of registers).
const LARGEST: u64 = 256 << 20;

/// Writes all files, folders and links below `folder`; special files are left out. `seen` is called with the bytes of
/// each file, and ends the stream by an error.
///
/// # Errors
/// One line that names the file.
pub(super) fn write(
    folder: &Path,
    out: impl Write,
    seen: &mut impl FnMut(u64) -> Result<(), String>,
) -> Result<(), String> {
    let open = File::open(folder).map(OwnedFd::from);
    let root = open.map_err(|error| cannot(folder, &error))?;
    let owner = fstat(&root).map_err(|error| cannot(folder, &error.into()))?.st_uid;
    let mut tar = Builder::new(out);
    let mut stream = Stream { tar: &mut tar, folder, owner, seen };
    stream.folder(&root, Path::new(""))?;
    tar.finish()
        .and_then(|()| tar.get_mut().flush())
        .map_err(|error| format!("cannot copy the source: {error}"))
}

fn cannot(path: &Path, error: &io::Error) -> String {
    format!("cannot copy {}: {error}", path.display())
}

struct Stream<'a, W: Write, S> {
    tar: &'a mut Builder<W>,
    folder: &'a Path,
    owner: u32,
    seen: &'a mut S,
}

impl<W: Write, S: FnMut(u64) -> Result<(), String>> Stream<'_, W, S> {
    fn folder(&mut self, folder: &OwnedFd, below: &Path) -> Result<(), String> {
        let here = self.folder.join(below);
        let entries = Dir::read_from(folder).map_err(|error| cannot(&here, &error.into()))?;
        for entry in entries {
            let entry = entry.map_err(|error| cannot(&here, &error.into()))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let name = Path::new(OsStr::from_bytes(name.to_bytes()));
            let path = below.join(name);
            self.entry(folder, name, &path).map_err(|error| cannot(&self.folder.join(&path), &error))??;
        }
        Ok(())
    }

    fn entry(&mut self, folder: &OwnedFd, name: &Path, path: &Path) -> io::Result<Result<(), String>> {
        let about = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory => {
                let open = openat(folder, name, FLAGS | OFlags::DIRECTORY, Mode::empty())?;
                self.tar.append_data(
                    &mut header(&about, EntryType::Directory, 0o755, 0),
                    path,
                    io::empty(),
                )?;
                return Ok(self.folder(&open, path));
            }
            FileType::Symlink => {
                let link = readlinkat(folder, name, Vec::new())?;
                let link = Path::new(OsStr::from_bytes(link.as_bytes())).to_owned();
                self.tar.append_link(&mut header(&about, EntryType::Symlink, 0o777, 0), path, link)?;
            }
            FileType::RegularFile => {
                let file = File::from(openat(folder, name, FLAGS | OFlags::NONBLOCK, Mode::empty())?);
                let about = fstat(&file)?;
                if !self.may_copy(&about) {
                    return Ok(Err(format!(
                        "{} belongs to another user than {} does, and not everybody may read it",
                        self.folder.join(path).display(),
                        self.folder.display()
                    )));
                }
                let mut bytes = Vec::new();
                file.take(LARGEST + 1).read_to_end(&mut bytes)?;
                let size = bytes.len() as u64;
                if size > LARGEST {
                    return Ok(Err(format!(
                        "{} has more than {} MiB: it is no source",
                        self.folder.join(path).display(),
                        LARGEST >> 20
                    )));
                }
                // A build step edits sources that a package may have installed read-only.
                let mode = about.st_mode & 0o755 | 0o600;
                self.tar.append_data(&mut header(&about, EntryType::Regular, mode, size), path, &*bytes)?;
                return Ok((self.seen)(size));
            }
            _ => {}
        }
        Ok(Ok(()))
    }

    /// Whether whoever owns the source could read this file without us: its folder may have a hard link to any file,
    /// and scripts of the source get what is copied.
    fn may_copy(&self, about: &Stat) -> bool {
        FileType::from_raw_mode(about.st_mode).is_file()
            && (about.st_uid == self.owner || self.owner == 0 || about.st_mode & 0o004 != 0)
    }
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn header(about: &Stat, kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    // make compares them.
    header.set_mtime(about.st_mtime.try_into().unwrap_or(0));
    header
}

/// Reads an archive into a new folder.
///
/// # Errors
/// One line: it is cut off, or nothing can be written there.
pub(super) fn read(from: impl Read, to: &Path) -> Result<(), String> {
    let cannot = |error: io::Error| format!("cannot copy the source to {}: {error}", to.display());
    fs::create_dir_all(to).map_err(cannot)?;
    let mut archive = Archive::new(from);
    archive.set_preserve_mtime(true);
    archive.unpack(to).map_err(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    fn copy(from: &Path, to: &Path) -> Result<u64, String> {
        let (mut bytes, mut stream) = (0, Vec::new());
        write(from, &mut stream, &mut |more| {
            bytes += more;
            Ok(())
        })?;
        read(&*stream, to).map(|()| bytes)
    }

    #[test]
    fn a_tree_is_copied_with_its_links_and_can_be_written() {
        let root = tempfile::tempdir().unwrap();
        let from = root.path().join("from");
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/file"), "12345").unwrap();
        fs::set_permissions(from.join("a/b/file"), fs::Permissions::from_mode(0o544)).unwrap();
        symlink("a/b/file", from.join("link")).unwrap();
        let to = root.path().join("to");
        assert_eq!(copy(&from, &to), Ok(5));
        assert_eq!(fs::read_to_string(to.join("link")).unwrap(), "12345");
        assert_eq!(fs::metadata(to.join("link")).unwrap().permissions().mode() & 0o777, 0o744);
        fs::write(to.join("a/b/file"), "6").unwrap();
        assert_eq!(fs::read_to_string(from.join("a/b/file")).unwrap(), "12345", "the original is as before");
        let ended = write(&from, io::sink(), &mut |_| Err("time is over".to_owned()));
        assert_eq!(ended, Err("time is over".to_owned()));
        assert!(copy(&from.join("none"), &root.path().join("x")).is_err());
        let mut stream = Vec::new();
        write(&from, &mut stream, &mut |_| Ok(())).unwrap();
        assert!(read(&stream[..700], &root.path().join("cut")).is_err());
    }

    #[test]
    fn a_file_that_the_sources_owner_may_not_read_is_not_copied() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let from = root.path().join("from");
        fs::create_dir(&from).unwrap();
        let secret = root.path().join("secret");
        fs::write(&secret, "root's").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(&secret, from.join("linked.c")).unwrap();
        assert_eq!(copy(&from, &root.path().join("own")), Ok(6), "root's own source");
        chown(&from, Some(1000), None).unwrap();
        let why = copy(&from, &root.path().join("others")).unwrap_err();
        assert!(why.contains("linked.c belongs to another user"), "{why}");
    }
}
