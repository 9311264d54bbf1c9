//! The program: parses the command line, runs the command, prints an error once.

use anyhow::{Context as _, Result};
use kfd_trace::cli::{
    AmdLogArgs, Cli, Colour, Command, DriverTypesArgs, Global, HwArgs, PsArgs, RunlistArgs, TraceArgs,
    TracingOptions,
};
use kfd_trace::command::runlist::RunlistOptions;
use kfd_trace::command::{
    amd_log, daemon, doctor, driver_types, hw, manual, metrics, ps, runlist, status, trace,
};
use kfd_trace::driver_types::TypesOptions;
use kfd_trace::kernel::Roots;
use kfd_trace::kernel::types::TypesPlaces;
use kfd_trace::probes::plan::{Attach, Choice};
use kfd_trace::runtime::exit::Stop;
use kfd_trace::runtime::privilege::{self, Reads};
use kfd_trace::runtime::stderr;
use kfd_trace::serve::web_process;
use log::LevelFilter;
use std::io::IsTerminal as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::from_arguments(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stderr::say(format_args!("{error:#}"));
            let code =
                error.downcast_ref::<Stop>().map_or(kfd_trace::runtime::exit::FAILED, |stop| stop.code);
            ExitCode::from(code)
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let Global { procfs, sysfs, logs, drivers, driver_btf, verbose } = cli.global;
    let level = [LevelFilter::Warn, LevelFilter::Info, LevelFilter::Debug].get(usize::from(verbose));
    let level = level.copied().unwrap_or(LevelFilter::Trace);
    stderr::log_from(level);
    let arguments = match &cli.command {
        None => cli.trace.cmdline,
        Some(Command::Ps(args)) => args.cmdline,
        Some(_) => false,
    };
    let types = TypesPlaces { file: driver_btf, folder: drivers, refuted: Vec::new() };
    let roots = Roots { procfs, sysfs, logs, arguments, types };
    let nothing = Reads::default();
    // The daemon does it once it has its ports, `amd-log` once it has its files, `hw` where it reads no copies.
    match &cli.command {
        None => {
            let TracingOptions { sample, tracepoints, .. } = &cli.trace.ring;
            let (tracefs, memory) = (*tracepoints, !sample.is_zero());
            privilege::give_up(&roots, Reads { tracefs, memory, ..nothing })?;
        }
        Some(Command::Runlist(_)) => privilege::give_up(&roots, nothing)?,
        Some(Command::Status(_)) => privilege::give_up(&roots, Reads { tracefs: true, ..nothing })?,
        Some(Command::Ps(_)) => privilege::give_up(&roots, Reads { memory: true, ..nothing })?,
        Some(Command::Doctor(_)) => privilege::give_up(&roots, Reads { descriptors: true, ..nothing })?,
        // The others do not use the kernel.
        Some(_) => {}
    }
    match cli.command {
        None => block_on(trace::run(&stream(roots, cli.trace))),
        Some(Command::Ps(PsArgs { format, wide, url, .. })) => {
            Ok(ps::run(&roots, &ps::PsOptions { json: format.json, wide, url })?)
        }
        Some(Command::Runlist(RunlistArgs { interval, duration, buffer_size, json })) => {
            let redraw = !json && std::io::stdout().is_terminal();
            let choice = Choice { attach: Attach::Mixed, ..Choice::default() };
            let options =
                RunlistOptions { roots, interval, duration, json, redraw, ring_bytes: buffer_size, choice };
            block_on(runlist::run(&options))
        }
        Some(Command::Status(args)) => Ok(status::run(&roots, args.json)?),
        Some(Command::Doctor(args)) => Ok(doctor::run(&roots, args.pid, args.format.json)?),
        Some(Command::Hw(HwArgs { mqds, hqds, gfx, pid, format })) => {
            Ok(hw::run(&roots, &hw::HwOptions { mqds, hqds, gfx, pid, json: format.json })?)
        }
        Some(Command::AmdLog(args)) => amd_logs(roots, args),
        Some(Command::DriverTypes(args)) => {
            let DriverTypesArgs { source, headers, module, output, timeout, if_missing, best_effort, root } =
                args;
            let options = TypesOptions { source, headers, module, output, timeout, if_missing };
            match driver_types::run(&roots, root.as_deref(), &options) {
                Err(why) if best_effort => stderr::say(why),
                made => made?,
            }
            Ok(())
        }
        Some(Command::WebServer) => Ok(web_process::run()?),
        Some(Command::Metrics) => Ok(metrics::run()?),
        Some(Command::Man { folder }) => Ok(manual::pages(&folder)?),
        Some(Command::Completions { shell }) => Ok(manual::completions(shell)?),
        Some(Command::Daemon(args)) => block_on(daemon::run(&daemon::DaemonOptions {
            roots,
            listen: (!args.systemd_socket).then_some(args.listen),
            web_config: args.web_config,
            health: args.health,
            allowed_hosts: args.allowed_hosts,
            detail: args.metrics.detail(),
            ring_bytes: args.ring.buffer_size,
            sample: args.ring.sample,
            choice: args.ring.choice(Attach::Single),
        })),
    }
}

fn amd_logs(roots: Roots, args: AmdLogArgs) -> Result<()> {
    let AmdLogArgs { files, format, follow, live, stream } = args;
    let options = amd_log::LogOptions { roots, files, follow, json: format.json, live, stream };
    // Before capabilities go: a log may be another user's.
    let opened = amd_log::Opened::open(&options)?;
    if live {
        privilege::give_up(&options.roots, Reads::default())?;
    }
    block_on(amd_log::run(options, opened))
}

fn stream(roots: Roots, args: TraceArgs) -> trace::StreamOptions {
    let colour = match args.color {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    trace::StreamOptions {
        roots,
        pids: args.pids,
        comm: args.comm,
        kinds: args.events.into_iter().collect(),
        json: args.json,
        colour,
        duration: args.duration,
        ring_bytes: args.ring.buffer_size,
        sample: args.ring.sample,
        choice: args.ring.choice(Attach::Mixed),
    }
}

fn block_on(command: impl Future<Output = Result<(), Stop>>) -> Result<()> {
    // One thread follows the ring buffer; scrapes run beside it on the runtime's blocking threads.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let done = runtime.block_on(command);
    // A reading that is under way is not waited for. The kernel waits for its thread where that cannot be
    // interrupted.
    runtime.shutdown_background();
    Ok(done?)
}
