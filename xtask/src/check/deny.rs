//! `cargo xtask deny`: licences, duplicates and sources of the dependencies, by .cargo/deny.toml, and
//! advisories about them.

use crate::run::{self, note, step};
use crate::{paths, setup};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Seconds after which the fetch of the advisories is given up.
const FETCH: &str = "60";

/// # Errors
/// When a dependency is against .cargo/deny.toml, or an advisory applies; cargo-deny has printed which.
pub(crate) fn deny() -> Result<()> {
    let tools = setup::deny()?;
    allowed(&tools)?;
    advisories(&tools)
}

/// As [`deny`], but an advisory is only shown: the test of an unchanged tree must not fail when one is
/// published.
///
/// # Errors
/// When a dependency is against .cargo/deny.toml.
pub(crate) fn check() -> Result<()> {
    let tools = setup::deny()?;
    allowed(&tools)?;
    if let Err(error) = advisories(&tools) {
        step(format!("advisories, not counted as a failure: {error:#}"));
    }
    Ok(())
}

fn cargo_deny(tools: &Path) -> Command {
    let mut command = Command::new(tools.join("cargo-deny"));
    command.current_dir(paths::root());
    command
}

fn allowed(tools: &Path) -> Result<()> {
    run::run(cargo_deny(tools).args(["--locked", "check", "bans", "licenses", "sources"]))
}

/// Checked with a fresh copy of the database, or, without a network, with the copy that exists.
fn advisories(tools: &Path) -> Result<()> {
    let mut fetch = Command::new("timeout");
    fetch.arg(FETCH).arg(tools.join("cargo-deny")).args(["fetch", "db"]).current_dir(paths::root());
    if let Err(error) = run::output(&mut fetch) {
        note(format!("{error:#}"));
        let Some(copy) = copy(&cargo_home()?) else {
            step("advisories: not checked: their database cannot be fetched, and there is no copy of it");
            return Ok(());
        };
        step(format!("advisories: checked with the copy in {}", copy.display()));
    }
    run::run(cargo_deny(tools).args(["--locked", "--offline", "check", "advisories"]))
}

fn cargo_home() -> Result<PathBuf> {
    let home = || env::home_dir().map(|home| home.join(".cargo"));
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("neither CARGO_HOME nor HOME is set")
}

/// Where cargo-deny keeps what it fetched: the name has a hash of the address.
fn copy(cargo_home: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(cargo_home.join("advisory-dbs")).ok()?;
    let mut folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.join(".git").exists());
    folders.next()
}

#[cfg(test)]
mod tests {
    use super::copy;
    use std::fs;

    #[test]
    fn only_a_fetched_database_is_a_copy() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(copy(home.path()), None);
        // An attempt without a network leaves this.
        let folder = home.path().join("advisory-dbs");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("db.lock"), "").unwrap();
        assert_eq!(copy(home.path()), None);
        let fetched = folder.join("advisory-db-3157b0e258782691");
        fs::create_dir_all(fetched.join(".git")).unwrap();
        assert_eq!(copy(home.path()), Some(fetched));
    }
}
