//! The command line. No logic: what was asked for, as values.

use crate::output::metrics::Detail;
use crate::probes::plan::{Attach, Choice};
use crate::serve::web::listen::{DEFAULT_ADDRESS, address};
use bytesize::ByteSize;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::SignedDuration;
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use kfd_trace_common::limits::RING_BYTES;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  bad usage
  3  nothing to trace here (no amdgpu driver with KFD; `daemon` waits for it instead)
  4  doctor: something is hidden from the usual checks (lsof, fuser, rocm-smi)
  5  doctor: something is wrong (KFD or a GPU keeps what nobody has)";

/// Traces AMD's compute driver (amdgpu/KFD): who has which queue on which GPU, since when, and what went wrong.
///
/// Without a subcommand it streams events until Ctrl-C, and ends with a summary.
#[derive(Debug, Parser)]
#[command(name = "kfd-trace", version, after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Good for every command.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Where procfs is mounted.
    #[arg(long = "path.procfs", value_name = "DIR", default_value = "/proc", global = true)]
    pub procfs: PathBuf,
    /// Where sysfs is mounted.
    #[arg(long = "path.sysfs", value_name = "DIR", default_value = "/sys", global = true)]
    pub sysfs: PathBuf,
    /// Where the kubelet's log folders are (`pods`, `containers`): their names tell those of pods.
    #[arg(long = "path.logs", value_name = "DIR", default_value = "/var/log", global = true)]
    pub logs: PathBuf,
    /// Says more on stderr about what is done; twice for still more.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub verbose: u8,
}

/// Of the stream.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// Only what belongs to this process (PID on the host; a thread stands for its process); may be repeated.
    #[arg(long = "pid", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,
    /// Only processes of this name (as in /proc/PID/comm, at most 15 bytes).
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only this kind of event; may be repeated.
    #[arg(long = "event", value_name = "KIND", value_parser = kinds())]
    pub events: Vec<Kind>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Ends after this time: 10s, 1m30s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Shows the arguments of processes, up to 4096 bytes: they may hold secrets.
    #[arg(long)]
    pub cmdline: bool,
    /// When to colour the stream.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Colour::Auto)]
    pub color: Colour,
    #[command(flatten)]
    pub ring: Ring,
}

/// Between kernel and tracer.
#[derive(Args, Clone, Debug)]
pub struct Ring {
    /// Size of the ring buffer of events: a power of two from 4 KiB to 1 GiB.
    #[arg(long, value_name = "SIZE", value_parser = buffer_size, default_value = "1MiB")]
    pub buffer_size: u32,
    /// How often the queues' read and write pointers are read in the memory of their processes: 1s, 250ms; 0s for never.
    #[arg(long = "sample.interval", value_name = "TIME", value_parser = sample, default_value = "1s")]
    pub sample: Duration,
    /// Counts tracepoints of amdgpu, the DRM scheduler and ROCm's own driver, too: what does not pass KFD.
    #[arg(long)]
    pub tracepoints: bool,
    /// Leaves this probe out (names as in `kfd-trace status`); may be repeated. What it tells is not seen then.
    #[arg(long = "without-probe", value_name = "PROBE", value_parser = probes(), hide_possible_values = true)]
    pub without: Vec<ProbeId>,
    /// How probes are attached: `multi` starts and ends sooner where the kernel can (Linux 5.18 and later), and keeps amdgpu
    /// from being unloaded meanwhile; `single` does not. The daemon's default is `single`; the stream's is `multi` for programs
    /// of several functions, and `single` for the others.
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true)]
    pub attach: Option<How>,
}

/// How to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    Single,
    Multi,
}

impl Ring {
    /// The chosen probes. `default`: of the command.
    #[must_use]
    pub fn choice(&self, default: Attach) -> Choice {
        let attach = self.attach.map_or(default, |how| match how {
            How::Single => Attach::Single,
            How::Multi => Attach::Multi,
        });
        Choice { tracepoints: self.tracepoints, without: self.without.clone(), attach }
    }
}

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    Always,
    Never,
}

/// What to do instead of streaming.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists processes and queues now, from every source at hand.
    Ps(PsArgs),
    /// Serves Prometheus metrics until SIGTERM.
    Daemon(DaemonArgs),
    /// Tells what can be seen on this kernel: each probe with its verdict.
    Status(JsonArgs),
    /// Tells why lsof, fuser or rocm-smi show nothing, or something that is not there.
    Doctor(DoctorArgs),
    /// Reports what logs of AMD_LOG_LEVEL (ROCm 5.x to 7.x) tell of queues, dispatches and commands.
    #[command(name = "amd-log")]
    AmdLog(AmdLogArgs),
    /// Prints the script that completes words in a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Writes the manual pages, one a command.
    Man {
        /// Where to; it is made if needed.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Prints the table of metrics.
    #[command(hide = true)]
    Metrics,
}

/// Of `ps`.
#[derive(Args, Clone, Copy, Debug)]
pub struct PsArgs {
    #[command(flatten)]
    pub format: JsonArgs,
    /// With --json: the arguments of processes, too, up to 4096 bytes; they may hold secrets.
    #[arg(long, requires = "json")]
    pub cmdline: bool,
}

/// Of `doctor`.
#[derive(Args, Clone, Copy, Debug)]
pub struct DoctorArgs {
    /// Only this process (PID on the host; a thread stands for its process), instead of the whole node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub format: JsonArgs,
}

/// Text or JSON.
#[derive(Args, Clone, Copy, Debug)]
pub struct JsonArgs {
    /// As one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Of `amd-log`.
#[derive(Args, Clone, Debug)]
pub struct AmdLogArgs {
    /// Logs, as they are or compressed by gzip or zstd; `-` is standard input. All are one log of several processes.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub format: JsonArgs,
    /// Goes on at the ends of the files, also where they begin anew, and reports at Ctrl-C.
    #[arg(long)]
    pub follow: bool,
    /// Joins the log's queues with those that stand now, by addresses.
    #[arg(long)]
    pub live: bool,
    /// Joins them with those that `kfd-trace --json` or `kfd-trace ps --json` wrote into this file, by addresses and time.
    #[arg(long, value_name = "FILE")]
    pub stream: Option<PathBuf>,
}

/// Of the daemon.
#[derive(Args, Clone, Debug)]
pub struct DaemonArgs {
    /// Address and port to serve on, `:PORT` for every address of the machine; may be repeated.
    #[arg(long = "web.listen-address", value_name = "ADDR", value_parser = address, default_values_t = [DEFAULT_ADDRESS])]
    pub listen: Vec<SocketAddr>,
    /// Serves on the sockets that systemd passes instead.
    #[arg(long = "web.systemd-socket", conflicts_with = "listen")]
    pub systemd_socket: bool,
    /// TLS and passwords, in the format of the Prometheus exporters (docs/web.md).
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub ring: Ring,
}

/// Which processes and queues have series of their own. Of a switch and its opposite the last one counts.
#[derive(Args, Clone, Copy, Debug)]
pub struct MetricsArgs {
    /// Series of single processes; the default.
    #[arg(long = "metrics.per-process")]
    per_process: bool,
    /// No series with the label `pid`.
    #[arg(long = "no-metrics.per-process", overrides_with = "per_process")]
    no_per_process: bool,
    /// Processes that get series of their own; the others are counted.
    #[arg(long = "metrics.max-processes", value_name = "N", default_value_t = 200)]
    max_processes: usize,
    /// How long a process has series after its end: 0s, 30s, 5m.
    #[arg(long = "metrics.linger", value_name = "TIME", value_parser = span, default_value = "5m")]
    linger: Duration,
    /// Series of single queues, too.
    #[arg(long = "metrics.per-queue", conflicts_with = "no_per_process")]
    per_queue: bool,
    /// No series of single queues; the default.
    #[arg(long = "no-metrics.per-queue", overrides_with = "per_queue")]
    no_per_queue: bool,
    /// Queues that get series of their own with --metrics.per-queue; the others are counted.
    #[arg(long = "metrics.max-queues", value_name = "N", default_value_t = 1000)]
    max_queues: usize,
}

impl MetricsArgs {
    #[must_use]
    pub fn detail(&self) -> Detail {
        Detail {
            processes: (!self.no_per_process).then_some(self.max_processes),
            queues: self.per_queue.then_some(self.max_queues),
            linger: self.linger,
        }
    }
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.iter().map(|kind| kind.name())).try_map(|name| {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or("no such kind of event")
    })
}

fn probes() -> impl TypedValueParser<Value = ProbeId> {
    PossibleValuesParser::new(ProbeId::ALL.iter().map(|probe| probe.name())).try_map(|name| {
        ProbeId::ALL.iter().copied().find(|probe| probe.name() == name).ok_or("no such probe")
    })
}

/// Ten years: more would end beyond what clocks can tell.
const LONGEST: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

fn duration(text: &str) -> Result<Duration, String> {
    match span(text)? {
        Duration::ZERO => Err("must be more than 0; try 10s or 1m30s".to_owned()),
        span => Ok(span),
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration = text.parse().map_err(|error| format!("{error}; try 10s or 1m30s"))?;
    match Duration::try_from(parsed) {
        Ok(span) if span > LONGEST => Err("must be at most ten years; try 10s or 1m30s".to_owned()),
        Ok(span) => Ok(span),
        Err(_) => Err("must not be less than 0; try 10s or 1m30s".to_owned()),
    }
}

/// Below it the interval would be that of the clock's ticks.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(10);

fn sample(text: &str) -> Result<Duration, String> {
    // 0 has no unit.
    match span(if text == "0" { "0s" } else { text })? {
        span if span.is_zero() || span >= SHORTEST_SAMPLE => Ok(span),
        _ => Err("must be 10ms or more, or 0 for never".to_owned()),
    }
}

fn buffer_size(text: &str) -> Result<u32, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}; try 4MiB"))?;
    u32::try_from(size.as_u64())
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 30).contains(bytes))
        .ok_or_else(|| {
            format!("must be a power of two from 4KiB to 1GiB; try {}", ByteSize(u64::from(RING_BYTES)))
        })
}

#[cfg(test)]
mod tests;
