//! A folder read whole. In: its path. Out: its files and those of its subfolders, in an order that does not
//! depend on the file system.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The files below a folder, sorted. Symbolic links are listed and not followed.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
            let kind = entry.file_type().with_context(|| format!("cannot read {}", folder.display()))?;
            let to = if kind.is_dir() { &mut folders } else { &mut files };
            to.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_subfolders_are_listed_and_a_folder_that_is_missing_is_an_error() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("b/deep")).expect("folders");
        for file in ["c", "b/deep/one", "b/two", "a"] {
            fs::write(at(file), file).expect("a file");
        }
        let listed = files_below(root.path()).expect("a folder");
        assert_eq!(listed, ["a", "b/deep/one", "b/two", "c"].map(at));
        assert!(files_below(&at("missing")).is_err());
    }
}
