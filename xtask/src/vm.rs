//! `cargo xtask vm`: boots the kernels of the matrix and runs the integration tests inside, or the demo,
//! or a shell.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::bench::{Bench, Mode};
use crate::closing::Totals;
use crate::qemu::End;
use crate::run::step;
use crate::series::Series;

/// The series for a shell or a demo where none is asked for: the newest with kfdsim.
const SHOWN: Series = Series::V6_12;

/// Longest a guest may take, far beyond what it needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(900);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel series to boot
    #[arg(long, value_enum, default_value = "all")]
    kernel: Choice,
    /// An interactive shell in the guest, all modules inserted (Ctrl-A X ends it)
    #[arg(long)]
    shell: bool,
    /// Run the demo in the guest instead of the tests
    #[arg(long, conflicts_with = "shell")]
    demo: bool,
    /// Give up on a guest after so many seconds
    #[arg(long, default_value_t = LIMIT.as_secs(), value_name = "SECONDS")]
    timeout: u64,
    /// Handed to the test executables: test name filters, --nocapture and the like
    #[arg(last = true)]
    filter: Vec<String>,
}

#[derive(Clone, Copy)]
enum Choice {
    One(Series),
    All,
}

impl ValueEnum for Choice {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Choice; 5] = [
            Choice::One(Series::V5_10),
            Choice::One(Series::V6_1),
            Choice::One(Series::V6_12),
            Choice::One(Series::V7_2),
            Choice::All,
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::One(series) => series.name(),
            Self::All => "all",
        }))
    }
}

/// `Ok(false)`: tests failed, and it was said.
pub(crate) fn vm(args: &Args) -> Result<bool> {
    let limit = Duration::from_secs(args.timeout);
    let one = match args.kernel {
        Choice::One(series) => series,
        Choice::All => SHOWN,
    };
    if args.shell {
        let bench = Bench::new()?;
        return bench.shell(one).map(|()| true);
    }
    if args.demo {
        return show(one, limit);
    }
    let wanted = match args.kernel {
        Choice::One(series) => vec![series],
        Choice::All => Series::ALL.to_vec(),
    };
    Ok(test(&wanted, &args.filter, limit)?.0)
}

/// The demo on the newest kernel that has kfdsim.
pub(crate) fn demo() -> Result<bool> {
    show(SHOWN, LIMIT)
}

fn show(series: Series, limit: Duration) -> Result<bool> {
    let bench = Bench::new()?;
    let boot = bench.boot(series, Mode::Demo, &[], limit)?;
    if let Some(trouble) = boot.trouble {
        bail!("{trouble}");
    }
    Ok(matches!(boot.run.end, End::Exit(0)))
}

/// Tests on the given kernels: whether all is well, and the sums. The last line is the sum's.
pub(crate) fn test(wanted: &[Series], filter: &[String], limit: Duration) -> Result<(bool, Totals)> {
    let start = Instant::now();
    let bench = Bench::new()?;
    let mut problems = Vec::new();
    let mut totals = Totals::default();
    for series in wanted {
        let begin = Instant::now();
        match bench.test(*series, filter, limit) {
            Ok((part, found)) => {
                totals.add(part);
                problems.extend(found.into_iter().map(|why| format!("Linux {}: {why}", series.name())));
            }
            Err(error) => problems.push(format!("Linux {}: {error:#}", series.name())),
        }
        step(format!("Linux {} done in {:.1} s", series.name(), begin.elapsed().as_secs_f64()));
    }
    let unfiltered = filter.iter().all(|word| word.starts_with('-'));
    if totals.run() == 0 && unfiltered {
        problems.push("no test has run".to_owned());
    }
    for problem in &problems {
        eprintln!("error: {problem}");
    }
    let ok = problems.is_empty() && totals.failed == 0;
    println!("\n{}", totals.line(ok, start.elapsed()));
    Ok((ok, totals))
}
