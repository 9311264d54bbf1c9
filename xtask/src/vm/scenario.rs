//! `cargo xtask scenario`: random lives of KFD processes against a ledger, many seeds in one boot.

use crate::vm;
use crate::vm::matrix::{Column, Types};
use crate::vm::series::Series;
use crate::vm::testbed::Bench;
use anyhow::Result;
use std::time::Duration;

/// A guest second under emulation, for an operation; and for each seed's set-up and end.
const PER_OPERATION: Duration = Duration::from_millis(300);
const PER_SEED: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel series to boot: one with kfdsim
    #[arg(long, value_parser = series, default_value = "6.12")]
    kernel: Series,
    /// Where the tracer has the driver's types from [default: kernel, but file where the module has no BTF]
    #[arg(long, value_enum)]
    types: Option<Types>,
    /// Scenarios to play, one after the other
    #[arg(long, default_value_t = 10)]
    seeds: u32,
    /// Seed of the first one
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    first: u32,
    /// Operations of each
    #[arg(long, default_value_t = 2000)]
    operations: u32,
    /// Leaves a probe out of the tracer: then each scenario has to find a difference
    #[arg(long, value_name = "PROBE")]
    without: Option<String>,
}

pub(crate) fn series(name: &str) -> Result<Series, String> {
    let known = Series::ALL.into_iter();
    known.clone().find(|series| series.name() == name).ok_or_else(|| {
        let names: Vec<_> = known.map(Series::name).collect();
        format!("one of {}", names.join(", "))
    })
}

/// `Ok(false)`: there were differences (or, without a probe, none), and they were shown.
pub(crate) fn scenario(args: &Args) -> Result<bool> {
    // tests/tests/life/ledger.rs reads the arguments with a value
    let mut words = vec![
        "--ignored".to_owned(),
        "--nocapture".to_owned(),
        "ledger::long_random_lives".to_owned(),
        format!("first={}", args.first),
        format!("seeds={}", args.seeds),
        format!("operations={}", args.operations),
    ];
    words.extend(args.without.iter().map(|probe| format!("without={probe}")));
    let limit = PER_SEED * args.seeds + PER_OPERATION * args.seeds * args.operations + vm::LIMIT;
    let bench = Bench::new()?;
    let column = bench.matrix().simulated(args.kernel)?;
    let column = args.types.map_or(column, |types| Column { types, ..column });
    let (ok, totals) = vm::test(&bench, &[column], &["life"], &words, limit)?;
    Ok(ok && totals.passed == 1)
}
