//! `cargo xtask vm`: boots the kernels of the matrix and runs the integration tests inside, or the demo,
//! or a shell.

use std::io::{self, Write};
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{available_parallelism, scope};
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
pub(crate) const LIMIT: Duration = Duration::from_secs(3600);

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

/// What is asked of every boot.
#[derive(Clone, Copy)]
struct Ask<'a> {
    stages: &'a [&'a str],
    filter: &'a [String],
    limit: Duration,
}

#[derive(Default)]
struct Outcome {
    totals: Totals,
    problems: Vec<String>,
}

/// A guest takes one CPU: as many run at once as there are. One alone reports as it goes, several each as a whole.
fn at_once(bench: &Bench, boots: Vec<(Series, Boot)>, ask: Ask<'_>) -> Outcome {
    let guests = available_parallelism().map_or(1, NonZero::get).min(boots.len());
    let waiting = Mutex::new(boots.into_iter());
    let outcome = Mutex::new(Outcome::default());
    // A statement of its own: a guard in the loop's head would be held for the whole turn.
    let next = || unpoisoned(&waiting).next();
    let work = || {
        while let Some((series, boot)) = next() {
            let mut report = Vec::new();
            let begin = Instant::now();
            let out: &mut dyn Write = if guests == 1 { &mut io::stdout() } else { &mut report };
            let tested = bench.test(series, boot, ask.stages, ask.filter, ask.limit, out);
            let mut outcome = unpoisoned(&outcome);
            // A closed stdout is no reason to leave the other guests alone.
            let _ = io::stdout().write_all(&report);
            let place = format!("Linux {}, {}", series.name(), boot.name);
            match tested {
                Ok(None) => continue,
                Ok(Some((part, found))) => {
                    outcome.totals.add(part);
                    outcome.problems.extend(found.into_iter().map(|why| format!("{place}: {why}")));
                }
                Err(error) => outcome.problems.push(format!("{place}: {error:#}")),
            }
            step(format!("{place}: done in {:.1} s", begin.elapsed().as_secs_f64()));
        }
    };
    scope(|scope| (0..guests).for_each(|_| drop(scope.spawn(work))));
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A guest's thread that panicked has told why; the others go on.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The demo on the newest kernel that has kfdsim.
pub(crate) fn demo() -> Result<bool> {
    show(SHOWN, shown_boot(SHOWN, &[])?, LIMIT)
}

/// The boot that has the stage asked for, else the main one.
fn shown_boot(series: Series, stages: &[&str]) -> Result<Boot> {
    let boot = boots::with_stage(stages.first().copied()).context("no such stage")?;
    if boot.stages(series).next().is_none() {
        bail!("Linux {} has no boot {}", series.name(), boot.name);
    }
    Ok(boot)
}

fn show(series: Series, boot: Boot, limit: Duration) -> Result<bool> {
    let booted = Bench::new()?.boot(series, boot, Mode::Demo, &[], limit, &mut io::stdout())?;
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
    let ask = Ask { stages, filter, limit };
    let asked = |(series, boot): &(Series, Boot)| {
        stages.is_empty() || boot.stages(*series).any(|stage| stages.contains(&stage.name))
    };
    let Outcome { totals, mut problems } = at_once(&bench, boots::of(wanted).filter(asked).collect(), ask);
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
