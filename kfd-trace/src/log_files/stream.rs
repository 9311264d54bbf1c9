//! Queues of KFD that `kfd-trace --json` or `ps --json` recorded, to join with.

use super::input::EndFlag;
use crate::amd_log::recorded::Recorder;
use crate::amd_log::report::Kfd;
use crate::runtime::exit::Stop;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

/// Longest line of a stream that is accepted: `ps --json` writes one line.
const LONGEST: u64 = 64 << 20;

/// The output of `kfd-trace --json` or `kfd-trace ps --json`.
pub(crate) struct QueueRecording {
    name: String,
    file: BufReader<File>,
}

impl QueueRecording {
    /// # Errors
    /// One line: it cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<QueueRecording, Stop> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| cannot(&name, &error))?;
        Ok(QueueRecording { name, file: BufReader::new(file) })
    }

    /// Reads to its end.
    ///
    /// # Errors
    /// One line: it cannot be read, or has no queue and is no stream.
    pub(crate) fn read(mut self, end: &EndFlag) -> Result<Kfd, Stop> {
        let mut recorder = Recorder::default();
        let mut line = Vec::new();
        while !end.is_set() {
            line.clear();
            let read = self.file.by_ref().take(LONGEST).read_until(b'\n', &mut line);
            if read.map_err(|error| cannot(&self.name, &error))? == 0 {
                break;
            }
            recorder.line(&line);
        }
        let (queues, unreadable, left_out) = recorder.finish();
        if queues.is_empty() && unreadable > 0 {
            return Err(cannot(&self.name, &"it is no event stream"));
        }
        Ok(Kfd { asked: vec!["stream"], queues, unreadable, left_out })
    }
}

fn cannot(name: &str, why: &impl fmt::Display) -> Stop {
    Stop::failed(format!("cannot read {name}: {why}; --stream takes what kfd-trace --json wrote"))
}
