//! Counts what tracing costs; see `kfd_trace_tests::cost`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use kfd_trace_tests::cost;

/// Counts what a tracer costs, in a guest whose clocks go by instructions
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    /// Only these tracers (repeatable), and what they are held against
    #[arg(long = "subject")]
    subjects: Vec<String>,
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
    let Cli { part, subjects } = Cli::parse();
    let done = match part {
        Some(Part::Caller { kfd }) => cost::caller::serve(kfd),
        None => measure(&subjects),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kfd-cost: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(subjects: &[String]) -> Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    cost::run(program.to_str().context("a path in UTF-8")?, subjects)
}
