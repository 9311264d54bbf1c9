//! The command of `kfd-trace run`: started as a waiting child before this process gives up what the command may
//! need, released once the tracer is ready, and reaped with all that descends from it.
//!
//! The child is this program (`exec-command`), which waits for a byte on a pipe and then executes the command in
//! its place. If the tracer ends before, the pipe is closed, and the command is never executed.

use super::user::RunAs;
use rustix::fd::{AsRawFd as _, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::FromRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Exit codes of `env`, `nohup` and shells: the command exists and cannot be executed; it does not exist.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Added to the number of the signal that ended a command, as shells do.
const BY_SIGNAL: i32 = 128;

/// A command that waits, runs, or has ended.
#[derive(Debug)]
pub struct Launched {
    pid: Pid,
    go: Option<File>,
    code: Option<u8>,
}

impl Launched {
    /// Starts the child, whose command runs as another user if requested. From here on all that descends from it has this process among its ancestors: it inherits
    /// those whose parents end. Must be called before capabilities are given up.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn prepare(command: &[OsString], run_as: Option<&RunAs>) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let (pipe, go) = io::pipe()?;
        fcntl_setfd(&pipe, FdFlags::empty())?;
        let mut child = Command::new("/proc/self/exe");
        child.arg("exec-command").arg(pipe.as_raw_fd().to_string());
        if let Some(user) = run_as {
            child.arg("--as").arg(user.argument());
            if let Some((name, home)) = &user.account {
                child.env("HOME", home).env("USER", name).env("LOGNAME", name);
            }
        }
        child.arg("--").args(command);
        let child = child.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(ErrorKind::InvalidData)?;
        Ok(Launched { pid, go: Some(OwnedFd::from(go).into()), code: None })
    }

    /// Its PID in the namespace of this process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Lets the command be executed.
    ///
    /// # Errors
    /// If the child has ended.
    pub fn go(&mut self) -> io::Result<()> {
        self.go.take().map_or(Ok(()), |mut go| go.write_all(b"."))
    }

    /// Asks the command to end (SIGTERM), unless it has ended.
    pub fn terminate(&self) {
        if self.code.is_none() {
            // It was not reaped: the number is still its own.
            let _ = kill_process(self.pid, Signal::TERM);
        }
    }

    /// Reaps what has ended. The exit code of the command once it has ended: its own, or 128 and the signal that
    /// ended it.
    pub fn reap(&mut self) -> Option<u8> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    self.code = code_of(status.exit_status(), status.terminating_signal()).or(self.code);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return self.code,
            }
        }
    }

    /// The same as at the last [`Launched::reap`].
    #[must_use]
    pub fn code(&self) -> Option<u8> {
        self.code
    }
}

/// Out: the exit code for a command that exited with a code, or was ended by a signal.
fn code_of(exited: Option<i32>, signal: Option<i32>) -> Option<u8> {
    let code = exited.or_else(|| signal.map(|number| BY_SIGNAL + number));
    code.and_then(|code| u8::try_from(code & 0xff).ok())
}

/// The child's side: waits for a byte on the pipe and executes the command. Returns only if it cannot be executed:
/// with the exit code and a line, or without a line where the tracer has ended.
#[must_use]
pub fn exec(pipe: RawFd, run_as: Option<&RunAs>, command: &[OsString]) -> (u8, Option<String>) {
    // SAFETY: `Launched::prepare` passes this descriptor to this process alone, and nothing else here knows it.
    let mut pipe = unsafe { File::from_raw_fd(pipe) };
    if pipe.read_exact(&mut [0]).is_err() {
        return (super::exit::FAILED, None);
    }
    drop(pipe);
    // Before the command is looked for: that user may not be able to execute it.
    if let Some(user) = run_as
        && let Err(error) = user.become_it()
    {
        return (
            NOT_EXECUTABLE,
            Some(format!("cannot run a command as user {}: {}", user.uid, error.desc())),
        );
    }
    let Some((program, arguments)) = command.split_first() else { return (NOT_FOUND, None) };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    (code, Some(format!("cannot run {}: {error}", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_with_its_exit_code_or_its_signal() {
        assert_eq!([Some(0), Some(7), Some(255)].map(|code| code_of(code, None)), [0, 7, 255].map(Some));
        assert_eq!([9, 15].map(|signal| code_of(None, Some(signal))), [137, 143].map(Some));
        assert_eq!(code_of(None, None), None, "stopped");
    }

    #[test]
    fn nothing_is_executed_when_the_tracer_has_ended() {
        let (pipe, go) = io::pipe().unwrap();
        drop(go);
        let ended = exec(std::os::fd::IntoRawFd::into_raw_fd(pipe), None, &["true".into()]);
        assert_eq!(ended, (1, None));
    }
}
