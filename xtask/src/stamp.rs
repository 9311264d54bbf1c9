//! Records what a file in the cache was made of. In: the file and a key of all its inputs. Out: whether it is
//! still made of these.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Stamp {
    path: PathBuf,
    key: String,
}

impl Stamp {
    pub(crate) fn at(path: PathBuf, key: String) -> Self {
        Self { path, key }
    }

    /// Of a file, beside it.
    pub(crate) fn beside(made: &Path, key: String) -> Self {
        Self::at(made.with_extension("made-of"), key)
    }

    pub(crate) fn holds(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|have| have == self.key)
    }

    /// Before it is made anew: an unfinished file has no stamp.
    pub(crate) fn clear(&self) -> Result<()> {
        if self.path.exists() {
            fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))?;
        }
        Ok(())
    }

    /// After it is made.
    pub(crate) fn set(&self) -> Result<()> {
        fs::write(&self.path, &self.key).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::Stamp;

    #[test]
    fn a_stamp_holds_for_its_key_and_from_the_end_of_the_making() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |key: &str| Stamp::beside(&folder.path().join("piece.cpio"), key.to_owned());
        assert!(!of("a").holds());
        of("a").set().expect("written");
        assert!(of("a").holds() && !of("b").holds());
        of("b").clear().expect("removed");
        assert!(!of("a").holds());
        of("b").clear().expect("nothing to remove");
    }
}
