//! `promtool check metrics` of an exposition that has every metric: a unit test of kfd-trace makes it, with
//! the daemon's own encoder, and ensures that none is missing.

use crate::paths;
use crate::run::{self, step};
use crate::vm::guest;
use anyhow::{Context as _, Result, bail};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

const TEST: &str = "output::metrics::tests::whole::every_metric_of_the_table_is_exported_and_no_other";
/// The file name for the test's output.
const VARIABLE: &str = "KFD_TRACE_EXPOSITION";

/// # Errors
/// When promtool prints anything.
pub(super) fn check(promtool: &Path) -> Result<()> {
    let file = paths::target().join("exposition.prom");
    // An old file proves nothing.
    match fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", file.display()));
        }
        _ => {}
    }
    step("making an exposition with every metric");
    let mut test = guest::cargo();
    test.args(["test", "--quiet", "-p", "kfd-trace", "--lib", "--", "--exact", TEST]).env(VARIABLE, &file);
    run::run(&mut test)?;
    let text = File::open(&file)
        .with_context(|| format!("{} was not written by the test {TEST}", file.display()))?;
    let checked = Command::new(promtool).args(["check", "metrics"]).stdin(text).output();
    let checked = checked.with_context(|| format!("cannot run {}", promtool.display()))?;
    let said = [checked.stdout, checked.stderr].concat();
    if !checked.status.success() || !said.is_empty() {
        bail!(
            "promtool check metrics < {} ({}):\n{}",
            file.display(),
            checked.status,
            String::from_utf8_lossy(&said)
        );
    }
    Ok(())
}
