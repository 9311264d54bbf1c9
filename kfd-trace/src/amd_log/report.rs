//! The report: plain data, made once from a tally; its fields are those of the JSON (docs/amd-log.md).

use std::io::{self, Write};

use serde::Serialize;

use super::join::{self, Verdict};
use super::life::Pool;
use super::message::Damaged;
use super::prefix::Style;
use super::queues::Span;
use super::recorded::Recorded;
use super::rows;
use super::tally::{COMMANDS, DISPATCHES, Tally};
use crate::text::escape;

mod queue;
pub use queue::{BacklogReport, Header, QueueReport, ShapeReport};

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// One file, or standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Input {
    pub name: String,
    /// `gzip`, `zstd`, or `null`.
    pub compression: Option<&'static str>,
    /// Of text, when all was taken in.
    pub bytes: u64,
    /// NULs before lines: holes of a file that was truncated under its writer.
    pub nuls: u64,
    /// The last line has no newline: it was not taken in, since it may go on.
    pub cut: bool,
    /// With `--follow`: how often it began anew, as clr does when its file has AMD_LOG_LEVEL_SIZE.
    pub restarts: u64,
    /// Why no more could be read of it.
    pub problem: Option<String>,
}

/// What KFD had, to join with.
#[derive(Clone, Debug, Default)]
pub struct Kfd {
    /// `live`, `stream`.
    pub asked: Vec<&'static str>,
    pub queues: Vec<Recorded>,
    /// Lines of the stream that are no JSON.
    pub unreadable: u64,
    pub left_out: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub schema: u32,
    pub inputs: Vec<Input>,
    pub lines: LinesReport,
    pub first_mono_us: Option<u64>,
    pub last_mono_us: Option<u64>,
    pub duration_us: Option<u64>,
    pub processes: Vec<ProcessReport>,
    pub gpus: GpusReport,
    pub pool: Option<Pool>,
    pub queues: Vec<QueueReport>,
    /// Of 5.x and 6.0, whose lines name the wrong address.
    pub barrier_values_without_queue: u64,
    pub commands: Vec<CommandReport>,
    pub host_queues: Vec<HostQueueReport>,
    pub completed: CompletedReport,
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
    pub pid: u32,
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
    pub pid: Option<u32>,
    pub kind: String,
    pub count: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct HostQueueReport {
    pub pid: Option<u32>,
    pub address: String,
    pub commands: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct CompletedReport {
    pub count: u64,
    pub profiled: u64,
    pub wall_us: i128,
    pub cpu_us: i128,
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
    /// Bit mask; `null`: of copies that choose none.
    pub engine: Option<String>,
    pub count: u64,
    pub bytes: u128,
}

#[derive(Clone, Debug, Serialize)]
pub struct ErrorsReport {
    /// Of API calls, but for `hipSuccess`. `hipErrorNotReady` is no trouble.
    pub returned: Vec<NameReport>,
    pub returned_success: u64,
    pub queue_aborts: u64,
    /// The first lines of level 1, and of queues that aborted.
    pub lines: Vec<String>,
}

/// Lines for whose subject there was no room (limits.rs): figures of these are too low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
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
    /// Of each process that was joined, queues that the log does not name.
    pub not_in_log: Vec<NotInLog>,
    pub unreadable_lines: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct NotInLog {
    pub pid: u32,
    pub queues: usize,
}

impl Report {
    /// `kfd`: `None` where nobody asked for a join.
    #[must_use]
    pub fn new(tally: &Tally, inputs: Vec<Input>, kfd: Option<&Kfd>) -> Report {
        let rows = rows::rows(&tally.queues);
        let joined = kfd.map(|kfd| join::join(&rows, &kfd.queues));
        let queues: Vec<QueueReport> = rows
            .iter()
            .enumerate()
            .map(|(index, row)| {
                let join = joined.as_ref().and_then(|all| all.get(index)).copied();
                let recorded = kfd.zip(join.and_then(|(_, at)| at)).and_then(|(kfd, at)| kfd.queues.get(at));
                QueueReport::new(row, join.map(|(verdict, _)| verdict), recorded)
            })
            .collect();
        let join = kfd.zip(joined.as_ref()).map(|(kfd, joined)| JoinReport {
            asked: kfd.asked.clone(),
            kfd_queues: kfd.queues.len(),
            joined: joined.iter().filter(|(verdict, _)| *verdict == Verdict::Joined).count(),
            not_in_log: join::unnamed(&kfd.queues, joined)
                .into_iter()
                .map(|(pid, queues)| NotInLog { pid, queues })
                .collect(),
            unreadable_lines: kfd.unreadable,
        });
        let (first_mono_us, last_mono_us) = ends(tally.span);
        let mut report = Report {
            schema: SCHEMA,
            inputs,
            lines: lines(tally),
            first_mono_us,
            last_mono_us,
            duration_us: tally.span.0.map(|(first, last)| last - first),
            processes: processes(tally),
            gpus: gpus(tally),
            pool: tally.pool,
            queues,
            barrier_values_without_queue: tally.queues.barrier_values_without_queue,
            commands: commands(tally),
            host_queues: host_queues(tally),
            completed: completed(tally),
            rate: rate(tally),
            kernels: names(tally.kernels.sorted()),
            copies: copies(tally),
            queue_full: tally.queue_full,
            errors: errors(tally),
            left_out: LeftOut { recorded_queues: kfd.map_or(0, |kfd| kfd.left_out), ..left_out(tally) },
            join,
            notes: Vec::new(),
        };
        report.notes = super::notes::of(&report);
        report
    }

    /// Writes one JSON object and a newline.
    ///
    /// # Errors
    /// What `out` gives.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        escape::json(&mut *out, self)?;
        writeln!(out)
    }
}

pub(super) fn hex(value: u64) -> String {
    format!("{value:#x}")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn ends(span: Span) -> (Option<u64>, Option<u64>) {
    (span.0.map(|(first, _)| first), span.0.map(|(_, last)| last))
}

fn names(all: Vec<(&[u8], u64)>) -> Vec<NameReport> {
    all.into_iter().map(|(name, count)| NameReport { name: text(name), count }).collect()
}

/// Those that came.
fn told(all: impl Iterator<Item = (&'static str, u64)>) -> Vec<NameReport> {
    all.filter(|(_, count)| *count > 0)
        .map(|(name, count)| NameReport { name: name.to_owned(), count })
        .collect()
}

fn lines(tally: &Tally) -> LinesReport {
    let lines = &tally.lines;
    LinesReport {
        total: lines.total,
        read: lines.read,
        other: lines.other,
        without_prefix: lines.without_prefix,
        blank: lines.blank,
        overlong: lines.overlong,
        damaged: told(Damaged::ALL.into_iter().map(Damaged::name).zip(lines.damaged)),
        by_level: lines.by_level,
        prefixes: told(Style::ALL.into_iter().map(Style::name).zip(lines.styles)),
    }
}

fn processes(tally: &Tally) -> Vec<ProcessReport> {
    let of = tally.processes.all().iter().map(|process| {
        let (first_mono_us, last_mono_us) = ends(process.span);
        ProcessReport { pid: process.pid, lines: process.lines, first_mono_us, last_mono_us }
    });
    of.collect()
}

/// `gfx942`: major in decimal, minor and stepping in hex.
fn gpus(tally: &Tally) -> GpusReport {
    let gfx = tally.gfx.sorted().into_iter().map(|([major, minor, stepping], count)| NameReport {
        name: format!("gfx{major}{minor:x}{stepping:x}"),
        count: *count,
    });
    GpusReport { found: tally.agents, gfx: gfx.collect() }
}

fn commands(tally: &Tally) -> Vec<CommandReport> {
    let all = tally.commands.sorted().into_iter();
    all.map(|((pid, kind), count)| CommandReport { pid, kind: kind.name(), count: *count }).collect()
}

fn host_queues(tally: &Tally) -> Vec<HostQueueReport> {
    let all = tally.host_queues.sorted().into_iter();
    all.map(|((pid, at), commands)| HostQueueReport { pid, address: hex(at), commands: *commands }).collect()
}

fn completed(tally: &Tally) -> CompletedReport {
    let of = tally.completed;
    CompletedReport {
        count: of.count,
        profiled: of.profiled,
        wall_us: of.wall_us,
        cpu_us: of.cpu_us,
        gpu_us: of.gpu_us,
    }
}

fn rate(tally: &Tally) -> RateReport {
    let intervals = tally.rate.intervals().map(|(from_mono_us, both)| IntervalReport {
        from_mono_us,
        commands: both[COMMANDS],
        dispatches: both[DISPATCHES],
    });
    RateReport { interval_us: tally.rate.interval_us(), intervals: intervals.collect() }
}

fn copies(tally: &Tally) -> Vec<CopiesReport> {
    let all = tally.copies.sorted().into_iter().map(|(engine, copies)| CopiesReport {
        engine: engine.map(hex),
        count: copies.count,
        bytes: copies.bytes,
    });
    all.collect()
}

fn errors(tally: &Tally) -> ErrorsReport {
    ErrorsReport {
        returned: names(tally.returned.sorted()),
        returned_success: tally.returned_success,
        queue_aborts: tally.aborts,
        lines: tally.error_lines.iter().map(|line| text(line)).collect(),
    }
}

fn left_out(tally: &Tally) -> LeftOut {
    let queues = &tally.queues;
    LeftOut {
        processes: tally.processes.left_out(),
        queues: queues.packets.left_out() + queues.births.left_out(),
        shapes: queues.shapes.left_out(),
        addresses: queues.steps.left_out(),
        commands: tally.commands.left_out(),
        host_queues: tally.host_queues.left_out(),
        kernels: tally.kernels.left_out(),
        copies: tally.copies.left_out(),
        gfx: tally.gfx.left_out(),
        errors: tally.returned.left_out(),
        recorded_queues: 0,
    }
}
