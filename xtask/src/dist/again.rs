//! `cargo xtask dist --check`: the same commit built a second time, in another folder.

use super::{Machine, SUMS};
use crate::paths;
use crate::run::{self, note, step};
use crate::vm::guest;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// # Errors
/// When a file differs from those of `folder`; each is named.
pub(super) fn check(machine: Machine, folder: &Path) -> Result<()> {
    let root = paths::root();
    let changed = run::output(Command::new("git").args(["status", "--porcelain"]).current_dir(root))?;
    if let Some(first) = changed.lines().next() {
        bail!(
            "a second build takes the last commit, and this one has changes beside it ({first}): commit them first"
        );
    }
    let clone = std::env::temp_dir().join(format!("kfd-trace-again-{}", std::process::id()));
    step(format!("building a second time, in {}", clone.display()));
    run::output(Command::new("git").args(["clone", "--quiet"]).arg(root).arg(&clone))?;
    let mut cargo = guest::cargo();
    cargo.args(["xtask", "dist", "--arch", machine.uname]).current_dir(&clone).env_remove("CARGO_TARGET_DIR");
    run::run(&mut cargo)?;
    let read =
        |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let (one, other) = (read(&folder.join(SUMS))?, read(&clone.join("target/dist").join(SUMS))?);
    let differ = differing(&one, &other, machine.uname, machine.debian);
    if !differ.is_empty() {
        bail!("other bytes in {}: {}", clone.display(), differ.join(" "));
    }
    note("the same bytes");
    fs::remove_dir_all(&clone).with_context(|| format!("cannot clear {}", clone.display()))
}

/// Files of this machine whose sums are not the same in both lists, or that only one of them has. Pure.
fn differing<'a>(one: &'a str, other: &'a str, uname: &str, debian: &str) -> Vec<&'a str> {
    let lines =
        |from: &'a str, to: &'a str| from.lines().filter(move |line| !to.lines().any(|have| have == *line));
    let all = lines(one, other).chain(lines(other, one));
    let mut names: Vec<&str> = all.filter_map(|line| line.split_whitespace().nth(1)).collect();
    names.retain(|name| name.contains(uname) || name.contains(debian));
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn files_of_other_bytes_are_named() {
        let one = "11  k_amd64.deb\n22  k.x86_64.rpm\n33  k.aarch64.rpm\n";
        assert!(differing(one, "22  k.x86_64.rpm\n11  k_amd64.deb\n", "x86_64", "amd64").is_empty());
        assert_eq!(
            differing(one, "11  k_amd64.deb\n23  k.x86_64.rpm\n", "x86_64", "amd64"),
            ["k.x86_64.rpm"]
        );
        assert_eq!(differing(one, "22  k.x86_64.rpm\n", "x86_64", "amd64"), ["k_amd64.deb"]);
    }
}
