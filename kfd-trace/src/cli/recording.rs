//! Options of the commands that write and read recordings.

use super::tracing::{Colour, TracingOptions, WhoseArgs};
use super::values::{duration, kinds};
use crate::recording::When;
use clap::Args;
use kfd_trace_common::kind::Kind;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `record`.
#[derive(Args, Clone, Debug)]
pub struct RecordArgs {
    /// The file; what is in it is replaced.
    #[arg(long, short, value_name = "FILE", default_value = "kfd-trace.rec")]
    pub output: PathBuf,
    /// Only this process (PID on the host; a thread id selects its process); may be repeated.
    #[arg(long = "pid", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,
    /// End after this time: 10s, 1m30s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Also keep command lines, up to 4096 bytes; they may hold secrets.
    #[arg(long)]
    pub cmdline: bool,
    #[command(flatten)]
    pub ring: TracingOptions,
}

/// Options of `replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The recording, or the folder of a daemon's; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print the processes and queues of this time instead, as `ps` would have: 14:03:27, 2026-11-24T14:03:27Z, or
    /// +90s after its begin.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<When>,
    /// With --at: all columns, as `ps --wide`.
    #[arg(long, short, requires = "at", conflicts_with = "json")]
    pub wide: bool,
    /// Print no events, only the summary.
    #[arg(long, short = 'c', conflicts_with = "at")]
    pub summary_only: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
    /// Only this kind of event; may be repeated.
    #[arg(long = "event", value_name = "KIND", value_parser = kinds(), conflicts_with = "at")]
    pub events: Vec<Kind>,
    /// Only this process (PID on its host); may be repeated.
    #[arg(long = "pid", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,
    #[command(flatten)]
    pub whose: WhoseArgs,
    /// Colour the stream.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Colour::Auto)]
    pub color: Colour,
}

/// Options of `timeline`.
#[derive(Args, Clone, Debug)]
pub struct TimelineArgs {
    /// The recording, or the folder of a daemon's; `-` is standard input. Without it: with --duration what happens now, with
    /// --amd-log the logs alone.
    #[arg(value_name = "FILE", required_unless_present_any = ["duration", "amd_log"], conflicts_with = "duration")]
    pub file: Option<PathBuf>,
    /// The trace; what is in it is replaced [default: the recording's name with .pftrace, or kfd-trace.pftrace].
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also show the dispatches, barriers and copies of this log of AMD_LOG_LEVEL, plain or compressed; may be repeated.
    #[arg(long, value_name = "LOG")]
    pub amd_log: Vec<PathBuf>,
    /// Trace for this time, or until Ctrl-C, instead of reading a recording: 10s, 1m30s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Only this kind of event, beside the lives of processes and queues; may be repeated.
    #[arg(long = "event", value_name = "KIND", value_parser = kinds())]
    pub events: Vec<Kind>,
    /// Only this process (PID on its host); may be repeated.
    #[arg(long = "pid", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,
    #[command(flatten)]
    pub whose: WhoseArgs,
    /// Only processes with this PID in their own PID namespace (inside of their container).
    #[arg(long = "ns-pid", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub ns_pid: Option<u32>,
    /// With --duration: also show command lines, up to 4096 bytes; they may hold secrets.
    #[arg(long, conflicts_with = "file")]
    pub cmdline: bool,
    #[command(flatten)]
    pub ring: TracingOptions,
}
