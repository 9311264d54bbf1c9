//! A timeline of what happens now: it is recorded first, into a file without a name.

use super::logs::Log;
use super::output::Output;
use super::{TimelineOptions, write_trace};
use crate::command::replay::source::Source;
use crate::command::trace::{self, StreamOptions};
use crate::runtime::exit::Stop;
use crate::runtime::stdout::Stdout;
use std::fs::File;
use std::io::Seek as _;
use std::path::{Path, PathBuf};

/// Where the trace is written if nothing else was requested.
const DEFAULT: &str = "kfd-trace.pftrace";

/// The files of a live timeline.
#[derive(Debug)]
pub struct LiveFiles {
    output: Output,
    /// In the trace's folder, the owner's alone, and gone whenever this process ends.
    recording: File,
    logs: Vec<Log>,
}

impl LiveFiles {
    /// Opens them. To be called before capabilities are given up: the folder may be another user's.
    ///
    /// # Errors
    /// One line.
    pub fn open(output: Option<&Path>, logs: &[PathBuf]) -> Result<Self, Stop> {
        let found = logs.iter().map(|log| Log::await_written(log)).collect::<Result<_, _>>()?;
        let output = Output::open(output.unwrap_or(Path::new(DEFAULT)), logs)?;
        let folder = output.folder();
        let recording = tempfile::tempfile_in(&folder);
        let recording = recording.map_err(|error| {
            Stop::failed(format!("cannot record into {}: {error}; it takes a file there", folder.display()))
        })?;
        Ok(LiveFiles { output, recording, logs: found })
    }
}

/// Traces until the end that `stream` requests, or Ctrl-C; then writes the trace. The summary is printed on standard error.
///
/// # Errors
/// One line and an exit code. If tracing ended early, what was recorded until then is in the trace.
pub async fn run(options: &TimelineOptions, stream: &StreamOptions, files: LiveFiles) -> Result<(), Stop> {
    let LiveFiles { output, mut recording, logs } = files;
    let cannot = |error| Stop::failed(format!("cannot use the recording: {error}"));
    let out = Stdout::stderr().map_err(cannot)?;
    let traced = trace::record(stream, out, recording.try_clone().map_err(cannot)?).await;
    // Nothing is written over for the sake of nothing.
    if recording.metadata().map_err(cannot)?.len() == 0 {
        return traced;
    }
    recording.rewind().map_err(cannot)?;
    let source = Source::Stream(Box::new(recording));
    let written = write_trace(options, &logs, "the recording", source, || Ok(output));
    both(traced, written)
}

/// One line of both, with the exit code of the first.
fn both(traced: Result<(), Stop>, written: Result<(), Stop>) -> Result<(), Stop> {
    match (traced, written) {
        (Err(traced), Err(written)) => {
            Err(Stop { code: traced.code, line: format!("{traced}; and {written}") })
        }
        (traced, written) => traced.and(written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_problems_none_is_hidden() {
        let (first, second) = (Err(Stop::usage("a")), Err(Stop::failed("b")));
        assert_eq!(both(first.clone(), second.clone()), Err(Stop { code: 2, line: "a; and b".to_owned() }));
        assert_eq!(both(first.clone(), Ok(())), first);
        assert_eq!((both(Ok(()), second.clone()), both(Ok(()), Ok(()))), (second, Ok(())));
    }
}
