//! Waiting for the sign to finish: the end of standard input, SIGTERM, SIGINT, or the end of a child.

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io::{Read, stdin};
use std::os::fd::AsFd;

/// From here on these signals end [`Finish::wait`] instead of the process. To be created before any thread.
pub(crate) struct Finish(SignalFd);

impl Finish {
    pub(crate) fn on_signals() -> Result<Self> {
        let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().collect();
        signals.thread_block().context("block SIGTERM")?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).map(Self).context("make a signalfd")
    }

    pub(crate) fn wait(&self) -> Result<()> {
        while self.input()? {}
        Ok(())
    }

    /// Also waits for input: true when some arrived, false when it is time to finish.
    pub(crate) fn input(&self) -> Result<bool> {
        let input = stdin();
        let mut buffer = [0; 256];
        let mut fds =
            [PollFd::new(input.as_fd(), PollFlags::POLLIN), PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).context("wait for the end of standard input")?;
        let [at_input, at_signal] = fds.map(|fd| fd.any().unwrap_or(true));
        Ok(!at_signal && (!at_input || input.lock().read(&mut buffer)? > 0))
    }
}
