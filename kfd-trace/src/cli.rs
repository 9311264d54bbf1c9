//! The command line. No logic: the options as values.

mod daemon;
mod examples;
mod recording;
mod remote;
mod tracing;
mod values;

use crate::hw::Generation;
use crate::kernel::types::DRIVERS;
use crate::remote::Secret;
use crate::runtime::user::RunAs;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{
    ArgAction, ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
};
use clap_complete::Shell;
pub use daemon::{DaemonArgs, MetricsArgs};
use kfd_trace_common::counter::ProbeId;
pub use recording::{RecordArgs, ReplayArgs, TimelineArgs};
use remote::secret;
pub use remote::{RemoteArgs, WayArgs};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
pub use tracing::{Colour, LineArgs, ProbeOptions, RunArgs, TopArgs, TraceArgs, TracingOptions, WhoseArgs};
use values::{buffer_size, duration, probes};

/// Trace AMD's compute driver (amdgpu/KFD): who has which queue on which GPU, since when, and what went
/// wrong.
///
/// Without a subcommand, stream events until Ctrl-C, then print a summary.
#[derive(Debug, Parser)]
#[command(name = "kfd-trace", version, after_help = examples::STREAM)]
pub struct Cli {
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Parses arguments, the program's name first.
    ///
    /// # Errors
    /// clap's, help and version included; an option of the stream before a subcommand.
    pub fn from_arguments(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Cli, clap::Error> {
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        if let Some(name) = matches.subcommand_name() {
            let stream = TraceArgs::augment_args(clap::Command::new("stream"));
            let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
            // `args_conflicts_with_subcommands` would refuse global options there, too.
            if let Some(misplaced) = stream.get_arguments().find(|option| given(option.get_id().as_str())) {
                let option = misplaced.get_long().unwrap_or_default();
                let line = format!(
                    "--{option} before `{name}` is an option of the stream; see `kfd-trace {name} --help`"
                );
                return Err(command.error(ErrorKind::ArgumentConflict, line));
            }
        }
        if let Some(("timeline", own)) = matches.subcommand()
            && own.contains_id("file")
        {
            let tracing = TracingOptions::augment_args(clap::Command::new("tracing"));
            let given = |id: &str| own.value_source(id) == Some(ValueSource::CommandLine);
            if let Some(misplaced) = tracing.get_arguments().find(|option| given(option.get_id().as_str())) {
                let option = misplaced.get_long().unwrap_or_default();
                let line = format!("--{option} is of what is traced with --duration; FILE was traced before");
                return Err(command.error(ErrorKind::ArgumentConflict, line));
            }
        }
        if let Some(line) = of_this_machine(&matches) {
            return Err(command.error(ErrorKind::ArgumentConflict, line));
        }
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// An option that is about this machine, beside a URL of another.
fn of_this_machine(matches: &ArgMatches) -> Option<String> {
    let (name, matches) = matches.subcommand().filter(|(name, _)| ["ps", "top", "doctor"].contains(name))?;
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let mut local = Global::augment_args(clap::Command::new(""));
    if name == "top" {
        local = ProbeOptions::augment_args(local);
    }
    let options = local.get_arguments().filter(|option| option.get_id() != "verbose");
    let option =
        options.into_iter().find(|option| given(option.get_id().as_str())).filter(|_| given("url"))?;
    let option = option.get_long().unwrap_or_default();
    Some(format!("--{option} is for this machine, and --url shows another: leave one of them out"))
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Paths and logging")]
pub struct Global {
    /// Mount point of procfs.
    #[arg(long = "path.procfs", value_name = "DIR", default_value = "/proc", global = true)]
    pub procfs: PathBuf,
    /// Mount point of sysfs.
    #[arg(long = "path.sysfs", value_name = "DIR", default_value = "/sys", global = true)]
    pub sysfs: PathBuf,
    /// Folder of the kubelet's logs (`pods`, `containers`), for names of pods.
    #[arg(long = "path.logs", value_name = "DIR", default_value = "/var/log", global = true)]
    pub logs: PathBuf,
    /// Folder of Docker's and Podman's data (`docker`, `containers`), for names of containers.
    #[arg(long = "path.engines", value_name = "DIR", default_value = "/var/lib", global = true)]
    pub engines: PathBuf,
    /// Folder with a file for each Slurm job, which its prolog writes, for accounts and partitions.
    #[arg(long = "path.slurm", value_name = "DIR", default_value = "/run/kfd-trace/slurm", global = true)]
    pub slurm: PathBuf,
    /// Folder with types of drivers that have no BTF (`kfd-trace driver-types` makes them).
    #[arg(long = "path.drivers", value_name = "DIR", default_value = DRIVERS, global = true)]
    pub drivers: PathBuf,
    /// Types of the driver, if it has no BTF: this file alone.
    #[arg(long = "driver-btf", value_name = "FILE", global = true)]
    pub driver_btf: Option<PathBuf>,
    /// Log more on standard error; repeat for still more.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub verbose: u8,
}

/// What to do instead of streaming.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command; trace it and all that it starts, to its end.
    #[command(after_help = examples::RUN)]
    Run(RunArgs),
    /// Keep all events in a file, with what their names mean, until Ctrl-C.
    #[command(after_help = examples::RECORD)]
    Record(RecordArgs),
    /// Print what a recording has: events and summary, or the processes and queues of one time.
    #[command(after_help = examples::REPLAY)]
    Replay(ReplayArgs),
    /// Turn a recording into a trace for ui.perfetto.dev: lives of queues, ioctls, evictions, rates.
    #[command(after_help = examples::TIMELINE)]
    Timeline(TimelineArgs),
    /// List processes and queues.
    #[command(after_help = examples::PS)]
    Ps(PsArgs),
    /// Watch GPUs, processes, queues and events on the whole terminal.
    #[command(after_help = examples::TOP)]
    Top(TopArgs),
    /// Ask the daemons of many nodes at once.
    Fleet {
        #[command(subcommand)]
        command: FleetCommand,
    },
    /// Serve Prometheus metrics, a JSON API and a page until SIGTERM.
    #[command(after_help = examples::DAEMON)]
    Daemon(DaemonArgs),
    /// Show what can be traced on this kernel: each probe with its verdict.
    #[command(after_help = examples::STATUS)]
    Status(JsonArgs),
    /// Explain why lsof, fuser or rocm-smi miss a KFD user or show a stale one.
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
    /// Show who preempts each GPU and who waits, at intervals (hardware scheduler).
    #[command(after_help = examples::RUNLIST)]
    Runlist(RunlistArgs),
    /// Show which queue is in which hardware slot, by the driver's dumps in debugfs, or saved ones.
    #[command(after_help = examples::HW)]
    Hw(HwArgs),
    /// Report queues, dispatches and commands from AMD_LOG_LEVEL logs (ROCm 5.x to 7.x).
    #[command(name = "amd-log", after_help = examples::AMD_LOG)]
    AmdLog(AmdLogArgs),
    /// Make types of a driver without BTF, on a host with its source and the kernel's headers.
    #[command(name = "driver-types", after_help = examples::DRIVER_TYPES)]
    DriverTypes(DriverTypesArgs),
    /// Wait, then execute a command in the place of this process; `run` starts this.
    #[command(name = "exec-command", hide = true)]
    ExecCommand {
        /// Descriptor of the pipe to wait for.
        pipe: i32,
        /// UID:GID:GROUP,... that the command runs as.
        #[arg(long = "as")]
        run_as: Option<RunAs>,
        /// The command and its arguments.
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Print a shell completion script.
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages, one per command.
    #[command(after_help = examples::MAN)]
    Man {
        /// Output folder; created if needed.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Print the table of metrics.
    #[command(hide = true)]
    Metrics,
    /// Serve pages for the daemon, which starts this.
    #[command(name = "web-server", hide = true)]
    WebServer,
    /// Build for `driver-types`, which starts this.
    #[command(name = "types-builder", hide = true)]
    TypesBuilder,
    /// Define or remove the return probes of the service in tracefs; its unit runs this around the daemon, as root.
    #[command(name = "return-probes", hide = true)]
    ReturnProbes {
        /// What to do.
        act: ReturnProbesAct,
        /// Exit with 0 also where it could not be done; the reason is printed.
        #[arg(long)]
        best_effort: bool,
    },
    /// Send records for the daemon, which starts this.
    #[command(name = "otlp-sender", hide = true)]
    OtlpSender,
}

/// What `return-probes` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReturnProbesAct {
    /// Define them; those that are defined stay.
    Define,
    /// Remove them, but for those that a tracer has open.
    Remove,
}

/// Options of `driver-types`.
#[derive(Args, Clone, Debug)]
pub struct DriverTypesArgs {
    /// Folder of the driver's source: a DKMS package, or a kernel's tree [default: the loaded driver's in /usr/src or
    /// /var/lib/dkms].
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// Folder of the kernel's headers [default: /lib/modules/RELEASE/build].
    #[arg(long, value_name = "DIR")]
    pub headers: Option<PathBuf>,
    /// The driver's module file, if it is not the loaded one; it may be compressed.
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,
    /// Where to write the types: a file or a folder [default: --path.drivers, or the current folder].
    #[arg(long, short, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Give up after this time: 90s, 45m.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    pub timeout: Duration,
    /// Do nothing where the kernel or a file has types of the loaded driver.
    #[arg(long, conflicts_with_all = ["module", "output"])]
    pub if_missing: bool,
    /// Exit with 0 also where nothing could be made; the reason is printed.
    #[arg(long)]
    pub best_effort: bool,
    /// Work below this folder, where a container has the host's / mounted (chroot).
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Options of `ps`.
#[derive(Args, Clone, Debug)]
pub struct PsArgs {
    #[command(flatten)]
    pub format: JsonArgs,
    /// Also show PIDs inside namespaces, addresses and sizes of rings, priorities, CU masks and sources.
    #[arg(long, short, conflicts_with = "json")]
    pub wide: bool,
    /// With --json: add command lines, up to 4096 bytes; they may hold secrets.
    #[arg(long, requires = "json", conflicts_with = "url")]
    pub cmdline: bool,
    /// List this machine, with the ages of queues and their changes from its daemon at this URL [default:
    /// http://127.0.0.1:20200, if it responds].
    #[arg(long, value_name = "URL", value_parser = secret, group = "daemon", conflicts_with = "url")]
    pub ages_from: Option<Secret>,
    #[command(flatten)]
    pub daemon: RemoteArgs,
}

/// What to ask many nodes.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// List processes and queues of all nodes, and say which do not answer.
    #[command(after_help = examples::FLEET_PS)]
    Ps(FleetPsArgs),
}

/// Options of `fleet ps`.
#[derive(Args, Clone, Debug)]
pub struct FleetPsArgs {
    /// The nodes: a file of Prometheus' file_sd_configs (*.json, *.yml, *.yaml; may be repeated). Of its labels, `__scheme__`
    /// and `__metrics_path__` count.
    #[arg(long, value_name = "FILE", required = true, group = "daemon")]
    pub targets: Vec<PathBuf>,
    /// Ask so many nodes at the same time.
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub connections: u32,
    #[command(flatten)]
    pub format: JsonArgs,
    /// Also show PIDs inside namespaces, addresses and sizes of rings, priorities, CU masks and sources.
    #[arg(long, short, conflicts_with = "json")]
    pub wide: bool,
    #[command(flatten)]
    pub way: WayArgs,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Only this process (PID on the host; a thread id selects its process).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub format: JsonArgs,
    #[command(flatten)]
    pub daemon: RemoteArgs,
}

/// Text or JSON.
#[derive(Args, Clone, Copy, Debug)]
pub struct JsonArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Options of `runlist`.
#[derive(Args, Clone, Debug)]
pub struct RunlistArgs {
    /// Interval of the tables: 1s, 500ms.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    pub interval: Duration,
    /// End after this time: 10s, 1m30s. The last interval is longer where less than a quarter of one is left.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Size of the ring buffer: a power of two from 4 KiB to 1 GiB.
    #[arg(long, value_name = "SIZE", value_parser = buffer_size, default_value = "1MiB")]
    pub buffer_size: u32,
    /// Leave this probe out (names as in `kfd-trace status`); may be repeated. What it shows is missing then.
    #[arg(long = "without-probe", value_name = "PROBE", value_parser = probes(), hide_possible_values = true)]
    pub without: Vec<ProbeId>,
    /// Print one JSON object per interval.
    #[arg(long)]
    pub json: bool,
}

/// Options of `hw`.
#[derive(Args, Clone, Debug)]
pub struct HwArgs {
    /// Read this copy of debugfs kfd/mqds, and nothing of this machine.
    #[arg(long, value_name = "FILE")]
    pub mqds: Option<PathBuf>,
    /// Also read the slots: this copy of kfd/hqds, or without FILE those of this machine. The driver selects each slot
    /// on the hardware in turn for it, under a lock; slots change meanwhile.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub hqds: Option<Option<PathBuf>>,
    /// Read this machine's slots twice, this time apart (1s, 500ms), and show which queues moved.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<Duration>,
    /// With copies: the GPUs' instruction set (gfx942), for masks of CUs.
    #[arg(long, value_name = "NAME")]
    pub gfx: Option<Generation>,
    /// Only this process (PID on the host).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub format: JsonArgs,
}

/// Options of `amd-log`.
#[derive(Args, Clone, Debug)]
pub struct AmdLogArgs {
    /// Logs, plain or compressed by gzip or zstd; `-` is standard input. All are read as one log of several
    /// processes.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub format: JsonArgs,
    /// Follow the files as they grow or are replaced; report at Ctrl-C.
    #[arg(long)]
    pub follow: bool,
    /// Join the log's queues with the driver's existing queues, by address.
    #[arg(long)]
    pub live: bool,
    /// Join them with the queues in this file, written by `kfd-trace --json` or `kfd-trace ps --json`, by
    /// address and time.
    #[arg(long, value_name = "FILE")]
    pub stream: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
