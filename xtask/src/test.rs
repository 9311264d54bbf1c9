//! `cargo xtask test`: every check, each announced, in parallel with the guests.

use crate::attack;
use crate::bench::{daemon, overhead};
use crate::check::{browser, dashboards, deny, links, manifests, rules};
use crate::closing::Totals;
use crate::passed::Passed;
use crate::run::{self, step};
use crate::vm::guest;
use crate::vm::matrix::{Column, Matrix};
use crate::vm::testbed::{Bench, Tested};
use crate::vm::{self, Boots, Selection};
use crate::vm::{boots, fixtures};
use crate::{dist, setup, space};
use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::scope;
use std::time::{Duration, Instant};

/// Crates that cargo can build for this machine: the BPF programs have their own target.
const HOST: [&str; 3] = ["--workspace", "--exclude", "kfd-trace-ebpf"];

/// Those that need kernel packages or rendered manifests are ignored in a plain `cargo test`.
const ALL: [&str; 4] = ["test", "--no-fail-fast", "--", "--include-ignored"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only format, lints, unit tests, and the core of the VM tests on one kernel
    #[arg(long)]
    fast: bool,
    /// All stages on each kernel: also what a further kernel has hardly ever shown to be wrong
    #[arg(long, conflicts_with = "fast")]
    everything: bool,
    /// Leave out what passed before on this very tree
    #[arg(long)]
    resume: bool,
}

/// A check on this machine. Tests that it runs are added to the sums.
struct Check {
    name: &'static str,
    when: When,
    run: fn(&mut Totals) -> Result<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// Only with `--fast`.
    Fast,
    /// Only without.
    Whole,
}

/// Those first that need no release binary: it is built meanwhile, by one CPU for minutes.
const CHECKS: [Check; 14] = [
    Check {
        name: "format",
        when: When::Always,
        run: |_| run::run(guest::cargo().args(["fmt", "--all", "--check"])),
    },
    Check { name: "links of the documentation", when: When::Always, run: |_| links::links() },
    Check { name: "lints", when: When::Always, run: |_| lints() },
    Check { name: "dependencies", when: When::Whole, run: |_| deny::check() },
    Check { name: "manifests of Kubernetes", when: When::Whole, run: |_| manifests::schemas() },
    Check { name: "rules and exposition for Prometheus", when: When::Whole, run: |_| rules::rules() },
    Check { name: "dashboards of Grafana", when: When::Whole, run: |_| dashboards::test() },
    Check { name: "pages in a browser", when: When::Whole, run: |_| browser::check() },
    Check {
        name: "unit tests",
        when: When::Fast,
        run: |totals| unit_tests(guest::cargo().arg("test"), totals),
    },
    Check { name: "unit tests, and the kernel model on the matrix", when: When::Whole, run: kernel_model },
    Check { name: "packages", when: When::Whole, run: |_| dist::check::check() },
    Check { name: "attacks on the daemon", when: When::Whole, run: |_| attack::check() },
    Check { name: "cost of the daemon", when: When::Whole, run: |_| costs(daemon::check()?, "daemon") },
    Check { name: "cost of the probes", when: When::Whole, run: |_| costs(overhead::check()?, "overhead") },
];

/// What `--fast` runs in the VM, on one kernel, without the tests that are run on one kernel only.
const CORE: &str = "sim";

/// `Ok(false)`: something failed, and was reported.
pub(crate) fn test(args: &Args) -> Result<bool> {
    let start = Instant::now();
    // Nothing else can run without its tools.
    announce("set-up");
    setup::setup().context("set-up")?;
    if !args.fast {
        space::for_the_tests()?;
        setup::packaging().context("set-up")?;
        setup::browser().context("set-up")?;
    }
    let passed = Passed::of_this_tree(args.resume)?;
    let stages = if args.fast { &[CORE][..] } else { &[] };
    let skip: Vec<String> = boots::once(CORE).map(|begin| format!("--skip={begin}")).collect();
    let filter = if args.fast { &skip[..] } else { &[] };
    // A passed part of a stage does not count as the stage.
    let selection = Selection { stages, filter, limit: vm::LIMIT, passed: (!args.fast).then_some(&passed) };
    let (bench, boots) = (OnceLock::new(), OnceLock::new());
    // The guests' programs are built by the first of their threads: linking them takes one CPU for minutes.
    let guests = || {
        let bench = bench.get_or_init(Bench::new).as_ref().ok();
        let new = |bench| Boots::new(bench, &columns(bench.matrix(), args), selection);
        if let Some(boots) = boots.get_or_init(|| bench.map(new)) {
            boots.work();
        }
    };
    let mut checked = Checked::default();
    scope(|scope| {
        // The checks of this machine run in parallel with as many guests as leave them a CPU; then one more
        // guest starts.
        (1..vm::guests()).for_each(|_| drop(scope.spawn(guests)));
        let skipped = if args.fast { When::Whole } else { When::Fast };
        for check in CHECKS.iter().filter(|check| check.when != skipped) {
            checked.check(check, &passed);
        }
        guests();
    });
    let (bench, boots) = (bench.get(), boots.into_inner().flatten());
    let mut tested = boots.map(Boots::tested).unwrap_or_default();
    match bench {
        Some(Ok(bench)) => bench.matrix().show(),
        Some(Err(error)) => tested.problems.push(format!("the VM: {error:#}")),
        None => tested.problems.push("the VM: no guest was started".to_owned()),
    }
    tested.show();
    Ok(checked.close(&tested, start.elapsed()))
}

/// The kernels to boot: those at hand, or with `--fast` the one on which everything is run.
fn columns(matrix: &Matrix, args: &Args) -> Vec<Column> {
    let columns = if args.everything { matrix.everything() } else { matrix.tested() };
    columns.into_iter().filter(|column| column.all || !args.fast).collect()
}

/// Results of the checks of this machine.
#[derive(Default)]
struct Checked {
    totals: Totals,
    failed: Vec<&'static str>,
    took: Vec<(&'static str, Duration)>,
}

impl Checked {
    fn check(&mut self, check: &Check, passed: &Passed) {
        announce(check.name);
        if let Some(totals) = passed.before(check.name) {
            step(format!("{}: passed before", check.name));
            return self.totals.add(totals);
        }
        let (begin, mut totals) = (Instant::now(), Totals::default());
        match (check.run)(&mut totals) {
            Ok(()) => passed.keep(check.name, totals),
            Err(error) => {
                eprintln!("error: {}: {error:#}", check.name);
                self.failed.push(check.name);
            }
        }
        self.totals.add(totals);
        self.took.push((check.name, begin.elapsed()));
        step(format!("{}: {:.1} s", check.name, begin.elapsed().as_secs_f64()));
    }

    /// The last lines: whether all is well.
    fn close(mut self, tested: &Tested, took: Duration) -> bool {
        println!();
        for (name, took) in &self.took {
            println!("{name}: {:.0} s", took.as_secs_f64());
        }
        println!();
        for name in &self.failed {
            println!("failed: {name}");
        }
        if !tested.is_well() {
            println!("failed: VM on the matrix");
        }
        self.totals.add(tested.totals);
        let ok = self.failed.is_empty() && tested.is_well();
        println!("{}", self.totals.line(ok, took));
        ok
    }
}

fn lints() -> Result<()> {
    run::run(guest::cargo().arg("clippy").args(HOST).args(["--all-targets", "--", "-D", "warnings"]))
}

/// Includes tests that need kernel packages or rendered manifests.
fn kernel_model(totals: &mut Totals) -> Result<()> {
    // The fixtures wait for the release binary.
    run::run(guest::cargo().args(["test", "--no-run"]))?;
    let dir = fixtures::fixtures()?;
    let mut all = guest::cargo();
    all.args(ALL).env("KFD_TRACE_FIXTURES", dir).env(manifests::VARIABLE, manifests::render()?);
    unit_tests(&mut all, totals)
}

/// The workspace's tests, and the library of the VM's tests.
fn unit_tests(all: &mut Command, totals: &mut Totals) -> Result<()> {
    let of_hosts = cargo_test(all, totals);
    let tests = ["test", "--no-fail-fast", "-p", "kfd-trace-tests", "--lib", "--bins"];
    cargo_test(guest::cargo().args(tests), totals)?;
    of_hosts
}

/// `well`: no figure is above the accepted one.
fn costs(well: bool, bench: &str) -> Result<()> {
    if !well {
        bail!("see above; `cargo xtask bench {bench} --accept` accepts it");
    }
    Ok(())
}

fn announce(name: &str) {
    eprintln!("\n######## {name}");
}

/// Runs `cargo test`, passes its lines on and adds up its closing lines.
fn cargo_test(command: &mut Command, totals: &mut Totals) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().context("cargo has no stdout")?;
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot read cargo's output")?;
        println!("{line}");
        if let Some(part) = Totals::parse(&line) {
            totals.add(part);
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if !status.success() {
        bail!("cargo test failed ({status})");
    }
    Ok(())
}
