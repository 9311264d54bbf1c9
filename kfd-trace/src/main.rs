//! The program: parses the command line, runs the command, prints an error once.

use anyhow::{Context as _, Result, ensure};
use kfd_trace::cli::{
    AmdLogArgs, Cli, Colour, Command, DoctorArgs, DriverTypesArgs, FleetCommand, FleetPsArgs, Global, HwArgs,
    LineArgs, PsArgs, RecordArgs, ReplayArgs, RunArgs, RunlistArgs, TimelineArgs, TopArgs, TraceArgs,
    TracingOptions, WhoseArgs,
};
use kfd_trace::command::runlist::RunlistOptions;
use kfd_trace::command::{
    amd_log, daemon, doctor, driver_types, fleet, hw, manual, metrics, ps, replay, return_probes, runlist,
    status, timeline, top, trace,
};
use kfd_trace::driver_types::{TypesOptions, run_builder};
use kfd_trace::kernel::Roots;
use kfd_trace::kernel::types::TypesPlaces;
use kfd_trace::otlp::{self, OtlpOptions, Settings};
use kfd_trace::probes::plan::{Attach, Choice};
use kfd_trace::remote::{self, Access, AccessOptions};
use kfd_trace::runtime::exit::Stop;
use kfd_trace::runtime::launched::{self, Launched};
use kfd_trace::runtime::output_file;
use kfd_trace::runtime::privilege::{self, Reads};
use kfd_trace::runtime::stderr;
use kfd_trace::runtime::stdout::Stdout;
use kfd_trace::runtime::terminal;
use kfd_trace::runtime::user::{self, RunAs};
use kfd_trace::serve::web_process;
use log::LevelFilter;
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::from_arguments(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let stop = error.downcast_ref::<Stop>();
            if stop.is_none_or(|stop| !stop.line.is_empty()) {
                stderr::say(format_args!("{error:#}"));
            }
            ExitCode::from(stop.map_or(kfd_trace::runtime::exit::FAILED, |stop| stop.code))
        }
    }
}

/// Returns the exit code.
fn run(cli: Cli) -> Result<u8> {
    let Cli { trace: stream_args, global, command } = cli;
    let Global { procfs, sysfs, logs, engines, slurm, drivers, driver_btf, verbose } = global;
    let level = [LevelFilter::Warn, LevelFilter::Info, LevelFilter::Debug].get(usize::from(verbose));
    let level = level.copied().unwrap_or(LevelFilter::Trace);
    stderr::log_from(level);
    let arguments = match &command {
        None => stream_args.lines.cmdline,
        Some(Command::Run(args)) => args.lines.cmdline,
        Some(Command::Ps(args)) => args.cmdline,
        Some(Command::Record(args)) => args.cmdline,
        Some(Command::Timeline(args)) => args.cmdline,
        Some(_) => false,
    };
    let types = TypesPlaces { file: driver_btf, folder: drivers, refuted: Vec::new() };
    let roots = Roots { procfs, sysfs, logs, engines, slurm, arguments, types };
    let nothing = Reads::default();
    let record = match &command {
        None => record(stream_args.lines.record.as_deref())?,
        Some(Command::Run(args)) => record(args.lines.record.as_deref())?,
        Some(Command::Record(args)) => record(Some(&args.output))?,
        Some(_) => None,
    };
    let live = match &command {
        Some(Command::Timeline(TimelineArgs { duration: Some(_), output, amd_log, .. })) => {
            Some(timeline::LiveFiles::open(output.as_deref(), amd_log)?)
        }
        _ => None,
    };
    // The daemon does it once it has its ports, `amd-log` once it has its files, `hw` where it reads no copies.
    match &command {
        None => privilege::give_up(&roots, reads(&stream_args.ring))?,
        Some(Command::Record(args)) => privilege::give_up(&roots, reads(&args.ring))?,
        Some(Command::Timeline(args)) if live.is_some() => privilege::give_up(&roots, reads(&args.ring))?,
        Some(Command::Runlist(_)) => privilege::give_up(&roots, nothing)?,
        Some(Command::Top(args)) if args.recording.is_some() || args.daemon.access().is_some() => {
            terminal::check("top")?;
        }
        Some(Command::Top(args)) => {
            terminal::check("top")?;
            let memory = !args.probes.sample.is_zero();
            privilege::give_up(&roots, Reads { memory, ..nothing })?;
        }
        Some(Command::Status(_)) => privilege::give_up(&roots, Reads { tracefs: true, ..nothing })?,
        Some(Command::Ps(args)) if args.daemon.access().is_some() => {}
        Some(Command::Ps(_)) => privilege::give_up(&roots, Reads { memory: true, ..nothing })?,
        Some(Command::Doctor(args)) if args.daemon.access().is_some() => {}
        Some(Command::Doctor(_)) => privilege::give_up(&roots, Reads { descriptors: true, ..nothing })?,
        // The others do not use the kernel.
        Some(_) => {}
    }
    let done = match command {
        Some(Command::Run(args)) => return run_command(roots, args, record),
        None => block_on(trace::run(&stream(roots, stream_args), record)),
        Some(Command::Record(args)) => block_on(trace::run(&recorded(roots, args), record)),
        Some(Command::Replay(args)) => Ok(replay::run(&replayed(args))?),
        Some(Command::Timeline(args)) => {
            let (file, output) = (args.file.clone(), args.output.clone());
            let (options, stream) = timelined(roots, args);
            match (file, live) {
                (Some(file), _) => Ok(timeline::run(&file, output.as_deref(), &options)?),
                (None, Some(files)) => block_on(timeline::run_live(&options, &stream, files)),
                (None, None) => Ok(timeline::run_logs(output.as_deref(), &options)?),
            }
        }
        Some(Command::Ps(args)) => {
            let from = listed(&args)?;
            if matches!(from, ps::PsSource::Daemon(_)) {
                // The files are read, and what comes now may be anybody's.
                privilege::give_up(&roots, Reads::default())?;
            }
            block_on(ps::run(&roots, &ps::PsOptions { json: args.format.json, wide: args.wide, from }))
        }
        Some(Command::Fleet { command: FleetCommand::Ps(args) }) => {
            let FleetPsArgs { targets, connections, format, wide, way } = args;
            let nodes = fleet::reach(remote::targets(&targets)?, &way.access())?;
            privilege::give_up(&roots, nothing)?;
            let connections = connections.try_into().unwrap_or(usize::MAX);
            block_on(fleet::run(fleet::FleetOptions { nodes, connections, json: format.json, wide }))
        }
        Some(Command::Top(TopArgs { recording: Some(file), at, interval, .. })) => {
            block_on(top::play(&top::RecordedOptions { file, at, interval, colour: is_coloured() }))
        }
        Some(Command::Top(TopArgs { daemon, interval, .. })) if daemon.access().is_some() => {
            let access = opened(daemon.access())?.context("a URL")?;
            privilege::give_up(&roots, Reads::default())?;
            block_on(top::watch(&top::WatchOptions { access, interval, colour: is_coloured() }))
        }
        Some(Command::Top(TopArgs { interval, probes, .. })) => block_on(top::run(&top::TopOptions {
            roots,
            interval,
            colour: is_coloured(),
            ring_bytes: probes.buffer_size,
            sample: probes.sample,
            choice: probes.choice(Attach::Mixed),
        })),
        Some(Command::Runlist(RunlistArgs { interval, duration, buffer_size, without, json })) => {
            let redraw = !json && std::io::stdout().is_terminal();
            let choice = Choice { attach: Attach::Mixed, without, ..Choice::default() };
            let options =
                RunlistOptions { roots, interval, duration, json, redraw, ring_bytes: buffer_size, choice };
            block_on(runlist::run(&options))
        }
        Some(Command::Status(args)) => Ok(status::run(&roots, args.json)?),
        Some(Command::Doctor(DoctorArgs { pid, format, daemon })) => {
            let options = doctor::DoctorOptions { pid, json: format.json };
            match opened(daemon.access())? {
                None => Ok(doctor::run(&roots, &options)?),
                Some(access) => {
                    privilege::give_up(&roots, Reads::default())?;
                    block_on(doctor::run_remote(&access, &options))
                }
            }
        }
        Some(Command::Hw(HwArgs { mqds, hqds, interval, gfx, pid, format })) => {
            Ok(hw::run(&roots, &hw::HwOptions { mqds, hqds, interval, gfx, pid, json: format.json })?)
        }
        Some(Command::AmdLog(args)) => amd_logs(roots, args),
        Some(Command::DriverTypes(args)) => {
            let DriverTypesArgs { source, headers, module, output, timeout, if_missing, best_effort, root } =
                args;
            let options = TypesOptions { source, headers, module, output, timeout };
            match driver_types::run(&roots, root.as_deref(), if_missing, &options) {
                Err(why) if best_effort => stderr::say(why),
                made => made?,
            }
            Ok(())
        }
        Some(Command::WebServer) => Ok(web_process::run()?),
        Some(Command::TypesBuilder) => Ok(run_builder()?),
        Some(Command::ReturnProbes { act, best_effort }) => {
            match return_probes::run(&roots, act) {
                Err(why) if best_effort => stderr::say(why),
                done => done?,
            }
            Ok(())
        }
        Some(Command::OtlpSender) => Ok(otlp::run()?),
        Some(Command::Metrics) => Ok(metrics::run()?),
        Some(Command::Man { folder }) => Ok(manual::pages(&folder)?),
        Some(Command::Completions { shell }) => Ok(manual::completions(shell)?),
        Some(Command::Daemon(args)) => block_on(daemon::run(&daemon::DaemonOptions {
            roots,
            seccomp: args.seccomp(),
            otlp: exported(&args.otlp.clone().options(args.seccomp()))?,
            listen: (!args.systemd_socket).then_some(args.listen),
            web_config: args.web_config,
            health: args.health,
            allowed_hosts: args.allowed_hosts,
            detail: args.metrics.detail(),
            ring_bytes: args.ring.probes.buffer_size,
            sample: args.ring.probes.sample,
            choice: args.ring.choice(Attach::Single),
            record: args.record.limits(),
        })),
        Some(Command::ExecCommand { pipe, run_as, command }) => {
            return Ok(exec_command(pipe, run_as.as_ref(), &command));
        }
    };
    done.map(|()| 0)
}

/// Where the daemon sends events. Variables of the environment may be there for others: where they alone request it, what is
/// wrong with them does not keep it from tracing.
fn exported(options: &OtlpOptions) -> Result<Option<Settings>, Stop> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    match Settings::read(options, variable) {
        Err(stop) if options.endpoint.is_none() => {
            log::warn!("{}; nothing is exported", stop.line);
            Ok(None)
        }
        settings => settings,
    }
}

/// What `ps` lists.
fn listed(args: &PsArgs) -> Result<ps::PsSource, Stop> {
    match opened(args.daemon.access())? {
        Some(access) => Ok(ps::PsSource::Daemon(access)),
        None => {
            let ages = args.ages_from.as_ref().map(|url| args.daemon.access_to(url));
            Ok(ps::PsSource::Here(opened(ages)?))
        }
    }
}

fn opened(options: Option<AccessOptions>) -> Result<Option<Access>, Stop> {
    options.map(|options| Access::open(&options)).transpose()
}

/// The command of `run`, in the place of this process, unless it cannot be executed.
fn exec_command(pipe: i32, run_as: Option<&RunAs>, command: &[OsString]) -> u8 {
    let (code, line) = launched::exec(pipe, run_as, command);
    line.iter().for_each(stderr::say);
    code
}

/// `run`: the command is started before privileges are given up, and the file is opened with them.
fn run_command(roots: Roots, args: RunArgs, record: Option<File>) -> Result<u8> {
    let RunArgs { output, summary_only, lines, ring, user, command } = args;
    let [sudo_uid, sudo_gid] = ["SUDO_UID", "SUDO_GID"].map(std::env::var_os);
    let request = user::Request {
        user: user.as_deref(),
        sudo_uid: sudo_uid.as_deref(),
        sudo_gid: sudo_gid.as_deref(),
        is_root: rustix::process::geteuid().is_root(),
    };
    let run_as = RunAs::choose(request, Path::new("/proc")).map_err(Stop::usage)?;
    let (out, is_terminal) = match &output {
        Some(path) => {
            let file = output_file::open(path, 0o666, OFlags::empty());
            let file = file.with_context(|| format!("cannot create {}", path.display()))?;
            (Stdout::file(file), false)
        }
        None => {
            (Stdout::stderr().context("cannot write to standard error")?, std::io::stderr().is_terminal())
        }
    };
    let launched = Launched::prepare(&command, run_as.as_ref());
    let launched = launched.context("cannot start a process for the command")?;
    privilege::give_up(&roots, Reads { signals: run_as.is_some(), ..reads(&ring) })?;
    let options = trace::StreamOptions { summary_only, ..stream_options(roots, lines, &ring, is_terminal) };
    block_on(trace::run_command(&options, out, launched, record))
}

/// What the stream reads.
fn reads(ring: &TracingOptions) -> Reads {
    Reads { tracefs: ring.tracepoints, memory: !ring.probes.sample.is_zero(), ..Reads::default() }
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
    let TraceArgs { pids, whose, ns_pid, lines, duration, ring } = args;
    let options = stream_options(roots, lines, &ring, std::io::stdout().is_terminal());
    let whose = trace::Whose { ns_pid, ..whose_of(whose) };
    trace::StreamOptions { pids, whose, duration, ..options }
}

fn whose_of(WhoseArgs { comm, container, pod }: WhoseArgs) -> trace::Whose {
    trace::Whose { comm, container, pod, ..trace::Whose::default() }
}

fn recorded(roots: Roots, args: RecordArgs) -> trace::StreamOptions {
    let RecordArgs { pids, duration, cmdline, ring, .. } = args;
    let lines = LineArgs { events: Vec::new(), json: false, cmdline, color: Colour::Never, record: None };
    let options = stream_options(roots, lines, &ring, false);
    trace::StreamOptions { pids, duration, summary_only: true, ..options }
}

/// What is shown, and what is traced for it where there is no recording.
fn timelined(roots: Roots, args: TimelineArgs) -> (timeline::TimelineOptions, trace::StreamOptions) {
    let TimelineArgs { amd_log, duration, events, pids, whose, ns_pid, cmdline, ring, .. } = args;
    let whose = trace::Whose { ns_pid, ..whose_of(whose) };
    let lines = LineArgs { events, json: false, cmdline, color: Colour::Never, record: None };
    let options = stream_options(roots, lines, &ring, false);
    // Of what is traced now there are no others.
    let shown = trace::Whose { pids: pids.iter().copied().collect(), ..whose.clone() };
    let shown = if duration.is_some() { whose.clone() } else { shown };
    let shown = timeline::TimelineOptions { logs: amd_log, whose: shown, kinds: options.kinds.clone() };
    (shown, trace::StreamOptions { pids, whose, duration, summary_only: true, ..options })
}

/// The file of a recording. Before capabilities go: the folder may be another user's.
fn record(path: Option<&Path>) -> Result<Option<File>> {
    let Some(path) = path else { return Ok(None) };
    let named = path.display();
    ensure!(path != Path::new("-"), "a recording is written to a file: say where by its name");
    // It shows what all users do. Without blocking, since a pipe would wait for its reader. What is in it stays until the
    // tracing has begun.
    let file =
        output_file::open(path, 0o600, OFlags::NONBLOCK).with_context(|| format!("cannot write {named}"))?;
    ensure!(file.metadata()?.is_file(), "cannot record into {named}: it is no regular file");
    ensure!(
        file.try_lock().is_ok(),
        "cannot record into {named}: another kfd-trace does; choose another file"
    );
    Ok(Some(file))
}

fn replayed(args: ReplayArgs) -> replay::ReplayOptions {
    let ReplayArgs { file, at, wide, summary_only, json, events, pids, whose, color } = args;
    let whose = trace::Whose { pids: pids.into_iter().collect(), ..whose_of(whose) };
    let colour = is_wanted(color, std::io::stdout().is_terminal());
    let kinds = events.into_iter().collect();
    replay::ReplayOptions { file, at, wide, summary_only, json, colour, kinds, whose }
}

/// Of all processes.
fn stream_options(
    roots: Roots,
    lines: LineArgs,
    ring: &TracingOptions,
    is_terminal: bool,
) -> trace::StreamOptions {
    let LineArgs { events, json, color, .. } = lines;
    let colour = is_wanted(color, is_terminal);
    trace::StreamOptions {
        roots,
        pids: Vec::new(),
        whose: trace::Whose::default(),
        kinds: events.into_iter().collect(),
        json,
        colour,
        summary_only: false,
        duration: None,
        ring_bytes: ring.probes.buffer_size,
        sample: ring.probes.sample,
        choice: ring.choice(Attach::Mixed),
    }
}

fn is_wanted(colour: Colour, is_terminal: bool) -> bool {
    match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => is_terminal && is_coloured(),
    }
}

/// <https://no-color.org>
fn is_coloured() -> bool {
    std::env::var_os("NO_COLOR").is_none()
}

fn block_on<T>(command: impl Future<Output = Result<T, Stop>>) -> Result<T> {
    // One thread follows the ring buffer; scrapes run beside it on the runtime's blocking threads.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let done = runtime.block_on(command);
    // A reading that is under way is not waited for. The kernel waits for its thread where that cannot be
    // interrupted.
    runtime.shutdown_background();
    Ok(done?)
}
