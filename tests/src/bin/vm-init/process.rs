//! Processes as PID 1 sees them: run one to its end while reaping every orphan.

use anyhow::{Context as _, Result, bail};
use std::fs::OpenOptions;
use std::io::Error;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};

/// Runs to the end. Orphans that end meanwhile are reaped.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().with_context(|| format!("cannot run {program}"))?;
    let pid = libc::pid_t::try_from(child.id()).context("PID out of range")?;
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live integer.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if ended == pid {
            return Ok(ExitStatus::from_raw(status));
        }
        if ended < 0 && Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            bail!("lost {program}: {}", Error::last_os_error());
        }
    }
}

/// A shell on the console with job control.
pub(crate) fn shell(command: &mut Command) -> Result<ExitStatus> {
    let console =
        OpenOptions::new().read(true).write(true).open("/dev/ttyS0").context("cannot open /dev/ttyS0")?;
    let copy = || console.try_clone().context("cannot share the console");
    command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
    let own_terminal = || {
        // SAFETY: no arguments; the new process leads no group, so it cannot fail.
        unsafe { libc::setsid() };
        // SAFETY: plain integers; descriptor 0 is the console.
        match unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    };
    // SAFETY: setsid and ioctl are async-signal-safe and touch no memory of the parent.
    unsafe { command.pre_exec(own_terminal) };
    run(command)
}

/// Ends every process but this one, and reaps them all.
pub(crate) fn end_all() {
    // SAFETY: -1 is everything but PID 1 itself and kernel threads.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live integer.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if ended < 0 && Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
            return;
        }
    }
}
