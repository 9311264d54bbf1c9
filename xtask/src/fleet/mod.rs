//! `cargo xtask fleet`: what a fleet of nodes costs its Prometheus and its store. One process serves the expositions of all
//! nodes, made from one that the daemon's own code renders; Debian's Prometheus and VictoriaMetrics scrape them.
//!
//! Times, memory and CPU are of this machine and this moment, so nothing is compared with accepted figures.

mod budget;
mod http;
mod laws;
mod live;
mod programs;
mod queries;
mod render;
mod report;
mod serve;
mod shape;
mod storage;
mod template;
mod victoria;

use crate::bench::daemon;
use crate::run::{self, note, step};
use crate::{lock, paths};
use anyhow::{Context as _, Result, ensure};
use live::Run;
use render::Sheet;
use shape::Shape;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use template::{Scope, Template};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Simulated nodes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    nodes: u64,
    /// How long the programs are watched, once all nodes are scraped
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=240))]
    minutes: u64,
    /// What runs on the nodes
    #[arg(long, value_enum, default_value_t = Shape::Mix)]
    shape: Shape,
    /// Seconds from scrape to scrape, and from evaluation to evaluation
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=300))]
    interval: u64,
    /// Only what one node of each shape costs: no program is started
    #[arg(long, conflicts_with = "grow")]
    budget: bool,
    /// Only the bytes that a sample of each shape takes on disk
    #[arg(long, conflicts_with_all = ["grow", "budget"])]
    storage: bool,
    /// Double the nodes, from --nodes on, until scrapes or rules do not keep up or memory is short
    #[arg(long)]
    grow: bool,
    /// Without the second VictoriaMetrics, which scrapes all nodes itself; the dashboard's queries are left out
    #[arg(long)]
    sums_only: bool,
    /// GiB that Prometheus and the stores may have together, else half of what is available: the run ends when they
    /// have more
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1024))]
    memory: Option<u64>,
    /// Prometheus keeps only the families that the rules name (metric_relabel_configs)
    #[arg(long)]
    needed: bool,
    /// Without Prometheus: VictoriaMetrics scrapes the nodes and has all, vmalert evaluates the rules
    #[arg(long, conflicts_with_all = ["grow", "budget", "storage", "sums_only", "needed"])]
    victoria_metrics: bool,
    /// Take the exposition from this bench program, not from one of this tree
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
}

pub(crate) fn fleet(args: &Args) -> Result<()> {
    let _held = lock::hold(&paths::target().join("fleet"))?;
    let program = match &args.load {
        Some(program) => program.clone(),
        None => daemon::build()?,
    };
    let template = template(&program)?;
    check(&program, &template)?;
    let sheet = Sheet::new(&template);
    if args.budget {
        return report::budgets(&sheet, args.interval);
    }
    if args.storage {
        return report::storage(&sheet, args.interval);
    }
    if args.victoria_metrics {
        return victoria::run(sheet, args);
    }
    let run = Run::start(sheet, args)?;
    if args.grow {
        return grow(&run, args);
    }
    run.grow(args.nodes)?;
    let watched = run.watch(args.nodes, args.minutes * 60)?;
    report::run(run, &watched, args.interval)
}

fn grow(run: &Run, args: &Args) -> Result<()> {
    println!("{}", report::GROWTH);
    let mut nodes = args.nodes;
    loop {
        let watched = match run.grow(nodes).and_then(|()| run.watch(nodes, args.minutes * 60)) {
            Ok(watched) => watched,
            Err(error) => {
                println!("| {nodes} | | | | | | | | | {error:#} |");
                return Ok(());
            }
        };
        let limits = watched.limits(args.interval);
        println!("{}", report::growth(&watched, &limits));
        if !limits.is_empty() {
            return Ok(());
        }
        nodes *= 2;
    }
}

/// The daemon's exposition of a small node, also written below target/fleet.
fn exposition(program: &Path, numbers: [u64; 4]) -> Result<String> {
    let mut command = Command::new(program);
    command.arg("exposition").args(numbers.map(|number| number.to_string()));
    run::output(&mut command).context("the bench program makes no exposition")
}

fn template(program: &Path) -> Result<Template> {
    step("rendering the exposition of a node with one GPU, a process that lives and one that ended");
    let text = exposition(program, [1, 1, 4, 1])?;
    let file = paths::target().join("fleet/template.txt");
    fs::write(&file, &text).context("cannot write the template")?;
    let template = Template::parse(&text)?;
    let [node, gpu, live, ended] =
        [Scope::Node, Scope::Gpu, Scope::Live, Scope::Ended].map(|scope| template.count(scope));
    note(format!(
        "{}: series of the node {node}, of each GPU {gpu}, of a process {live}, of one that ended {ended}",
        file.display()
    ));
    Ok(template)
}

/// Nodes with more GPUs and processes have as many series as the template says, in what the daemon's own code renders.
fn check(program: &Path, template: &Template) -> Result<()> {
    for [live, ended, gpus] in [[0, 0, 8], [0, 0, 64], [3, 2, 1]] {
        let text = exposition(program, [live, ended, 4, gpus])?;
        let parts = [(Scope::Node, 1), (Scope::Gpu, gpus), (Scope::Live, live), (Scope::Ended, ended)];
        let scaled: u64 = parts.iter().map(|(scope, times)| template.count(*scope) as u64 * times).sum();
        let own = budget::series(&text).count() as u64;
        ensure!(
            own == scaled,
            "{live} processes, {ended} ended ones, {gpus} GPUs: {own} series, scaled {scaled}"
        );
    }
    Ok(())
}
