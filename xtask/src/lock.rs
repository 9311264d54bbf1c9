//! Several runs in one checkout: each waits for the other where both would write the same files.

use crate::run::note;
use anyhow::{Context as _, Result};
use std::fs::{self, File, TryLockError};
use std::path::Path;

/// Holds a folder until dropped; the system releases it however the process ends.
#[must_use]
pub(crate) struct Held {
    _file: File,
}

/// Waits, with a message, while another run holds the folder. Creates it if it is missing.
pub(crate) fn hold(dir: &Path) -> Result<Held> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let path = dir.join(".lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            note(format!("waiting for another run that uses {}", dir.display()));
            file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    Ok(Held { _file: file })
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
}
