//! `cargo xtask fuzz`: the targets of tests/fuzz, each for a while. Results are in target/fuzz: the corpus
//! grows from run to run, and an input that violated a guarantee is kept.

use crate::run::{self, step};
use crate::vm::guest;
use crate::{paths, setup};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seconds that one input may take: instrumented, a reader is some ten times as slow.
const TIMEOUT: u32 = 20;
/// Bytes: some dozens of records.
const LONGEST: u32 = 16 << 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Targets: records, btf, kallsyms, flags, procfs, sysfs, amd_log, dumps, web, recording; all of them if none is named
    targets: Vec<String>,
    /// How long each is fed
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

pub(crate) fn fuzz(args: &Args) -> Result<()> {
    let known = known()?;
    if let Some(other) = args.targets.iter().find(|name| !known.contains(name)) {
        bail!("no target {other}: there are {}", known.join(", "));
    }
    let tools = setup::fuzz()?;
    let seeds = paths::target().join("fuzz/seeds");
    step("writing seeds");
    let mut cargo = guest::cargo();
    cargo.args(["run", "--quiet", "-p", "kfd-trace-bad-input", "--bin", "fuzz-seeds", "--"]).arg(&seeds);
    run::run(&mut cargo)?;
    let chosen = if args.targets.is_empty() { &known } else { &args.targets };
    let mut broken = Vec::new();
    for target in chosen {
        step(format!("fuzzing {target} for {} s", args.seconds));
        if let Err(error) = one(target, &seeds, &tools, args.seconds) {
            eprintln!("error: {target}: {error:#}");
            broken.push(target.as_str());
        }
    }
    if !broken.is_empty() {
        bail!("{} broke a promise; the inputs are in {}", broken.join(", "), artifacts("").display());
    }
    Ok(())
}

/// Names of the targets: one file each.
fn known() -> Result<Vec<String>> {
    let folder = package().join("targets");
    let files = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for file in files {
        let path = file.with_context(|| format!("cannot list {}", folder.display()))?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn one(target: &str, seeds: &Path, tools: &Path, seconds: u32) -> Result<()> {
    let corpus = paths::target().join("fuzz/corpus").join(target);
    let artifacts = artifacts(target);
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut command = Command::new(tools.join("cargo-fuzz"));
    command.current_dir(package()).args(["fuzz", "run", "--fuzz-dir", ".", "--target-dir"]);
    command.arg(paths::target().join("fuzz/build")).arg(target).arg(&corpus).arg(seeds.join(target));
    command.arg("--").arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={TIMEOUT}"));
    command.arg(format!("-max_len={LONGEST}")).arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.args(["-print_final_stats=1", "-verbosity=1"]);
    // The sanitizers' flags are unstable; one toolchain serves for everything.
    run::run(guest::as_from_a_shell(&mut command).env("RUSTC_BOOTSTRAP", "1"))
}

fn package() -> PathBuf {
    paths::root().join("tests/fuzz")
}

fn artifacts(target: &str) -> PathBuf {
    paths::target().join("fuzz/artifacts").join(target)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_is_a_program_of_the_package() {
        let manifest = std::fs::read_to_string(super::package().join("Cargo.toml")).expect("its manifest");
        let known = super::known().expect("targets");
        assert!(known.len() >= 7, "{known:?}");
        for name in &known {
            assert!(manifest.contains(&format!("path = \"targets/{name}.rs\"")), "{name}");
        }
        assert_eq!(manifest.matches("[[bin]]").count(), known.len());
    }
}
