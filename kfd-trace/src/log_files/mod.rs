//! Logs of AMD_LOG_LEVEL as files: plain or compressed, from a pipe, growing; and recorded queues to join
//! with. Out: lines, counted by a [`Tally`].

use crate::amd_log::Tally;

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
        source.read_all(tally, end, bar);
    }
}
