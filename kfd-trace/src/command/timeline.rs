//! `kfd-trace timeline`: a recording, or what happens now, as a trace for Perfetto; with logs of AMD_LOG_LEVEL.

mod live;
mod logs;
mod output;

use super::replay::source::{BUFFER, Ended, Gaps, Items, Source, begin};
use super::trace::{Selection, Whose};
use crate::recording::{Item, Replay};
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::text::count::counted;
use crate::timeline::{Filter, Shown, Timeline};
use crate::tracer::engine;
use kfd_trace_common::kind::Kind;
pub use live::{LiveFiles, run as run_live};
use logs::{Log, LogProblem};
use output::Output;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Beyond this, Perfetto's page may run out of the memory that a browser gives it.
const LARGE: u64 = 300 << 20;

/// A trace has one CLOCK_MONOTONIC.
const OTHER_BOOT: &str =
    "its next file was recorded after the machine had started again; make a trace of each file";

/// What is requested of a timeline.
#[derive(Clone, Debug, Default)]
pub struct TimelineOptions {
    /// Logs of AMD_LOG_LEVEL.
    pub logs: Vec<PathBuf>,
    /// Whose events are shown.
    pub whose: Whose,
    /// Beside lives; empty for all.
    pub kinds: BTreeSet<Kind>,
}

/// Writes the trace of a recording. `output`: `-` for standard output; without it, the recording's name with another
/// ending.
///
/// # Errors
/// If it is no recording, or the trace cannot be written. A recording that was cut, and a log that cannot be joined, make
/// a trace of what there is, and an error.
pub fn run(file: &Path, output: Option<&Path>, options: &TimelineOptions) -> Result<(), Stop> {
    let to = match output {
        Some(path) => path.to_owned(),
        None if file.as_os_str() == "-" => {
            return Err(Stop::usage("say where to write it: --output FILE, or - for standard output"));
        }
        None => file.with_extension("pftrace"),
    };
    let logs: Vec<Log> = options.logs.iter().map(|log| Log::find(log)).collect::<Result<_, _>>()?;
    let source = Source::open(file)?;
    let mut read = output::files_of(file, &source);
    read.extend_from_slice(&options.logs);
    write_trace(options, &logs, &file.display().to_string(), source, || Output::open(&to, &read))
}

/// Writes the trace of logs of AMD_LOG_LEVEL alone. `output`: `-` for standard output; without it, the name of the first log
/// with another ending.
///
/// # Errors
/// If there is no log, or one has no packets, or cannot be read to its end, or the trace cannot be written.
pub fn run_logs(output: Option<&Path>, options: &TimelineOptions) -> Result<(), Stop> {
    let Some(first) = options.logs.first() else {
        return Err(Stop::usage(
            "name a recording, a log with --amd-log, or say how long to trace with --duration",
        ));
    };
    if !options.whose.is_all() || !options.kinds.is_empty() {
        return Err(Stop::usage(
            "processes and kinds of events are chosen in a recording: name one, or leave these options out",
        ));
    }
    let to = output.map_or_else(|| first.with_extension("pftrace"), Path::to_owned);
    let logs: Vec<Log> = options.logs.iter().map(|log| Log::find(log)).collect::<Result<_, _>>()?;
    let output = Output::open(&to, &options.logs)?;
    let written = output.begin().and_then(|out| {
        let mut timeline = Timeline::alone(BufWriter::with_capacity(BUFFER, out))?;
        let problems = add_logs(&mut timeline, &logs)?;
        Ok((timeline.finish()?, problems))
    });
    finish(&output, written, |problem| problem)
}

/// Says what was written, and what is missing in it.
fn finish<P>(
    output: &Output,
    written: io::Result<(u64, Vec<P>)>,
    line: impl Fn(P) -> String,
) -> Result<(), Stop> {
    let (packets, problems) = match written {
        Ok(written) => written,
        // The reader of a pipe has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
        Err(error) => {
            return Err(Stop::failed(format!("cannot write {}: {error}", output.path.display())));
        }
    };
    if !output.is_stdout() {
        report(&output.path, packets);
    }
    let problems: Vec<String> = problems.into_iter().map(line).collect();
    let Some((last, others)) = problems.split_last() else { return Ok(()) };
    others.iter().for_each(say);
    Err(Stop::failed(last))
}

/// Returns one line for each log that is not, or not all, in the trace.
fn add_logs<W: Write>(timeline: &mut Timeline<W>, logs: &[Log]) -> io::Result<Vec<String>> {
    let mut problems = Vec::new();
    for log in logs {
        match logs::add(timeline, log) {
            Ok(()) => {}
            Err(LogProblem::Output(error)) => return Err(error),
            Err(LogProblem::Log(line)) => problems.push(line),
        }
    }
    Ok(problems)
}

/// `output` is called once it is known that there is a recording: nothing is written over for the sake of what is none.
fn write_trace(
    options: &TimelineOptions,
    logs: &[Log],
    named: &str,
    source: Source,
    output: impl FnOnce() -> Result<Output, Stop>,
) -> Result<(), Stop> {
    let mut items = source.items(None).map_err(Stop::failed)?;
    let begin = begin(&mut items).map_err(|error| Stop::failed(format!("{named}: {error}")))?;
    let output = output()?;
    let mut replay = Replay::new(&begin, engine::wall_clock());
    let filter = filter(options, begin.selected);
    let written = output
        .begin()
        .and_then(|out| write(&mut items, &mut replay, BufWriter::with_capacity(BUFFER, out), filter, logs));
    finish(&output, written, |problem| match problem {
        Problem::Cut(why) => format!("{named}: {why}; what came before is in the trace"),
        Problem::Log(line) => line,
    })
}

/// Why a trace is not all that was requested.
enum Problem {
    /// Why the recording is not whole.
    Cut(String),
    /// One line.
    Log(String),
}

/// Returns how many packets were written.
fn write(
    items: &mut Items,
    replay: &mut Replay,
    out: impl Write,
    filter: Option<Box<Filter>>,
    logs: &[Log],
) -> io::Result<(u64, Vec<Problem>)> {
    let mut timeline = Timeline::new(out)?;
    if let Some(filter) = filter {
        timeline.choose(filter);
    }
    let (mut ended, mut gaps) = (Ended::without_end(), Gaps::default());
    for item in items {
        match item {
            Ok(Item::Begin(next)) if next.at_ns < replay.now_ns => {
                ended = Ended::Early(OTHER_BOOT.to_owned());
                break;
            }
            Ok(item) => {
                ended = ended.with(&item);
                let is_sight = matches!(item, Item::Sight { .. });
                timeline.take(item, replay)?;
                if is_sight {
                    gaps.report(&replay.sight);
                }
                if let Some(why) = replay.refused() {
                    ended = Ended::Early(why.to_owned());
                    break;
                }
            }
            Err(error) => ended = Ended::Early(error.to_string()),
        }
    }
    let mut problems = match ended {
        Ended::Whole | Ended::Lacking(_) => Vec::new(),
        Ended::Early(why) => vec![Problem::Cut(why)],
    };
    timeline.settle(replay)?;
    problems.extend(add_logs(&mut timeline, logs)?.into_iter().map(Problem::Log));
    Ok((timeline.finish()?, problems))
}

/// `None`: all is shown. `processes`: single ones were recorded.
fn filter(options: &TimelineOptions, processes: bool) -> Option<Box<Filter>> {
    let TimelineOptions { whose, kinds, .. } = options.clone();
    if whose.is_all() && kinds.is_empty() {
        return None;
    }
    let all = BTreeSet::new();
    Some(Box::new(move |event, change, state| {
        let chosen = Selection { kinds: &all, on_request: true, processes, whose: &whose };
        if !chosen.shows(event, change, state) {
            Shown::Nothing
        } else if kinds.is_empty() || kinds.contains(&event.body.kind()) {
            Shown::All
        } else {
            Shown::Lives
        }
    }))
}

fn report(to: &Path, packets: u64) {
    let bytes = std::fs::metadata(to).map_or(0, |file| file.len());
    say(format_args!(
        "{}: {}, {}; open it at https://ui.perfetto.dev",
        to.display(),
        counted(packets, "packet", "packets"),
        counted(bytes, "byte", "bytes")
    ));
    if bytes > LARGE {
        say("its page may run out of memory: use Perfetto's own trace_processor for it");
    }
}
