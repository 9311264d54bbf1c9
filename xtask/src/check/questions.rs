//! `cargo xtask questions`: the twelve questions of deploy/fleet in chDB, which is ClickHouse as a Python package (880 MB),
//! against answers that were made without SQL. Not part of `cargo xtask test`, for what it takes to have the engine.
//!
//! With `--collector` a real one, rotel, stands between a daemon in the VM and the tables: tests/fleet/collector.py.

use crate::paths;
use crate::run::{self, step};
use crate::setup;
use crate::vm;
use crate::vm::boots;
use crate::vm::follow::End;
use crate::vm::testbed::{Bench, Mode};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// From Python's own index of packages.
const ENGINE: &[&str] = &["chdb==4.4.0"];
const COLLECTOR: &[&str] = &["rotel==0.0.1a15", "opentelemetry-proto==1.45.2"];

/// Where `requests` is (tests/tests/sim/otlp.rs), which prints what a daemon sent.
const STAGE: &str = "sim";
const REQUESTS: &str = "otlp::requests";

/// Needed for nothing else, so that `cargo xtask setup` does not install it.
const PACKAGES: [(&str, &str); 1] = [("python3-venv", "makes a folder for Python packages")];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Instead, send what a daemon in the VM exports through a real collector into the tables, and look for each record
    #[arg(long)]
    collector: bool,
    /// Handed to tests/fleet/questions.py: --seed N, --break, --scale 1000x30, --rows FILE
    #[arg(last = true)]
    more: Vec<String>,
}

pub(crate) fn questions(args: &Args) -> Result<()> {
    let python = python(ENGINE)?;
    let programs = paths::root().join("tests/fleet");
    if !args.collector {
        return run::run(Command::new(&python).arg(programs.join("questions.py")).args(&args.more));
    }
    let requests = requests()?;
    self::python(COLLECTOR)?;
    step("sending them to a collector, and from there to ClickHouse");
    run::run(Command::new(&python).arg(programs.join("collector.py")).arg(requests))
}

/// Python with these packages, in a folder of its own.
fn python(packages: &[&str]) -> Result<PathBuf> {
    let folder = paths::target().join("fleet/venv");
    let python = folder.join("bin/python");
    let done = |package: &&str| folder.join(package).exists();
    if !packages.iter().all(done) {
        if !python.exists() {
            venv(&folder)?;
        }
        step(format!("fetching {}", packages.join(", ")));
        run::run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
        packages.iter().try_for_each(|package| std::fs::write(folder.join(package), ""))?;
    }
    Ok(python)
}

fn venv(folder: &Path) -> Result<()> {
    let has_venv = run::output(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_ok();
    if !has_venv {
        setup::debian(&PACKAGES)?;
    }
    run::run(Command::new("python3").args(["-m", "venv"]).arg(folder))
}

/// What a daemon in the VM sent, a line a request.
fn requests() -> Result<PathBuf> {
    let boot = boots::with_stage(Some(STAGE)).context("no such stage")?;
    let words = ["--ignored", "--nocapture", REQUESTS].map(str::to_owned);
    let mut report = Vec::new();
    let bench = Bench::new()?;
    let booted =
        bench.boot(bench.matrix().main()?, boot, Mode::Test(&[STAGE]), &words, vm::LIMIT, &mut report)?;
    let report = String::from_utf8_lossy(&report);
    let (requests, rest): (Vec<_>, Vec<_>) = report.lines().partition(|line| line.starts_with("REQUEST "));
    if requests.is_empty() || !matches!(booted.run.end, End::Exit(0)) {
        bail!("the guest printed no requests:\n{}", rest.join("\n"));
    }
    let file = paths::target().join("fleet/requests");
    std::fs::write(&file, requests.join("\n") + "\n")
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}
