//! Logs of AMD_LOG_LEVEL as files: plain or compressed, from a pipe, growing; and recorded queues to join
//! with. Out: lines, counted by a [`Tally`] or taken one by one.

use crate::amd_log::Tally;
use crate::amd_log::lines::LogLine;

mod bar;
mod compressed;
mod follow;
mod input;
mod stream;

pub(crate) use bar::Bar;
pub(crate) use input::{EndFlag, LogSource};
pub(crate) use stream::QueueRecording;

/// Reads all sources to their ends, or, with `follow`, what exists and what is appended, until a signal.
pub(crate) fn read(sources: &mut [LogSource], tally: &mut Tally, end: &EndFlag, bar: &Bar, follow: bool) {
    if follow {
        return follow::read(sources, tally, end, bar);
    }
    for source in sources {
        source.read_all(&mut |line| tally.line(line), end, bar);
    }
}

/// Reads a source to its end, line by line.
pub(crate) fn read_lines(source: &mut LogSource, bar: &Bar, each: &mut dyn FnMut(LogLine<'_>)) {
    source.read_all(each, &EndFlag::default(), bar);
}
