//! The files of a folder: found, created and removed.

use super::plan::{Found, surplus};
use super::{FolderLimits, name};
use jiff::Timestamp;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::SystemTime;

/// A daemon's files in a folder, in the order of their numbers. Links and other files are none.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn found(folder: &Path) -> io::Result<Vec<Found>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(name::number) else { continue };
        let about = match entry.metadata() {
            Ok(about) if about.is_file() => about,
            Ok(_) => continue,
            // Removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let changed = about.modified().unwrap_or(SystemTime::now());
        all.push(Found { path: entry.path(), number, bytes: about.len(), changed });
    }
    all.sort_unstable_by_key(|file| file.number);
    Ok(all)
}

/// The folder with its older files, while one daemon records into it.
#[derive(Debug)]
pub(super) struct Files {
    limits: FolderLimits,
    /// Locked.
    folder: File,
    pub(super) older: Vec<Found>,
}

impl Files {
    /// Makes the folder if there is none.
    ///
    /// # Errors
    /// If it cannot be made or read, or another daemon has it.
    pub(super) fn open(limits: &FolderLimits) -> io::Result<Self> {
        // What is recorded shows what all users do.
        DirBuilder::new().recursive(true).mode(0o700).create(&limits.folder)?;
        let folder = File::open(&limits.folder)?;
        match folder.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    ErrorKind::ResourceBusy,
                    "another daemon records there; choose another folder",
                ));
            }
            // Not every file system locks folders.
            Ok(()) | Err(fs::TryLockError::Error(_)) => {}
        }
        let older = found(&limits.folder)?;
        Ok(Files { limits: limits.clone(), folder, older })
    }

    /// Whether files can be created there.
    ///
    /// # Errors
    /// If the file system is read-only, or the folder is another user's. A full one shows it only when it is written to.
    pub(super) fn check(&self) -> io::Result<()> {
        tempfile::tempfile_in(&self.limits.folder).map(drop)
    }

    /// A new file, which is its owner's alone.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn create(&mut self) -> io::Result<(Found, File)> {
        self.older = found(&self.limits.folder)?;
        let number = self.older.last().map_or(0, |last| last.number).saturating_add(1);
        let path = self.limits.folder.join(name::of(number, Timestamp::now()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        // As `record` marks what is being written.
        let _ = file.try_lock();
        // Its name, as its blocks are later.
        self.folder.sync_all()?;
        Ok((Found { path, number, bytes: 0, changed: SystemTime::now() }, file))
    }

    /// Removes older files until there is room for `bytes`.
    ///
    /// # Errors
    /// If one cannot be removed, or there is no room without them either.
    pub(super) fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let Some(room) = self.limits.max_bytes.checked_sub(bytes) else {
            return Err(io::Error::other("--record.max-size is less than the state that a file begins with"));
        };
        let surplus = surplus(&self.older, room, self.limits.max_age, SystemTime::now());
        for file in self.older.drain(..surplus) {
            match fs::remove_file(&file.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Bytes of the older files.
    pub(super) fn bytes(&self) -> u64 {
        self.older.iter().map(|file| file.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::Duration;

    fn limits(folder: &Path) -> FolderLimits {
        let folder = folder.join("new/folder");
        FolderLimits { folder, max_bytes: 100, max_age: Duration::from_secs(60), file_bytes: 50 }
    }

    #[test]
    fn a_folder_is_one_daemons_and_its_files_are_the_owners() {
        let root = tempfile::tempdir().expect("a folder");
        let limits = limits(root.path());
        let mut files = Files::open(&limits).expect("a new folder");
        let (first, _held) = files.create().expect("a file");
        let mode = |path: &Path| fs::metadata(path).expect("it").permissions().mode() & 0o777;
        assert_eq!((mode(&limits.folder), mode(&first.path)), (0o700, 0o600));
        let why = Files::open(&limits).expect_err("it is taken").to_string();
        assert!(why.contains("another daemon"), "{why}");
        drop(files);
        let mut files = Files::open(&limits).expect("after a restart");
        assert_eq!((files.older.len(), files.create().expect("a file").0.number), (1, 2));
    }

    #[test]
    fn a_folder_in_which_no_file_can_be_created_is_found_at_once() {
        let root = tempfile::tempdir().expect("a folder");
        let own = limits(root.path());
        Files::open(&own).expect("a folder").check().expect("a file can be created");
        assert_eq!(fs::read_dir(&own.folder).expect("it").count(), 0, "and is gone");
        // Not even root can.
        let sysfs = FolderLimits { folder: "/sys/kernel".into(), ..own };
        Files::open(&sysfs).expect("it is there").check().expect_err("no file");
    }

    #[test]
    fn what_is_not_a_daemons_file_stays_and_takes_no_room() {
        let root = tempfile::tempdir().expect("a folder");
        let limits = limits(root.path());
        let mut files = Files::open(&limits).expect("a folder");
        let own = |number| limits.folder.join(name::of(number, Timestamp::now()));
        fs::write(limits.folder.join("night.rec"), [0; 500]).expect("another file");
        fs::create_dir(own(7)).expect("a folder");
        symlink("/etc/passwd", own(8)).expect("a link");
        for number in [3, 2, 9] {
            fs::write(own(number), [0; 40]).expect("a file");
        }
        files.older = found(&limits.folder).expect("files");
        assert_eq!(files.older.iter().map(|file| file.number).collect::<Vec<_>>(), [2, 3, 9]);
        files.make_room(20).expect("room");
        assert_eq!((files.bytes(), files.older.len()), (80, 2));
        files.make_room(100).expect("room");
        assert!(files.older.is_empty());
        assert_eq!(fs::read_dir(&limits.folder).expect("the folder").count(), 3, "the others");
        files.make_room(101).expect_err("there is none");
    }
}
