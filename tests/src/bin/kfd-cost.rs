//! Counts what tracing costs; see `kfd_trace_tests::cost`.

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use kfd_trace_tests::cost;
use std::process::ExitCode;

/// Counts what a tracer costs, in a guest whose clocks go by instructions
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    /// Only these tracers (repeatable), and what they are compared with
    #[arg(long = "subject")]
    subjects: Vec<String>,
    /// What kfd-trace itself needs; no tracer beside unless named, too
    #[arg(long)]
    own: bool,
}

#[derive(Subcommand)]
enum Part {
    /// Make the calls that are measured, as ordered on standard input
    Caller {
        /// With /dev/kfd open
        #[arg(long)]
        kfd: bool,
    },
}

fn main() -> ExitCode {
    let Cli { part, subjects, own } = Cli::parse();
    let done = match part {
        Some(Part::Caller { kfd }) => cost::caller::serve(kfd),
        None => measure(&subjects, own),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kfd-cost: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Without a wish, everything.
fn measure(subjects: &[String], own: bool) -> Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    let program = program.to_str().context("a path in UTF-8")?;
    let all = subjects.is_empty();
    if !all || !own {
        cost::run(program, subjects)?;
    }
    if all || own {
        cost::own::run(program)?;
    }
    Ok(())
}
