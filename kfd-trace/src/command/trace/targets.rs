//! What the stream follows to its end: the processes named by `--pid`, or the command of `kfd-trace run`.

use crate::model::selected::Selected;
use crate::runtime::launched::Launched;
use crate::runtime::pidfd::{self, WatchedProcess};
use crate::runtime::stderr::say;
use crate::state::State;
use std::path::Path;

#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) processes: Vec<WatchedProcess>,
    pub(super) command: Option<Launched>,
}

impl Targets {
    /// Otherwise all processes are traced.
    pub(super) fn are_some(&self) -> bool {
        self.command.is_some() || !self.processes.is_empty()
    }

    /// Whose records the probes send.
    ///
    /// # Errors
    /// If procfs does not show this process.
    pub(super) fn selected(&self, procfs: &Path) -> Result<Selected, String> {
        if let Some(command) = &self.command {
            let own = pidfd::own(procfs)?;
            // In another PID namespace the number of the command is another one, too.
            let first = if own == std::process::id() { command.pid() } else { 0 };
            return Ok(Selected::Descendants { of: own, first });
        }
        let tgids = self.processes.iter().map(|process| process.tgid).collect();
        Ok(if self.are_some() { Selected::Processes(tgids) } else { Selected::All })
    }

    /// Checks them, and reports which processes have ended since the last check.
    pub(super) fn look(&mut self) {
        for process in &mut self.processes {
            if process.ends() {
                say(format_args!("process {} has ended", process.tgid));
            }
        }
        if let Some(command) = &mut self.command {
            command.reap();
        }
    }

    /// There are some, and all have ended.
    pub(super) fn ended(&self) -> bool {
        let runs = self.command.as_ref().is_some_and(|command| command.code().is_none());
        self.are_some() && !runs && self.processes.iter().all(WatchedProcess::ended)
    }

    /// KFD has released all of them, too. Their KFD processes are removed later than they end.
    pub(super) fn released(&self, state: &State) -> bool {
        match &self.command {
            Some(_) => state.live().next().is_none(),
            None => self.processes.iter().all(|one| state.process_of_tgid(one.tgid).is_none()),
        }
    }

    /// SIGTERM came: passed on to a command that runs. Returns whether the stream goes on until that ends.
    pub(super) fn pass_on(&self) -> bool {
        let running = self.command.as_ref().filter(|command| command.code().is_none());
        running.inspect(|command| command.terminate()).is_some()
    }
}
