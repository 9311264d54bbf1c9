//! `cargo xtask rules`: the recording rules and alerts below deploy/prometheus, checked by promtool and by
//! our own requirements; and the exposition, checked by promtool.
//!
//! promtool comes from Debian's package, unpacked below target/: the package itself would start a server.

use crate::apt::{self, Apt};
use crate::paths;
use crate::run::{self, note};
use anyhow::{Context as _, Result, bail};
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod check;
mod exposition;

pub(crate) use check::{Names, Rules, words};

const PACKAGE: &str = "prometheus";
const FOLDER: &str = "deploy/prometheus";
const RULES: &str = "kfd-trace.rules.yml";
const FLEET: &str = "fleet.rules.yml";
pub(crate) const RUNBOOKS: &str = "docs/runbooks.md";
pub(crate) const METRICS: &str = "docs/metrics.md";

/// # Errors
/// When a rule, one of its tests or a metric is wrong, or something that a rule requires is missing; each is
/// reported.
pub(crate) fn rules() -> Result<()> {
    let folder = paths::root().join(FOLDER);
    let [rules, fleet] = [RULES, FLEET].map(|name| folder.join(name));
    let tests = tests(&folder.join("tests"))?;
    let problems = check::problems(&check::Files {
        rules: &read_rules()?,
        tests: &tests.iter().map(|path| Ok((name(path), yaml(path)?))).collect::<Result<Vec<_>>>()?,
        metrics: &read(&paths::root().join(METRICS))?,
        runbooks: &read(&paths::root().join(RUNBOOKS))?,
    });
    for problem in &problems {
        note(problem);
    }
    let promtool = promtool()?;
    run::run(Command::new(&promtool).args(["check", "rules", "--lint-fatal"]).args([&rules, &fleet]))?;
    run::run(Command::new(&promtool).args(["test", "rules"]).args(&tests))?;
    exposition::check(&promtool)?;
    if !problems.is_empty() {
        bail!("problems with {FOLDER}: {}, see above", problems.len());
    }
    Ok(())
}

/// The test files, ordered by name.
fn tests(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        files.push(entry?.path());
    }
    files.retain(|path| path.extension().is_some_and(|ext| ext == "yml"));
    files.sort();
    Ok(files)
}

/// The rules of both files, read.
pub(crate) fn read_rules() -> Result<Rules> {
    let [rules, fleet] = [RULES, FLEET].map(|name| yaml::<Rules>(&paths::root().join(FOLDER).join(name)));
    Ok(rules?.and(fleet?))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A file of the workspace.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn yaml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    serde_saphyr::from_str(&read(path)?).with_context(|| format!("cannot understand {}", path.display()))
}

/// promtool, fetched at first use.
pub(crate) fn promtool() -> Result<PathBuf> {
    Ok(apt::unpacked(PACKAGE, Apt::open)?.join("usr/bin/promtool"))
}
