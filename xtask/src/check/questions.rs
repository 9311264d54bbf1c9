//! `cargo xtask questions`: the twelve questions of deploy/fleet in chDB, which is ClickHouse as a Python package (880 MB),
//! against answers that were made without SQL. Not part of `cargo xtask test`, for what it takes to have the engine.

use crate::paths;
use crate::run::{self, step};
use crate::setup;
use anyhow::Result;
use std::process::Command;

/// From Python's own index of packages.
const ENGINE: &str = "chdb==4.4.0";

/// Needed for nothing else, so that `cargo xtask setup` does not install it.
const PACKAGES: [(&str, &str); 1] = [("python3-venv", "makes a folder for Python packages")];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Handed to tests/fleet/questions.py: --seed N, --break, --scale 1000x30, --rows FILE
    #[arg(last = true)]
    more: Vec<String>,
}

pub(crate) fn questions(args: &Args) -> Result<()> {
    let folder = paths::target().join("fleet/venv");
    let (python, done) = (folder.join("bin/python"), folder.join(ENGINE));
    if !done.exists() {
        let has_venv = run::output(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_ok();
        if !has_venv {
            setup::debian(&PACKAGES)?;
        }
        step(format!("fetching {ENGINE}"));
        run::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run::run(Command::new(&python).args(["-m", "pip", "install", "--quiet", ENGINE]))?;
        std::fs::write(&done, "")?;
    }
    let program = paths::root().join("tests/fleet/questions.py");
    run::run(Command::new(&python).arg(program).args(&args.more))
}
