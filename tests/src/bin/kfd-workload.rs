//! A program that uses KFD as ROCm does; see `kfd_trace_tests::workload`.

use clap::Parser;
use kfd_trace_tests::workload::{self, cli::Cli};
use std::process::ExitCode;

fn main() -> ExitCode {
    match workload::run(&Cli::parse().workload) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kfd-workload: {error:#}");
            ExitCode::FAILURE
        }
    }
}
