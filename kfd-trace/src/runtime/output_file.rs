//! A file or folder that the user named for output. In: its path. Out: it, open, and not where somebody else's link leads.
//!
//! In a folder of another user a link may lead to any file that this process may write, and its owner can put it there at any
//! time. So the path is not checked, but walked: each folder is opened in the one before it, without following links, and a
//! link is followed only if root or this user made it.

use rustix::fs::{
    FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, open as open_path, openat, readlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path};

/// Links in one path, as for the kernel (include/linux/namei.h, `MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Opens a file for writing, and makes it if there is none. What is in it stays. `flags` are further ones of open(2).
///
/// # Errors
/// Those of open(2); one line for a link of somebody else.
pub fn open(path: &Path, mode: u32, flags: OFlags) -> io::Result<File> {
    walk(path, OFlags::WRONLY | OFlags::CREATE | flags, Mode::from_raw_mode(mode))
}

/// Opens a folder.
///
/// # Errors
/// Those of open(2); one line for a link of somebody else.
pub fn open_folder(path: &Path) -> io::Result<File> {
    walk(path, FOLDER, Mode::empty())
}

fn walk(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let mut folder = start(path)?;
    // Reversed: the last one is the next.
    let mut left = parts(path);
    let mut links = 0;
    while let Some(name) = left.pop() {
        let (flags, mode) =
            if left.is_empty() { (flags, mode) } else { (OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) };
        let opened = openat(&folder, &name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode);
        let opened = match opened {
            // A link where a folder or a file should be.
            Err(error @ (Errno::LOOP | Errno::NOTDIR)) => {
                let (link, about) = link(&folder, &name).ok_or(error)?;
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                check(&name, &about)?;
                // It leads to what is open (/dev/stdout), and has no path. Only the kernel makes links there.
                if fstatfs(&link)?.f_type == PROC_SUPER_MAGIC {
                    openat(&folder, &name, flags | OFlags::CLOEXEC, mode)?
                } else {
                    let target = OsString::from_vec(readlinkat(&link, "", Vec::new())?.into_bytes());
                    let target = Path::new(&target);
                    if target.is_absolute() {
                        folder = start(target)?;
                    }
                    left.extend(parts(target));
                    continue;
                }
            }
            opened => opened?,
        };
        if left.is_empty() {
            return Ok(File::from(opened));
        }
        folder = opened;
    }
    // `/`, or a link to it.
    Ok(File::from(openat(&folder, ".", flags | OFlags::CLOEXEC, mode)?))
}

fn start(path: &Path) -> io::Result<OwnedFd> {
    let start = if path.is_absolute() { "/" } else { "." };
    Ok(open_path(start, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Names in a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|part| *part != Component::RootDir);
    names.map(|part| part.as_os_str().to_owned()).collect()
}

/// The link of this name, if it is one.
fn link(folder: impl AsFd, name: &OsStr) -> Option<(OwnedFd, Stat)> {
    let link = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let about = fstat(&link).ok()?;
    (FileType::from_raw_mode(about.st_mode) == FileType::Symlink).then_some((link, about))
}

/// Whether a link is root's or this user's.
fn check(name: &OsStr, link: &Stat) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    if [0, user].contains(&link.st_uid) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{:?} in it is a link of user {}, which may lead anywhere; name what it leads to",
        String::from_utf8_lossy(name.as_bytes()),
        link.st_uid
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use std::fs;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{MetadataExt as _, lchown, symlink};
    use std::path::PathBuf;

    fn write(path: &Path) -> Result<File, String> {
        open(path, 0o600, OFlags::empty()).map_err(|error| error.to_string())
    }

    /// Whether both are the same file.
    fn same(file: &File, path: &Path) -> bool {
        let [a, b] = [file.metadata().unwrap(), fs::metadata(path).unwrap()];
        (a.dev(), a.ino()) == (b.dev(), b.ino())
    }

    /// A folder with `real/file`, and links `last` to the file, `folder` and `up` to the folder, `two` to `folder`.
    fn made() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("real");
        fs::create_dir(&real).unwrap();
        fs::write(real.join("file"), "before").unwrap();
        let links = [
            ("last", real.join("file")),
            ("folder", real.clone()),
            ("up", "real/../real/".into()),
            ("two", "folder".into()),
        ];
        for (name, to) in links {
            symlink(to, root.path().join(name)).unwrap();
        }
        let file = real.join("file");
        (root, file)
    }

    #[test]
    fn own_links_are_followed_wherever_they_are() {
        let (root, file) = made();
        for path in ["real/file", "last", "folder/file", "up/file", "two/../real/./file", "two/file"] {
            assert!(same(&write(&root.path().join(path)).unwrap(), &file), "{path}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        let new = root.path().join("two/new");
        assert!(same(&write(&new).unwrap(), &new));
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o600);
        assert!(same(&open_folder(&root.path().join("two")).unwrap(), &root.path().join("real")));
        assert!(same(&open_folder(Path::new("/")).unwrap(), Path::new("/")));
        assert!(same(&open_folder(Path::new(".")).unwrap(), Path::new(".")));
    }

    #[test]
    fn what_open_refuses_is_refused() {
        let (root, file) = made();
        symlink("round", root.path().join("round")).unwrap();
        for (path, why) in [
            (root.path().join("none/file"), Errno::NOENT),
            (file.join("file"), Errno::NOTDIR),
            (root.path().join("real"), Errno::ISDIR),
            (root.path().join("round"), Errno::LOOP),
            (root.path().join("round/file"), Errno::LOOP),
            (PathBuf::from("/"), Errno::ISDIR),
        ] {
            assert_eq!(write(&path).unwrap_err(), io::Error::from(why).to_string(), "{}", path.display());
        }
    }

    #[test]
    fn an_open_file_can_be_named_by_its_descriptor() {
        let file = tempfile::tempfile().unwrap();
        for folder in ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"] {
            let opened = write(&Path::new(folder).join(file.as_raw_fd().to_string())).unwrap();
            assert_eq!(opened.metadata().unwrap().ino(), file.metadata().unwrap().ino(), "{folder}");
        }
    }

    /// The other user owns the folder as well: what is no link there is opened.
    #[test]
    fn a_link_of_somebody_else_is_followed_nowhere_in_a_path() {
        if !geteuid().is_root() {
            return;
        }
        for (path, theirs) in [
            ("last", "last"),
            ("folder/file", "folder"),
            ("folder/new", "folder"),
            ("two/file", "folder"),
            ("up/file", "up"),
            ("real/../folder/file", "folder"),
        ] {
            let (root, file) = made();
            lchown(root.path().join(theirs), Some(1000), None).unwrap();
            lchown(root.path(), Some(1000), None).unwrap();
            let why = write(&root.path().join(path)).unwrap_err();
            assert!(
                why.starts_with(&format!("\"{theirs}\" in it is a link of user 1000, ")),
                "{path}: {why}"
            );
            assert!(!file.with_file_name("new").exists());
            assert!(same(&write(&file).unwrap(), &file));
        }
        let (root, _) = made();
        lchown(root.path().join("folder"), Some(1000), None).unwrap();
        assert!(open_folder(&root.path().join("folder")).is_err());
    }
}
