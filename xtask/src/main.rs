//! `cargo xtask`: set-up, build, VM test bed, tests and demo of kfd-trace. This file only dispatches.

mod apt;
mod attack;
mod bench;
mod build;
mod check;
mod closing;
mod dist;
mod fleet;
mod folder;
mod lock;
mod passed;
mod paths;
mod run;
mod setup;
mod space;
mod stamp;
mod test;
mod vm;

use bench::{daemon, look, overhead};
use check::{browser, dashboards, deny, fuzz, links, manifests, questions, rules};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use vm::{demo, fixtures, picture, scenario, soak, verdicts};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Set-up, build, VM test bed, tests and demo of kfd-trace.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what is missing: Debian packages, Rust components, bpf-linker
    Setup,
    /// Build the release binary: one static file, the BPF object inside
    Build,
    /// Boot Debian kernels with the real amdgpu in QEMU and run the integration tests inside
    Vm(vm::Args),
    /// Write files of every kernel of the matrix to target/fixtures, without booting
    Fixtures,
    /// Boot every kernel of the matrix once and write docs/kernels.md
    Kernels,
    /// Write the pictures of the documentation, docs/page.png and those of docs/tour.md, from a run in the VM
    /// (needs Debian's chromium)
    Picture,
    /// Play random lives of KFD processes in the VM and compare the tracer with a ledger of them
    Scenario(scenario::Args),
    /// Play random lives for an hour of the guest's time, and compare the tracer's memory with what it was
    Soak(soak::Args),
    /// Measure what the tracer costs
    #[command(subcommand)]
    Bench(Benchmark),
    /// Attack a daemon on loopback as a hostile client would, and show how it holds
    Attack(attack::Args),
    /// Simulate a fleet: what its nodes cost Prometheus and a store, and where that breaks
    Fleet(fleet::Args),
    /// Feed synthetic input to the readers of records, BTF, symbols, flags, procfs and sysfs, until one
    /// breaks or the time is over
    Fuzz(fuzz::Args),
    /// Check the recording rules and alerts of Prometheus and run their tests, and check the exposition
    Rules,
    /// Pack what `cargo xtask build` makes, and check the packages and their systemd unit
    Packages,
    /// Check that the documentation's links lead somewhere
    Links,
    /// Check licences, duplicates, sources and advisories of the dependencies
    Deny,
    /// Check the manifests of Kubernetes: against the published schemas, and against the daemon's flags,
    /// pages and capabilities
    Manifests,
    /// Check the daemon's pages in a headless Chromium
    Browser(browser::Args),
    /// Write Grafana's dashboards and check them
    Dashboards(dashboards::Args),
    /// Check the questions of deploy/fleet in chDB, which it fetches, against answers made without SQL
    Questions(questions::Args),
    /// Everything: set-up, and every check and test there is
    Test(test::Args),
    /// Pack the release binary: a tarball, a .deb and an .rpm, and their checksums, below target/dist
    Dist(dist::Args),
    /// Show kfd-trace at work: here if there is an AMD GPU, else in the VM on a simulated one
    Demo,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Instructions that tracing adds to an ioctl, counted in the VM, beside bpftrace and strace
    Overhead(overhead::Args),
    /// What records and scrapes cost the daemon: natively, from generated records
    Daemon(daemon::Args),
    /// What it costs to replay a recording of a million events, and to watch 10,000 queues
    Look(look::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Setup => setup::setup(),
        Command::Build => build::released().map(|binary| println!("{}", binary.display())),
        Command::Vm(args) => return exit(vm::vm(&args)),
        Command::Scenario(args) => return exit(scenario::scenario(&args)),
        Command::Soak(args) => return exit(soak::soak(&args)),
        Command::Fixtures => fixtures::fixtures().map(drop),
        Command::Kernels => verdicts::write(),
        Command::Picture => picture::picture(),
        Command::Attack(args) => return exit(attack::attack(&args)),
        Command::Fleet(args) => fleet::fleet(&args),
        Command::Fuzz(args) => fuzz::fuzz(&args),
        Command::Bench(Benchmark::Overhead(args)) => return exit(overhead::overhead(&args)),
        Command::Bench(Benchmark::Daemon(args)) => return exit(daemon::bench(&args)),
        Command::Bench(Benchmark::Look(args)) => look::look(&args),
        Command::Dist(args) => dist::dist(&args),
        Command::Packages => dist::check::check(),
        Command::Rules => rules::rules(),
        Command::Manifests => manifests::manifests(),
        Command::Links => links::links(),
        Command::Deny => deny::deny(),
        Command::Browser(args) => browser::browser(&args),
        Command::Dashboards(args) => dashboards::dashboards(&args),
        Command::Questions(args) => questions::questions(&args),
        Command::Test(args) => return exit(test::test(&args)),
        Command::Demo => return exit(demo::demo()),
    };
    exit(done.map(|()| true))
}

/// `Ok(false)` is a failure that has already been reported (a failed test, for example).
fn exit(outcome: anyhow::Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
