//! `cargo xtask soak`: the tracer for an hour of the guest's time, compared with a ledger and with its own
//! earlier memory use.

use crate::vm;
use crate::vm::boots::SOAK;
use crate::vm::scenario;
use crate::vm::series::Series;
use crate::vm::testbed::{Bench, Tested};
use anyhow::{Context as _, Result};
use std::io;
use std::time::Duration;

/// The host's time for a minute of the guest's, on a busy host.
const PER_MINUTE: Duration = Duration::from_secs(180);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel series to boot: one with kfdsim
    #[arg(long, value_parser = scenario::series, default_value = "6.12")]
    kernel: Series,
    /// How long, of the guest's time
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1440))]
    minutes: u32,
}

/// `Ok(false)`: the tracer differed or grew, and it was shown.
pub(crate) fn soak(args: &Args) -> Result<bool> {
    // tests/tests/soak/main.rs reads the arguments with a value
    let words = ["--ignored", "--nocapture", "as_long_as_asked", &format!("minutes={}", args.minutes)]
        .map(str::to_owned);
    let limit = vm::LIMIT + PER_MINUTE * args.minutes;
    let bench = Bench::new()?;
    let column = bench.matrix().simulated(args.kernel)?;
    let tested = bench.test(column, SOAK, &[], &words, limit, &mut io::stdout())?;
    let Tested { totals, problems, .. } = tested.context("there is no such test")?;
    for problem in &problems {
        eprintln!("error: Linux {}: {problem}", args.kernel.name());
    }
    Ok(problems.is_empty() && totals.failed == 0 && totals.passed == 1)
}
