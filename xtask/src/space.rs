//! Room on the disk: what runs out of it in the middle fails in ways that do not say so.

use crate::paths;
use anyhow::{Context as _, Result, bail};
use nix::sys::statvfs::statvfs;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What the whole test command takes at least below target/ on a clean machine: `du -sm target`, before its
/// last guests.
const WHOLE_MB: u64 = 11_000;

/// What it writes anew where all is there already: guests, packages, links.
const LEAST_MB: u64 = 2_000;

/// # Errors
/// There is too little room for the whole test command, with what an earlier run has left.
pub(crate) fn for_the_tests() -> Result<()> {
    let target = paths::target();
    fs::create_dir_all(&target).with_context(|| format!("make {}", target.display()))?;
    let disk = statvfs(&target).with_context(|| format!("the disk of {}", target.display()))?;
    let free = disk.blocks_available() * disk.fragment_size() / 1_000_000;
    match lack(free, used_mb(&target)) {
        None => Ok(()),
        Some(lack) => bail!(
            "the disk of {} has {free} MB free: the tests need {lack} MB more; make room, or set CARGO_TARGET_DIR",
            target.display()
        ),
    }
}

/// How much is missing, with `used` of what is needed there already.
fn lack(free: u64, used: u64) -> Option<u64> {
    let needed = WHOLE_MB.saturating_sub(used).max(LEAST_MB);
    needed.checked_sub(free).filter(|lack| *lack > 0)
}

/// What the files below a folder take, in MB, each once; what cannot be read counts nothing.
fn used_mb(folder: &Path) -> u64 {
    fn blocks(folder: &Path, seen: &mut BTreeSet<(u64, u64)>) -> u64 {
        let Ok(entries) = fs::read_dir(folder) else { return 0 };
        let mut sum = 0;
        for entry in entries.flatten() {
            sum += match entry.metadata() {
                Ok(about) if about.is_dir() => blocks(&entry.path(), seen),
                Ok(about) if seen.insert((about.dev(), about.ino())) => about.blocks(),
                _ => 0,
            };
        }
        sum
    }
    blocks(folder, &mut BTreeSet::new()) * 512 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_run_has_left_is_not_needed_again() {
        assert_eq!(lack(WHOLE_MB, 0), None);
        assert_eq!(lack(WHOLE_MB - 1, 0), Some(1));
        assert_eq!(lack(LEAST_MB, WHOLE_MB - LEAST_MB), None);
        assert_eq!(lack(LEAST_MB - 1, 10 * WHOLE_MB), Some(1), "some is written anew");
    }

    #[test]
    fn files_count_once_at_any_depth() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("a/b")).expect("folders");
        fs::write(root.path().join("a/b/c"), vec![1; 3_000_000]).expect("a file");
        fs::write(root.path().join("d"), vec![1; 2_000_000]).expect("a file");
        fs::hard_link(root.path().join("d"), root.path().join("e")).expect("a link");
        assert_eq!(used_mb(root.path()), 5);
    }
}
