//! Options of the commands that trace by themselves: the stream, `run`, `top`, and what they share with the daemon.

use super::remote::RemoteArgs;
use super::values::{buffer_size, duration, kinds, probes, sample, screen};
use crate::probes::plan::{Attach, Choice};
use crate::recording::When;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::kind::Kind;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of the stream.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Stream")]
pub struct TraceArgs {
    /// Only this process (PID on the host; a thread id selects its process); may be repeated.
    #[arg(long = "pid", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,
    #[command(flatten)]
    pub whose: WhoseArgs,
    /// Only processes with this PID in their own PID namespace (inside of their container).
    #[arg(long = "ns-pid", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub ns_pid: Option<u32>,
    #[command(flatten)]
    pub lines: LineArgs,
    /// End after this time: 10s, 1m30s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub ring: TracingOptions,
}

/// Whose events are printed.
#[derive(Args, Clone, Debug)]
pub struct WhoseArgs {
    /// Only processes with this name (/proc/PID/comm, at most 15 bytes).
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub comm: Option<String>,
    /// Only processes of this container: the begin of its id, four digits at least, or its name in the pod, in Docker or in Podman.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub container: Option<String>,
    /// Only processes of this pod: its name, NAMESPACE/NAME, or UID.
    #[arg(long, value_name = "POD", value_parser = NonEmptyStringValueParser::new())]
    pub pod: Option<String>,
}

/// Which events are printed, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Stream")]
pub struct LineArgs {
    /// Only this kind of event; may be repeated.
    #[arg(long = "event", value_name = "KIND", value_parser = kinds())]
    pub events: Vec<Kind>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
    /// Show command lines, up to 4096 bytes; they may hold secrets.
    #[arg(long)]
    pub cmdline: bool,
    /// Colour the stream.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Colour::Auto)]
    pub color: Colour,
    /// Also keep all events in this file, for `kfd-trace replay`; what is in it is replaced.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

/// Options of tracing.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tracing")]
pub struct TracingOptions {
    #[command(flatten)]
    pub probes: ProbeOptions,
    /// Also count tracepoints of amdgpu, the DRM scheduler and ROCm's own driver, for work that bypasses KFD.
    #[arg(long)]
    pub tracepoints: bool,
    /// Also trace preemptions of the GPUs and the lists of queues that they run, by reason and process; the stream does
    /// so with `--event preempt`, `--event runlist` or, of GPUs with MES, `--event mes_queue`. Each change of a queue
    /// then costs more (docs/performance.md).
    #[arg(long)]
    pub runlists: bool,
}

/// Options of each tracer that keeps a state: the ring buffer, samples of queues, and which probes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tracing")]
pub struct ProbeOptions {
    /// Size of the ring buffer: a power of two from 4 KiB to 1 GiB.
    #[arg(long, value_name = "SIZE", value_parser = buffer_size, default_value = "1MiB")]
    pub buffer_size: u32,
    /// Interval at which the queues' read and write pointers are read from their processes' memory: 1s,
    /// 250ms; 0 turns it off.
    #[arg(long = "sample.interval", value_name = "TIME", value_parser = sample, default_value = "1s")]
    pub sample: Duration,
    /// Leave this probe out (names as in `kfd-trace status`); may be repeated. What it shows is missing then.
    #[arg(long = "without-probe", value_name = "PROBE", value_parser = probes(), hide_possible_values = true)]
    pub without: Vec<ProbeId>,
    /// How to attach probes: `multi` starts and ends sooner (Linux 5.18 and later), but amdgpu cannot be
    /// unloaded meanwhile; `single` does not hold it. Default: `single` for the daemon; for the stream,
    /// `multi` for programs with several functions and `single` for the others.
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true)]
    pub attach: Option<How>,
}

/// How to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    Single,
    Multi,
}

impl TracingOptions {
    /// The chosen probes. `default`: of the command.
    #[must_use]
    pub fn choice(&self, default: Attach) -> Choice {
        Choice { tracepoints: self.tracepoints, runlists: self.runlists, ..self.probes.choice(default) }
    }
}

impl ProbeOptions {
    /// The chosen probes, without those that count on request. `default`: of the command.
    #[must_use]
    pub fn choice(&self, default: Attach) -> Choice {
        let attach = self.attach.map_or(default, |how| match how {
            How::Single => Attach::Single,
            How::Multi => Attach::Multi,
        });
        Choice { without: self.without.clone(), attach, ..Choice::default() }
    }
}

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// Options of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Print to this file instead of standard error.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print no events, only the summary.
    #[arg(long, short = 'c')]
    pub summary_only: bool,
    #[command(flatten)]
    pub lines: LineArgs,
    #[command(flatten)]
    pub ring: TracingOptions,
    /// Run the command as this user (a name, or its number), with its groups; only root can. Default: whoever called
    /// sudo; `--user root` keeps root.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Options of `top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Play this recording (`kfd-trace record`) instead of tracing, on any machine and as any user.
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    pub recording: Option<PathBuf>,
    /// With --recording: begin at this time: 14:03:27, 2026-11-24T14:03:27Z, or +90s after its begin.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "recording")]
    pub at: Option<When>,
    /// Interval between two screens: 1s, 500ms; longer where the answers of a daemon would take more than 5 % of a
    /// CPU. Keys are answered at once.
    #[arg(long, value_name = "TIME", value_parser = screen, default_value = "1s")]
    pub interval: Duration,
    #[command(flatten)]
    pub daemon: RemoteArgs,
    #[command(flatten)]
    pub probes: ProbeOptions,
}
