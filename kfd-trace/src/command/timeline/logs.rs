//! Logs of AMD_LOG_LEVEL into a trace. Each is read twice.

use crate::amd_log::lines::LogLine;
use crate::log_files::{self, Bar, LogSource};
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::timeline::Timeline;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek as _, Write};
use std::path::{Path, PathBuf};

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

/// A log that is to be read twice.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Opened before capabilities were given up.
    early: Option<File>,
}

impl Log {
    /// Checks that it can be read twice.
    ///
    /// # Errors
    /// One line.
    pub(super) fn find(path: &Path) -> Result<Log, Stop> {
        let about = fs::metadata(path);
        let named = path.display();
        match about {
            _ if path.as_os_str() == "-" => {}
            Ok(about) if about.is_file() => return Ok(Log { path: path.to_owned(), early: None }),
            Ok(_) => {}
            Err(error) => {
                return Err(Stop::failed(format!(
                    "cannot read {named}: {error}; name a log of AMD_LOG_LEVEL"
                )));
            }
        }
        Err(Stop::usage(format!("--amd-log {named}: a log is read twice; name a file, plain or compressed")))
    }

    /// One that is read after the tracing: it may be written during it. What exists is opened; to be called before
    /// capabilities are given up.
    ///
    /// # Errors
    /// One line.
    pub(super) fn await_written(path: &Path) -> Result<Log, Stop> {
        let is_new = fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if is_new && path.as_os_str() != "-" {
            return Ok(Log { path: path.to_owned(), early: None });
        }
        let log = Log::find(path)?;
        let opened = File::open(path);
        let early = opened.map_err(|error| {
            Stop::failed(format!("cannot read {}: {error}; name a log of AMD_LOG_LEVEL", path.display()))
        })?;
        Ok(Log { early: Some(early), ..log })
    }

    fn open(&self) -> Result<LogSource, Stop> {
        let now = Log::find(&self.path).and_then(|log| LogSource::open(&log.path, false));
        let (Some(early), Err(problem)) = (&self.early, &now) else { return now };
        // Its folder may be another user's, or it was moved away.
        let same = early.try_clone().and_then(|mut file| file.rewind().map(|()| file));
        let same = same.map_err(|error| Stop::failed(format!("{problem}; {error}")))?;
        LogSource::of(&self.path, self.path.display().to_string(), same, false)
    }

    /// Returns its name, and why it could not be read to its end.
    fn read(&self, each: &mut dyn FnMut(LogLine<'_>)) -> Result<Option<String>, LogProblem> {
        let mut source = self.open().map_err(|stop| LogProblem::Log(stop.to_string()))?;
        let bar = Bar::new(source.size(), false);
        log_files::read_lines(&mut source, &bar, each);
        bar.done();
        Ok(source.failure())
    }
}

/// Reads a log into the trace, and says how it was joined.
///
/// # Errors
/// If nothing of it can be joined, or it cannot be read to its end.
pub(super) fn add<W: Write>(timeline: &mut Timeline<W>, log: &Log) -> Result<(), LogProblem> {
    let named = log.path.display();
    let name = log.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut survey = timeline.survey(crate::text::escape::terminal(&name));
    let first = log.read(&mut |line| survey.line(line))?;
    let plan = survey.finish().map_err(|why| {
        LogProblem::Log(match &first {
            Some(failure) => format!("{failure}; nothing of what is before is in the trace: {why}"),
            None => format!("{named}: nothing of it is in the trace: {why}"),
        })
    })?;
    let mut placer = timeline.place(plan);
    let mut written = Ok(());
    let second = log.read(&mut |line| {
        if written.is_ok() {
            written = placer.line(line);
        }
    })?;
    written?;
    for line in placer.finish()?.lines() {
        say(format_args!("{named}: {line}"));
    }
    let failure = second.or(first);
    failure.map_or(Ok(()), |line| Err(LogProblem::Log(format!("{line}; what came before is in the trace"))))
}
