//! Logs of AMD_LOG_LEVEL into a trace. Each is read twice.

use crate::amd_log::lines::LogLine;
use crate::log_files::{self, Bar, LogSource};
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::timeline::Timeline;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Why a log is not, or not all, in the trace.
pub(super) enum LogProblem {
    /// The trace cannot be written.
    Output(io::Error),
    /// One line.
    Log(String),
}

impl From<io::Error> for LogProblem {
    fn from(error: io::Error) -> Self {
        LogProblem::Output(error)
    }
}

/// Checks that a log can be read twice.
///
/// # Errors
/// One line.
pub(super) fn check(path: &Path) -> Result<(), Stop> {
    let named = path.display();
    match fs::metadata(path) {
        _ if path.as_os_str() == "-" => {}
        Ok(about) if about.is_file() => return Ok(()),
        Ok(_) => {}
        Err(error) => {
            return Err(Stop::usage(format!("cannot read {named}: {error}; name a log of AMD_LOG_LEVEL")));
        }
    }
    Err(Stop::usage(format!("--amd-log {named}: a log is read twice; name a file, plain or compressed")))
}

/// Reads a log into the trace, and says how it was joined.
///
/// # Errors
/// If nothing of it can be joined, or it cannot be read to its end.
pub(super) fn add<W: Write>(timeline: &mut Timeline<W>, path: &Path) -> Result<(), LogProblem> {
    let named = path.display();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut survey = timeline.survey(crate::text::escape::terminal(&name));
    read(path, &mut |line| survey.line(line))?;
    let plan = survey
        .finish()
        .map_err(|why| LogProblem::Log(format!("{named}: nothing of it is in the trace: {why}")))?;
    let mut placer = timeline.place(plan);
    let mut written = Ok(());
    let failure = read(path, &mut |line| {
        if written.is_ok() {
            written = placer.line(line);
        }
    })?;
    written?;
    for line in placer.finish()?.lines() {
        say(format_args!("{named}: {line}"));
    }
    failure.map_or(Ok(()), |line| Err(LogProblem::Log(line)))
}

/// Returns why it could not be read to its end.
fn read(path: &Path, each: &mut dyn FnMut(LogLine<'_>)) -> Result<Option<String>, LogProblem> {
    let opened = check(path).and_then(|()| LogSource::open(path, false));
    let mut source = opened.map_err(|stop| LogProblem::Log(stop.to_string()))?;
    let bar = Bar::new(source.size(), false);
    log_files::read_lines(&mut source, &bar, each);
    bar.done();
    Ok(source.failure())
}
