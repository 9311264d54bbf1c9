//! `make-amd-log --format 7.2 FILE`: writes a log of the report's shape, and its ledger as JSON to standard
//! output.

use anyhow::{Context as _, Result};
use clap::Parser;
use kfd_trace_amd_logs::{Format, Plan, write};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

#[derive(Parser)]
struct Args {
    /// Version of ROCm
    #[arg(long, value_enum, default_value = "7.2")]
    format: Format,
    /// Kernels, instead of the report's 127,644
    #[arg(long)]
    kernels: Option<u64>,
    /// Something of everything, instead of the report's shape
    #[arg(long)]
    mixed: bool,
    file: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let plan = if args.mixed { Plan::MIXED } else { Plan::REPORTED };
    let plan = Plan { kernels: args.kernels.unwrap_or(plan.kernels), ..plan };
    let file = File::create(&args.file).with_context(|| format!("cannot make {}", args.file.display()))?;
    let ledger = write(BufWriter::with_capacity(1 << 20, file), args.format, &plan)?;
    println!("{}", serde_json::to_string_pretty(&ledger)?);
    Ok(())
}
