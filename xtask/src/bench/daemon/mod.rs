//! `cargo xtask bench daemon`: the cost of records and scrapes in the daemon.
//!
//! Builds tests/load as the release binary is built, and runs it here: under callgrind for
//! instructions, directly for times and memory. Out: the figures of docs/performance.md.

use crate::bench::baseline::{Baseline, Figure};
use crate::bench::overhead;
use crate::paths;
use crate::run::{self, note, step};
use crate::setup;
use crate::vm::guest::{self, TARGET};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

mod callgrind;
mod document;
mod figures;
mod waiting;

/// Needed for nothing else, so that `cargo xtask setup` does not install it.
const PACKAGES: [(&str, &str); 1] = [("valgrind", "counts instructions")];

/// Runs without callgrind.
const RUNS: usize = 5;

/// xtask/baselines/daemon.json
const BASELINE: &str = "daemon";

/// Not compared with a baseline: a few pages are a good share of them. They are included in `memory.state`
/// and `memory.scrape`.
const SMALL: [&str; 2] = ["memory.process", "memory.scrape_left.10000_queues"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// An array of {case, value, unit} instead of a table
    #[arg(long)]
    json: bool,
    /// Measure a daemon that traces, too: in the VM
    #[arg(long)]
    tracing: bool,
    /// Measure instructions and sizes only, and fail if one is more than 15 % above the accepted one
    /// (xtask/baselines)
    #[arg(long)]
    check: bool,
    /// Measure instructions and sizes only, and make these the accepted ones
    #[arg(long, conflicts_with = "check")]
    accept: bool,
}

/// `Ok(false)`: a figure has grown, and was reported.
pub(crate) fn bench(args: &Args) -> Result<bool> {
    // A missing baseline is reported before a minute is spent on measuring.
    let accepted = args.check.then(|| Baseline::load(BASELINE)).transpose()?;
    let program = build()?;
    let mut all = repeatable(&program)?;
    let watched = all.iter().filter(|figure| !SMALL.contains(&figure.case.as_str()));
    let now = Baseline { measured_on: machine()?, figures: watched.cloned().collect() };
    let mut well = true;
    if let Some(accepted) = accepted {
        well = is_well(&accepted, &now) & waiting::is_well()?;
    }
    if args.accept {
        note(format!("wrote {}", now.save(BASELINE)?.display()));
        note(format!("wrote {}", document::renew(&now)?.display()));
    }
    if !args.check && !args.accept {
        all.extend(times(&program)?);
        all.extend(waiting::figures()?);
    }
    if args.tracing {
        all.extend(overhead::own()?);
    }
    print(&all, args.json)?;
    Ok(well)
}

pub(crate) fn print(all: &[Figure], as_json: bool) -> Result<()> {
    print!("{}", if as_json { json(all)? } else { table(all) });
    Ok(())
}

/// Runs `--check`.
pub(crate) fn check() -> Result<bool> {
    bench(&Args { json: false, tracing: false, check: true, accept: false })
}

fn is_well(accepted: &Baseline, now: &Baseline) -> bool {
    if accepted.measured_on != now.measured_on {
        note(format!("accepted on {}, measured on {}", accepted.measured_on, now.measured_on));
    }
    let shrunk = accepted.shrunk(now);
    shrunk.iter().for_each(note);
    if !shrunk.is_empty() {
        note("more than 5 % below what was accepted: `cargo xtask bench daemon --accept` keeps that");
    }
    let grown = accepted.grown(now, |_| 0);
    grown.report("daemon");
    let wrong = [grown.fails, accepted.unaccepted(now), figures::overgrown(&now.figures)].concat();
    wrong.iter().for_each(|line| eprintln!("error: {line}"));
    wrong.is_empty()
}

/// Figures that are the same in every run: instructions, and sizes.
fn repeatable(program: &Path) -> Result<Vec<Figure>> {
    setup::debian(&PACKAGES)?;
    step("counting instructions (callgrind)");
    let (printed, counted) = callgrind::run(program, "load", &paths::target().join("bench-daemon"))?;
    let (regions, sizes) = figures::read(&printed)?;
    let mut all = figures::instructions(&regions, &counted)?;
    all.extend(sizes);
    step("measuring memory");
    all.extend(figures::read(&run::output(Command::new(program).arg("memory"))?)?.1);
    Ok(all)
}

fn times(program: &Path) -> Result<Vec<Figure>> {
    step("measuring times");
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(figures::read(&run::output(Command::new(program).arg("load"))?)?.0);
    }
    Ok(figures::times(&runs))
}

/// What counts depend on besides our own code: the compiler, and whether its libraries find wide registers.
fn machine() -> Result<String> {
    let compiler = run::output(Command::new("rustc").arg("--version").current_dir(paths::root()))?;
    let wide = if std::arch::is_x86_feature_detected!("avx2") { "AVX2" } else { "no AVX2" };
    Ok(format!("{}, {wide}", compiler.trim()))
}

/// The bench program: static, and of the same library as the release binary, which is not compiled again for
/// it.
pub(crate) fn build() -> Result<PathBuf> {
    step("building the bench program (release, static)");
    let mut cargo = guest::cargo();
    cargo.args(["build", "--release", "-p", "kfd-trace-load", "--target", TARGET]);
    run::run(&mut cargo).context("the bench program does not build")?;
    Ok(paths::target().join(TARGET).join("release/kfd-trace-load"))
}

fn json(figures: &[Figure]) -> Result<String> {
    let all: Vec<Value> = figures.iter().map(Figure::json).collect();
    Ok(format!("{}\n", serde_json::to_string_pretty(&all)?))
}

fn table(figures: &[Figure]) -> String {
    let widest = figures.iter().map(|figure| figure.case.len()).max().unwrap_or(0);
    let line = |figure: &Figure| format!("{:widest$} {:>14} {}\n", figure.case, figure.value, figure.unit);
    figures.iter().map(line).collect()
}
