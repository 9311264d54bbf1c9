//! `cargo xtask vm`: runs the integration tests inside guests with the kernels of the matrix, or the demo,
//! or a shell.

pub(crate) mod boots;
pub(crate) mod console;
pub(crate) mod debian;
pub(crate) mod demo;
pub(crate) mod driver;
pub(crate) mod emulator;
pub(crate) mod fixtures;
pub(crate) mod follow;
pub(crate) mod guest;
pub(crate) mod images;
pub(crate) mod initramfs;
pub(crate) mod kbuild;
pub(crate) mod kernels;
pub(crate) mod kfdsim;
pub(crate) mod matrix;
pub(crate) mod modules;
pub(crate) mod offer;
pub(crate) mod picture;
pub(crate) mod pulse;
pub(crate) mod qemu;
pub(crate) mod qmp;
pub(crate) mod root;
pub(crate) mod scenario;
pub(crate) mod series;
pub(crate) mod snapshot;
pub(crate) mod soak;
pub(crate) mod symbols;
pub(crate) mod testbed;
pub(crate) mod timing;
pub(crate) mod tracepoints;
pub(crate) mod types;
pub(crate) mod userland;
pub(crate) mod verdicts;
pub(crate) mod vmlinux;
pub(crate) mod watch;

use crate::apt::Gone;
use crate::closing::Totals;
use crate::passed::Passed;
use crate::run::{note, step};
use crate::vm::boots::Boot;
use crate::vm::driver::Driver;
use crate::vm::follow::End;
use crate::vm::matrix::{Column, Matrix, Types};
use crate::vm::series::Series;
use crate::vm::testbed::{Bench, Mode, Tested};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser};
use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{available_parallelism, scope};
use std::time::{Duration, Instant};
use std::vec;

/// Time limit of a guest, far beyond what it needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(3600);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel series to boot
    #[arg(long, value_enum, default_value = "all")]
    kernel: Choice,
    /// Boot the driver of this folder in the place of Debian's amdgpu (docs/development.md): its stages with
    /// GPUs
    #[arg(long, value_name = "DIR")]
    driver: Option<PathBuf>,
    /// Where the tracer has the driver's types from [default: kernel, but file for GPUs on a module without
    /// BTF]
    #[arg(long, value_enum, conflicts_with = "driver")]
    types: Option<Types>,
    /// Only these stages (repeatable); with --shell or --demo the system of that stage
    #[arg(long = "stage", value_name = "STAGE", value_parser = PossibleValuesParser::new(boots::stage_names()))]
    stages: Vec<String>,
    /// An interactive shell in the guest, all modules inserted (Ctrl-A X ends it)
    #[arg(long)]
    shell: bool,
    /// Run the demo in the guest instead of the tests
    #[arg(long, conflicts_with = "shell")]
    demo: bool,
    /// Build QEMU from Debian's source with xtask/qemu/icount-prologue.patch, for all later runs: guests take
    /// some half of the CPU time in it (docs/development.md)
    #[arg(long, exclusive = true)]
    build_qemu: bool,
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
        const ALL: [Choice; 6] = [
            Choice::One(Series::V5_10),
            Choice::One(Series::V6_1),
            Choice::One(Series::V6_12),
            Choice::One(Series::V7_2),
            Choice::One(Series::V7_3),
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

/// `Ok(false)`: tests failed, and it was reported.
pub(crate) fn vm(args: &Args) -> Result<bool> {
    if args.build_qemu {
        return emulator::build().map(|()| true);
    }
    let limit = Duration::from_secs(args.timeout);
    let stages: Vec<&str> = args.stages.iter().map(String::as_str).collect();
    let driver = args.driver.as_deref().map(Driver::read).transpose()?;
    let other =
        driver.as_ref().map(|driver| Ok::<_, anyhow::Error>((driver.facts, driver.source_of_types()?)));
    let other = other.transpose()?;
    if other.is_some() && matches!(args.kernel, Choice::All) {
        bail!("--driver is for one kernel: name it with --kernel");
    }
    let bench = Bench::new()?.with_driver(driver);
    let with = |column: Column| {
        let column = match args.types {
            Some(types) => Column { types, ..column },
            None if stages.iter().any(|stage| boots::WITH_GPUS.contains(stage)) => column.with_some_types(),
            None => column,
        };
        other.map_or(column, |(facts, types)| column.with(facts, types))
    };
    if args.shell || args.demo {
        let one = with(args.kernel.one(bench.matrix())?);
        let boot = shown_boot(one, &stages)?;
        return if args.demo {
            show(&bench, one, boot, limit)
        } else {
            bench.shell(one, boot).map(|()| true)
        };
    }
    let wanted: Vec<Column> = args.kernel.columns(bench.matrix())?.into_iter().map(with).collect();
    // The others are about Debian's driver.
    let stages = match other {
        Some((_, Types::Table)) if stages.is_empty() => [&boots::WITH_GPUS[..], &[boots::TOOL]].concat(),
        Some(_) if stages.is_empty() => boots::WITH_GPUS.to_vec(),
        _ => stages,
    };
    Ok(test(&bench, &wanted, &stages, &args.filter, limit)?.0)
}

impl Choice {
    /// For a shell or a demo.
    fn one(self, matrix: &Matrix) -> Result<Column> {
        match self {
            Self::One(series) => matrix.column(series),
            Self::All => matrix.main(),
        }
    }

    fn columns(self, matrix: &Matrix) -> Result<Vec<Column>> {
        match self {
            Self::One(series) => Ok(vec![matrix.column(series)?]),
            Self::All => Ok(matrix.columns().to_vec()),
        }
    }
}

/// The request for every guest.
#[derive(Clone, Copy, Default)]
pub(crate) struct Selection<'a> {
    /// All, where none is named.
    pub(crate) stages: &'a [&'a str],
    pub(crate) filter: &'a [String],
    /// Of one guest.
    pub(crate) limit: Duration,
    /// Results that need not be repeated.
    pub(crate) passed: Option<&'a Passed>,
}

/// Guests still to be run, and the results of finished ones.
pub(crate) struct Boots<'a> {
    bench: &'a Bench,
    selection: Selection<'a>,
    waiting: Mutex<vec::IntoIter<(Column, Boot)>>,
    tested: Mutex<Tested>,
    /// Reports go to stdout as they arrive: there is only one guest at a time, and nothing else.
    live: bool,
}

impl<'a> Boots<'a> {
    /// The guests of these kernels that run one of the stages.
    pub(crate) fn new(bench: &'a Bench, wanted: &[Column], selection: Selection<'a>) -> Self {
        let selected = |(column, boot): &(Column, Boot)| {
            boot.run(*column).any(|stage| boots::is_wanted(*column, stage.name, selection.stages))
        };
        let waiting: Vec<_> = boots::of(wanted).into_iter().filter(selected).collect();
        Self {
            bench,
            selection,
            waiting: Mutex::new(waiting.into_iter()),
            tested: Mutex::default(),
            live: false,
        }
    }

    /// Runs one guest after the other until none is left. A guest takes one CPU: as many threads as CPUs may
    /// call this at once.
    pub(crate) fn work(&self) {
        // A separate statement: a guard in the loop's head would be held for the whole iteration.
        let next = || unpoisoned(&self.waiting).next();
        while let Some((column, boot)) = next() {
            let place = format!("{}, {}", column.title(), boot.name);
            let in_part = boot
                .run(column)
                .any(|stage| stage.left_out(column).next().is_some() || stage.only(column).next().is_some());
            let kept = if in_part { format!("{place}, in part") } else { place.clone() };
            if let Some(totals) = self.selection.passed.and_then(|passed| passed.before(&kept)) {
                step(format!("{place}: passed before"));
                unpoisoned(&self.tested).totals.add(totals);
                continue;
            }
            let (begin, mut report) = (Instant::now(), Vec::new());
            let out: &mut dyn Write = if self.live { &mut io::stdout() } else { &mut report };
            let tested = self.bench.test(
                column,
                boot,
                self.selection.stages,
                self.selection.filter,
                self.selection.limit,
                out,
            );
            // A closed stdout is no reason to leave the other guests alone.
            let _ = io::stdout().write_all(&report);
            match tested {
                Ok(None) => continue,
                Ok(Some(tested)) => {
                    if let Some(passed) = self.selection.passed.filter(|_| tested.is_well()) {
                        passed.keep(&kept, tested.totals);
                    }
                    unpoisoned(&self.tested).add(&place, tested);
                }
                Err(error) if error.is::<Gone>() => note(format!("{place}: left out, {error:#}")),
                Err(error) => unpoisoned(&self.tested).problems.push(format!("{place}: {error:#}")),
            }
            step(format!("{place}: done in {:.1} s", begin.elapsed().as_secs_f64()));
        }
    }

    /// The results of all; to be called when no thread runs a guest any more.
    pub(crate) fn tested(self) -> Tested {
        let mut tested = self.tested.into_inner().unwrap_or_else(PoisonError::into_inner);
        let unfiltered = self.selection.filter.iter().all(|word| word.starts_with('-'));
        if tested.totals.run() == 0 && unfiltered {
            tested.problems.push("no test has run".to_owned());
        }
        tested
    }
}

/// A guest takes one CPU: as many run at once as there are CPUs.
pub(crate) fn guests() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// A guest's thread that panicked has reported why; the others continue.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The demo on the kernel on which everything is run.
pub(crate) fn demo() -> Result<bool> {
    let bench = Bench::new()?;
    let main = bench.matrix().main()?;
    show(&bench, main, shown_boot(main, &[])?, LIMIT)
}

/// The guest of the requested stage; otherwise one with the GPUs of the main boot.
fn shown_boot(column: Column, stages: &[&str]) -> Result<Boot> {
    let boot = boots::with_stage(stages.first().copied()).context("no such stage")?;
    if let Some(stage) = stages.first()
        && !boot.stages(column).any(|one| one.name == *stage)
    {
        bail!("{} has no stage {stage}", column.title());
    }
    Ok(boot)
}

fn show(bench: &Bench, column: Column, boot: Boot, limit: Duration) -> Result<bool> {
    let booted = bench.boot(column, boot, Mode::Demo, &[], limit, &mut io::stdout())?;
    if let Some(trouble) = booted.trouble {
        bail!("{trouble}");
    }
    Ok(matches!(booted.run.end, End::Exit(0)))
}

/// Tests on the given kernels, in the given stages or in all if none is given: returns whether all passed,
/// and the sums. The last line is the sum's. The limit is that of one guest.
pub(crate) fn test(
    bench: &Bench,
    wanted: &[Column],
    stages: &[&str],
    filter: &[String],
    limit: Duration,
) -> Result<(bool, Totals)> {
    let start = Instant::now();
    let selection = Selection { stages, filter, limit, passed: None };
    let mut boots = Boots::new(bench, wanted, selection);
    let guests = guests().min(unpoisoned(&boots.waiting).len());
    boots.live = guests <= 1;
    scope(|scope| (0..guests).for_each(|_| drop(scope.spawn(|| boots.work()))));
    let tested = boots.tested();
    tested.show();
    let ok = tested.is_well();
    println!("\n{}", tested.totals.line(ok, start.elapsed()));
    Ok((ok, tested.totals))
}
