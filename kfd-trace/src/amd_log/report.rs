//! The report: plain data, built once from a tally. Its fields are those of the JSON (docs/amd-log.md).

use super::life::QueuePool;
use super::queues::Streams;
use super::recorded::Recorded;
use crate::text::escape;
use serde::Serialize;
use std::io::{self, Write};

mod compose;
mod queue;
mod trouble;
pub use queue::{BacklogReport, PacketHeader, QueueReport, ShapeReport};
pub use trouble::{
    AbortReport, AnalyzedReport, ErrorsReport, FaultReport, UnfinishedCommand, UnfinishedReport,
};

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// One file, or standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogInput {
    pub name: String,
    /// `gzip`, `zstd`, or `null`.
    pub compression: Option<&'static str>,
    /// Bytes of text, when everything was read.
    pub bytes: u64,
    /// NULs before lines: holes in a file that was truncated under its writer.
    pub nuls: u64,
    /// The last line has no newline: it was not counted, since it may be unfinished.
    pub cut: bool,
    /// With `--follow`: number of restarts of the file, as clr does when its file has AMD_LOG_LEVEL_SIZE.
    pub restarts: u64,
    /// Why reading stopped early.
    pub problem: Option<String>,
}

/// KFD's queues to join with.
#[derive(Clone, Debug, Default)]
pub struct Kfd {
    /// `live`, `stream`.
    pub asked: Vec<&'static str>,
    pub queues: Vec<Recorded>,
    /// Lines of the stream that are not JSON.
    pub unreadable: u64,
    pub left_out: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub schema: u32,
    pub inputs: Vec<LogInput>,
    pub lines: LinesReport,
    pub first_mono_us: Option<u64>,
    pub last_mono_us: Option<u64>,
    pub duration_us: Option<u64>,
    pub processes: Vec<ProcessReport>,
    pub gpus: GpusReport,
    pub pool: Option<QueuePool>,
    /// `null`: no line of a stream that takes a queue.
    pub streams: Option<Streams>,
    pub queues: Vec<QueueReport>,
    /// Lines of 5.x and 6.0, which name the wrong address.
    pub barrier_values_without_queue: u64,
    pub commands: Vec<CommandReport>,
    pub host_queues: Vec<HostQueueReport>,
    pub completed: CompletedReport,
    /// `null`: the log has no ends of commands.
    pub unfinished: Option<UnfinishedReport>,
    pub signals: SignalsReport,
    pub rate: RateReport,
    pub kernels: Vec<NameReport>,
    pub copies: Vec<CopiesReport>,
    pub queue_full: u64,
    pub errors: ErrorsReport,
    pub left_out: LeftOut,
    pub join: Option<JoinReport>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LinesReport {
    pub total: u64,
    pub read: u64,
    pub other: u64,
    pub without_prefix: u64,
    /// Without a prefix, and read: faults of ROCr, clr's analysis of a hang.
    pub crash: u64,
    /// Beginnings of lines that a container's runtime cut, read with their ends.
    pub partial: u64,
    /// Lines of the log that were behind another one on the same line: they are not in `total`.
    pub appended: u64,
    pub blank: u64,
    pub overlong: u64,
    pub damaged: Vec<NameReport>,
    /// Levels 0 to 9.
    pub by_level: [u64; 10],
    pub prefixes: Vec<NameReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NameReport {
    pub name: String,
    pub count: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProcessReport {
    /// Label of its rank or container, if lines have one.
    pub source: Option<String>,
    pub pid: Option<u32>,
    pub lines: u64,
    pub first_mono_us: Option<u64>,
    pub last_mono_us: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct GpusReport {
    pub found: Option<u64>,
    pub gfx: Vec<NameReport>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CommandReport {
    pub source: Option<String>,
    pub pid: Option<u32>,
    pub kind: String,
    pub count: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct HostQueueReport {
    pub source: Option<String>,
    pub pid: Option<u32>,
    pub address: String,
    pub commands: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct CompletedReport {
    pub count: u64,
    pub profiled: u64,
    /// From the command's queueing to its submission, in sum.
    pub cpu_us: i128,
    /// From its start on the GPU to its end, in sum.
    pub gpu_us: i128,
}

#[derive(Clone, Debug, Serialize)]
pub struct RateReport {
    pub interval_us: u64,
    pub intervals: Vec<IntervalReport>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct IntervalReport {
    pub from_mono_us: u64,
    pub commands: u64,
    pub dispatches: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct CopiesReport {
    /// Bit mask; `null`: copies that choose no engine.
    pub engine: Option<String>,
    pub count: u64,
    pub bytes: u128,
    /// Copies of rectangles: their lines have no size.
    pub without_size: u64,
}

/// GPU times of signals.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SignalsReport {
    pub count: u64,
    pub gpu_ns: i128,
}

/// Lines not counted in detail for lack of room (limits.rs): the figures of these are too low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub sources: u64,
    pub analysis: u64,
    pub unfinished: u64,
    pub processes: u64,
    pub queues: u64,
    pub shapes: u64,
    pub addresses: u64,
    pub commands: u64,
    pub host_queues: u64,
    pub kernels: u64,
    pub copies: u64,
    pub gfx: u64,
    pub errors: u64,
    pub recorded_queues: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct JoinReport {
    /// `live`, `stream`.
    pub asked: Vec<&'static str>,
    pub kfd_queues: usize,
    pub joined: usize,
    /// For each joined process, queues that the log does not name.
    pub not_in_log: Vec<NotInLog>,
    pub unreadable_lines: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct NotInLog {
    pub pid: u32,
    pub queues: usize,
}

impl Report {
    /// Writes one JSON object and a newline.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        escape::json(&mut *out, self)?;
        writeln!(out)
    }
}
