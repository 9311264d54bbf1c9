//! What is requested of the stream.

use super::selection::Selection;
use crate::kernel::Roots;
use crate::model::selected::Selected;
use crate::probes::plan::Choice;
use crate::runtime::exit::Stop;
use crate::runtime::launched::Launched;
use crate::runtime::pidfd::{self, WatchedProcess};
use kfd_trace_common::kind::Kind;
use std::collections::BTreeSet;
use std::time::Duration;

/// What is requested of the stream.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    pub roots: Roots,
    /// As the user gave them: processes or threads.
    pub pids: Vec<u32>,
    /// Only of a command.
    pub of_command: bool,
    pub comm: Option<String>,
    /// Empty for all kinds that need not be requested.
    pub kinds: BTreeSet<Kind>,
    pub json: bool,
    pub colour: bool,
    /// No event is printed.
    pub summary_only: bool,
    pub duration: Option<Duration>,
    pub ring_bytes: u32,
    /// Interval between samples of queues; zero for none.
    pub sample: Duration,
    pub choice: Choice,
}

impl StreamOptions {
    pub(super) fn selection(&self) -> Selection<'_> {
        Selection {
            kinds: &self.kinds,
            on_request: self.choice.runlists,
            processes: !self.pids.is_empty() || self.of_command,
            comm: self.comm.as_deref(),
        }
    }

    /// # Errors
    /// If procfs does not show this process.
    pub(super) fn selected(
        &self,
        watched: &[WatchedProcess],
        command: Option<&Launched>,
    ) -> Result<Selected, Stop> {
        if let Some(command) = command {
            let own = pidfd::own(&self.roots.procfs).map_err(Stop::failed)?;
            // In another PID namespace the number of the command is another one, too.
            let first = if own == std::process::id() { command.pid() } else { 0 };
            return Ok(Selected::Descendants { of: own, first });
        }
        let tgids: Vec<u32> = watched.iter().map(|process| process.tgid).collect();
        Ok(if tgids.is_empty() { Selected::All } else { Selected::Processes(tgids) })
    }
}
