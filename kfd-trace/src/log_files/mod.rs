//! Logs of AMD_LOG_LEVEL as files: plain or compressed, from a pipe, growing; and recorded queues to join
//! with. Out: lines, counted by a [`Tally`].

use crate::amd_log::Tally;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod bar;
mod compressed;
mod follow;
mod input;
mod stream;

pub(crate) use bar::Bar;
pub(crate) use input::LogSource;
pub(crate) use stream::QueueRecording;

/// Set by a signal: the report covers what was read until then.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndFlag(Arc<AtomicBool>);

impl EndFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reads all sources to their ends, or, with `follow`, what exists and what is appended, until a signal.
pub(crate) fn read(sources: &mut [LogSource], tally: &mut Tally, end: &EndFlag, bar: &Bar, follow: bool) {
    if follow {
        return follow::read(sources, tally, end, bar);
    }
    for source in sources {
        source.read_all(tally, end, bar);
    }
}
