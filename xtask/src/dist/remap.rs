//! The release binary without a trace of where it was built.

use super::Machine;
use super::leaks::leaks;
use crate::run::{self, step};
use crate::vm::guest;
use crate::{build, paths};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::PathBuf;

/// Runs before each call of rustc, also of those that build the BPF object.
const WRAPPER: &str = "xtask/src/dist/rustc.sh";

/// Builds it in its own target folder, so that `cargo xtask build` need not start anew.
pub(super) fn build(machine: Machine) -> Result<PathBuf> {
    let target = machine.target;
    step(format!("building kfd-trace for {target} (release, static, paths remapped)"));
    let folder = paths::target().join("dist/build");
    let mut cargo = guest::cargo();
    cargo
        .args(["build", "--locked", "--release", "-p", "kfd-trace", "--target", target, "--target-dir"])
        .arg(&folder);
    cargo.env("RUSTC_WRAPPER", paths::root().join(WRAPPER));
    let home = cargo_home()?;
    for (key, path) in [("KFD_TRACE_ROOT", paths::root()), ("KFD_TRACE_CARGO_HOME", &home)] {
        cargo.env(key, path);
    }
    // .cargo/config.toml's, which the environment wins over, and that for C.
    let c = format!("-U_FORTIFY_SOURCE -ffile-prefix-map={}=/cargo", home.display());
    cargo.env(format!("CFLAGS_{}", target.replace('-', "_")), c);
    run::run(build::with_revision(&mut cargo))?;
    let binary = folder.join(target).join("release/kfd-trace");
    build::check(&binary)?;
    let bytes = fs::read(&binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let [root, home] = [paths::root(), &home].map(|path| path.display().to_string());
    let leaked = leaks(&bytes, &[&root, &home]);
    if !leaked.is_empty() {
        bail!("{} shows where it was built: {}", binary.display(), leaked.join(" "));
    }
    Ok(binary)
}

/// As cargo finds it.
fn cargo_home() -> Result<PathBuf> {
    let reported = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = reported
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")))
        .context("no home folder: set CARGO_HOME")?;
    fs::canonicalize(&home).with_context(|| format!("cannot find cargo's folder {}", home.display()))
}
