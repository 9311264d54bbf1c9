//! `cargo xtask vm`: boots the kernels of the matrix and runs the integration tests inside, or the demo,
//! or a shell.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::bench::{Bench, Mode};
use crate::boots::{self, Boot};
use crate::closing::Totals;
use crate::qemu::End;
use crate::run::step;
use crate::series::Series;

/// The series for a shell or a demo where none is asked for: the newest with kfdsim.
const SHOWN: Series = Series::V6_12;

/// Longest a guest may take, far beyond what it needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(1800);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel series to boot
    #[arg(long, value_enum, default_value = "all")]
    kernel: Choice,
    /// Only these stages (repeatable); with --shell or --demo the boot of that one
    #[arg(long = "stage", value_name = "STAGE", value_parser = PossibleValuesParser::new(boots::stage_names()))]
    stages: Vec<String>,
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
    let stages: Vec<&str> = args.stages.iter().map(String::as_str).collect();
    if args.shell || args.demo {
        let boot = shown_boot(one, &stages)?;
        return if args.demo {
            show(one, boot, limit)
        } else {
            Bench::new()?.shell(one, boot).map(|()| true)
        };
    }
    let wanted = match args.kernel {
        Choice::One(series) => vec![series],
        Choice::All => Series::ALL.to_vec(),
    };
    Ok(test(&wanted, &stages, &args.filter, limit)?.0)
}

/// The demo on the newest kernel that has kfdsim.
pub(crate) fn demo() -> Result<bool> {
    show(SHOWN, shown_boot(SHOWN, &[])?, LIMIT)
}

/// The boot that has the stage asked for, else the first.
fn shown_boot(series: Series, stages: &[&str]) -> Result<Boot> {
    let boot = boots::with_stage(stages.first().copied()).context("no such stage")?;
    if boot.stages(series).next().is_none() {
        bail!("Linux {} has no boot {}", series.name(), boot.name);
    }
    Ok(boot)
}

fn show(series: Series, boot: Boot, limit: Duration) -> Result<bool> {
    let booted = Bench::new()?.boot(series, boot, Mode::Demo, &[], limit)?;
    if let Some(trouble) = booted.trouble {
        bail!("{trouble}");
    }
    Ok(matches!(booted.run.end, End::Exit(0)))
}

/// Tests on the given kernels, in the given stages or in all where none is given: whether all is well, and
/// the sums. The last line is the sum's. The limit is that of one guest.
pub(crate) fn test(
    wanted: &[Series],
    stages: &[&str],
    filter: &[String],
    limit: Duration,
) -> Result<(bool, Totals)> {
    let start = Instant::now();
    let bench = Bench::new()?;
    let mut problems = Vec::new();
    let mut totals = Totals::default();
    let all = wanted.iter().flat_map(|series| boots::of(*series).map(|boot| (*series, boot)));
    for (series, boot) in all {
        let begin = Instant::now();
        let place = format!("Linux {}, {}", series.name(), boot.name);
        match bench.test(series, boot, stages, filter, limit) {
            Ok(None) => continue,
            Ok(Some((part, found))) => {
                totals.add(part);
                problems.extend(found.into_iter().map(|why| format!("{place}: {why}")));
            }
            Err(error) => problems.push(format!("{place}: {error:#}")),
        }
        step(format!("{place}: done in {:.1} s", begin.elapsed().as_secs_f64()));
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
