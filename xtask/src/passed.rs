//! Results that passed on exactly this tree, kept below target/passed: a run with `--resume` skips them. In:
//! names of checks and guests. Out: their sums.

use crate::closing::Totals;
use crate::{paths, run};
use anyhow::{Context as _, Result};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(crate) struct Passed {
    /// Folder of this tree's results; `None` where nothing is kept.
    dir: Option<PathBuf>,
    root: PathBuf,
    tree: u64,
    /// Earlier results count.
    resume: bool,
}

impl Passed {
    /// # Errors
    /// Where the tree cannot be identified, and earlier results are requested.
    pub(crate) fn of_this_tree(resume: bool) -> Result<Self> {
        let root = paths::root().to_owned();
        match tree(&root) {
            Ok(tree) => Self::at(&paths::target().join("passed"), root, tree, resume),
            Err(error) if resume => {
                Err(error.context("--resume: what belongs to this tree, git does not say"))
            }
            Err(_) => Ok(Self { dir: None, root, tree: 0, resume }),
        }
    }

    fn at(all: &Path, root: PathBuf, tree: u64, resume: bool) -> Result<Self> {
        let dir = all.join(format!("{tree:016x}"));
        for other in fs::read_dir(all).into_iter().flatten().filter_map(Result::ok) {
            if other.path() != dir {
                fs::remove_dir_all(other.path()).context("old results cannot be removed")?;
            }
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self { dir: Some(dir), root, tree, resume })
    }

    /// The sums of an earlier success, if that counts.
    pub(crate) fn before(&self, name: &str) -> Option<Totals> {
        let file = self.dir.as_ref().filter(|_| self.resume)?.join(file_name(name));
        Totals::parse(&fs::read_to_string(file).ok()?)
    }

    /// Keeps a success, unless the tree was changed meanwhile.
    pub(crate) fn keep(&self, name: &str, totals: Totals) {
        let Some(dir) = self.dir.as_ref().filter(|_| tree(&self.root).is_ok_and(|now| now == self.tree))
        else {
            return;
        };
        // Without it the next run does it again.
        let _ = fs::write(dir.join(file_name(name)), totals.line(true, Duration::ZERO));
    }
}

fn file_name(name: &str) -> String {
    name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
}

/// A hash of all files of a checkout that git has or would add.
fn tree(root: &Path) -> Result<u64> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = run::output(&mut git)?;
    let mut hasher = DefaultHasher::new();
    for name in listed.split_terminator('\0') {
        // A file that was removed since it was committed has no bytes.
        (name, fs::read(root.join(name)).ok()).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_counts_for_its_tree_and_where_it_is_asked_for() {
        let root = tempfile::tempdir().expect("a folder");
        let here = || Command::new("git").args(["init", "-q"]).current_dir(root.path()).status();
        assert!(here().expect("git").success());
        let all = tempfile::tempdir().expect("a folder");
        let passed = |resume| {
            let number = tree(root.path()).expect("a tree");
            Passed::at(all.path(), root.path().to_owned(), number, resume).expect("results")
        };
        fs::write(root.path().join("a"), "1").expect("a file");
        let totals = Totals { passed: 7, ..Totals::default() };
        let first = passed(false);
        first.keep("Linux 6.12, main", totals);
        assert_eq!(first.before("Linux 6.12, main"), None);
        assert_eq!(passed(true).before("Linux 6.12, main"), Some(totals));
        assert_eq!(passed(true).before("Linux 6.1, main"), None);

        fs::write(root.path().join("a"), "2").expect("a file");
        first.keep("lints", totals);
        assert_eq!(passed(true).before("Linux 6.12, main"), None, "the tree is another one");
        fs::write(root.path().join("a"), "1").expect("a file");
        assert_eq!(passed(true).before("lints"), None, "the tree was changed while it ran");
    }
}
