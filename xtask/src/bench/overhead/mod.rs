//! `cargo xtask bench overhead`: the cost that tracing adds to an ioctl, in instructions. Boots a guest whose
//! clocks count them, reads the report of its kfd-cost (tests/src/cost), and shows it as a table or as JSON.

mod baseline;
mod figures;
mod own;
mod table;

use crate::bench::baseline::{Baseline, Figure};
use crate::run::{note, step};
use crate::vm::boots::COST;
use crate::vm::follow::End;
use crate::vm::matrix::Column;
use crate::vm::scenario;
use crate::vm::series::Series;
use crate::vm::testbed::{Bench, Mode};
use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use figures::{Report, Row};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Time limit of a guest, far beyond what it needs.
const LIMIT: Duration = Duration::from_secs(3600);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel series to boot: one with kfdsim (repeatable)
    #[arg(long = "kernel", value_name = "KERNEL", value_parser = scenario::series, default_value = "6.12")]
    kernels: Vec<Series>,
    /// Only these tracers (repeatable), and what they are compared with
    #[arg(long = "subject", value_name = "SUBJECT", value_parser = PossibleValuesParser::new(figures::SUBJECTS))]
    subjects: Vec<String>,
    /// An array of objects instead of a table
    #[arg(long)]
    json: bool,
    /// Measure the tracer alone, and fail if a figure is more than 15 % above the accepted one
    /// (xtask/baselines)
    #[arg(long, conflicts_with = "subjects")]
    check: bool,
    /// Measure the tracer alone, and make its figures the accepted ones
    #[arg(long, conflicts_with_all = ["check", "subjects"])]
    accept: bool,
}

/// `Ok(false)`: a figure has grown, and was reported.
pub(crate) fn overhead(args: &Args) -> Result<bool> {
    let bench = Bench::without_tests()?;
    let columns = args.kernels.iter().map(|series| bench.matrix().simulated(*series));
    all(&bench, &columns.collect::<Result<Vec<Column>>>()?, args)
}

/// The part of `bench overhead --check` for the tests: the tracer alone, on one kernel, if there is one.
pub(crate) fn check() -> Result<bool> {
    let bench = Bench::without_tests()?;
    let main = match bench.matrix().main() {
        Ok(main) => main,
        Err(why) => {
            note(format!("left out: {why}"));
            return Ok(true);
        }
    };
    let args = Args { kernels: vec![], subjects: vec![], json: false, check: true, accept: false };
    all(&bench, &[main], &args)
}

fn all(bench: &Bench, columns: &[Column], args: &Args) -> Result<bool> {
    let words = words(args);
    let mut rows = Vec::new();
    let mut well = true;
    for column in columns {
        let measured = measure(bench, *column, &words)?;
        let now = baseline::of(&measured.release, &measured.rows, &measured.own);
        if args.check {
            well &= baseline::is_well(Baseline::find(&baseline::name(column.name()))?.as_ref(), &now);
        }
        if args.accept {
            note(format!("wrote {}", now.save(&baseline::name(column.name()))?.display()));
        }
        if !args.json {
            println!(
                "Linux {}: instructions of an operation\n\n{}",
                measured.release,
                table::table(&measured.rows)
            );
            print!("{}", table::own(&measured.own));
        }
        rows.extend(measured.rows);
    }
    if args.json {
        println!("{}", figures::json(&rows)?);
    }
    Ok(well)
}

/// Requests the tracer's own cost from the guest.
const OWN: &str = "--own";

/// Arguments for the guest: everything, if nothing is selected.
fn words(args: &Args) -> Vec<String> {
    if args.check || args.accept {
        return vec!["--subject=kfd_trace".to_owned(), OWN.to_owned()];
    }
    args.subjects.iter().map(|name| format!("--subject={name}")).collect()
}

/// The tracer's own cost, on the kernel of the tests.
pub(crate) fn own() -> Result<Vec<Figure>> {
    let bench = Bench::without_tests()?;
    Ok(measure(&bench, bench.matrix().main()?, &[OWN.to_owned()])?.own)
}

struct Measured {
    /// Of the kernel.
    release: String,
    rows: Vec<Row>,
    /// Of the tracer itself.
    own: Vec<Figure>,
}

fn measure(bench: &Bench, column: Column, words: &[String]) -> Result<Measured> {
    let begin = Instant::now();
    let mut report = Sieve::default();
    let booted = bench.boot(column, COST, Mode::Cost, words, LIMIT, &mut report)?;
    if let Some(trouble) = booted.trouble {
        bail!("Linux {}: {trouble}", column.name());
    }
    if !matches!(booted.run.end, End::Exit(0)) {
        bail!("Linux {}: the guest could not measure, see above", column.name());
    }
    let reported: Vec<Report> = report.reported(Report::parse)?;
    let own = report.reported(own::parse)?;
    for line in figures::repeats(&reported) {
        note(line);
    }
    let rows = figures::rows(column.name(), &reported)?;
    step(format!("Linux {}: measured in {:.0} s", booted.release, begin.elapsed().as_secs_f64()));
    Ok(Measured { release: booted.release, rows, own })
}

/// A guest's report: kept, and shown on stderr as it arrives, since stdout is for the result.
#[derive(Default)]
struct Sieve(Vec<u8>);

impl Sieve {
    fn reported<T>(&self, parse: impl Fn(&str) -> Option<Result<T>>) -> Result<Vec<T>> {
        let lines = self.0.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
        lines.filter_map(parse).collect()
    }
}

impl Write for Sieve {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        // A closed stderr is no reason to lose the figures.
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
