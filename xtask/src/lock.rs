//! Several runs in one checkout, and parts of one run: each waits for the other where both would write the
//! same files.

use crate::run::note;
use anyhow::{Context as _, Result};
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::Path;
use std::process;

/// Holds a folder until dropped; the system releases it however the process ends.
#[must_use]
pub(crate) struct Held {
    _file: File,
}

/// Waits, with a message, while another guest, check or run holds the folder. Creates it if it is missing.
pub(crate) fn hold(dir: &Path) -> Result<Held> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let path = dir.join(".lock");
    // The process that holds the lock has written its number into the file: opening it must not empty it.
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = holder(&fs::read_to_string(&path).unwrap_or_default(), process::id());
            note(format!("waiting for {holder} that uses {}", dir.display()));
            file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    let noted = file.set_len(0).and_then(|()| write!(file, "{}", process::id()));
    noted.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Held { _file: file })
}

/// Describes the holder of a folder, by the content of its lock file.
fn holder(text: &str, own: u32) -> String {
    match text.parse::<u32>() {
        Ok(process) if process == own => "another part of this run".to_owned(),
        Ok(process) => format!("another run (process {process})"),
        // It has not written its number yet.
        Err(_) => "another run".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_held_folder_can_be_taken_after_its_release() {
        let dir = tempfile::tempdir().expect("a folder");
        let held = super::hold(dir.path()).expect("free");
        let other = std::fs::File::open(dir.path().join(".lock")).expect("the lock file");
        assert!(other.try_lock().is_err());
        drop(held);
        assert!(other.try_lock().is_ok());
    }

    #[test]
    fn who_waits_knows_whether_it_is_for_a_part_of_the_same_run() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join(".lock");
        // Of an earlier run, whose number was longer.
        std::fs::write(&file, "4294967295").expect("a lock file");
        let held = super::hold(dir.path()).expect("free");
        let text = std::fs::read_to_string(&file).expect("the lock file");
        let own = std::process::id();
        assert_eq!(super::holder(&text, own), "another part of this run");
        assert_eq!(super::holder(&text, own + 1), format!("another run (process {own})"));
        assert_eq!(super::holder("", own), "another run");
        drop(held);
    }
}
