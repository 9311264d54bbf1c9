//! The processes named by `--pid`: resolves the user's numbers to tgids, and detects their end.

use crate::attribute::process::{self, ProcessError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::path::Path;

/// A watched process.
#[derive(Debug)]
pub struct WatchedProcess {
    /// tgid in the initial PID namespace.
    pub tgid: u32,
    /// The number that the user gave, if it was a thread of the process.
    pub thread: Option<u32>,
    pidfd: OwnedFd,
    ended: bool,
}

/// Finds the process of each number.
///
/// # Errors
/// One line for the first number that is no process or thread here.
pub fn resolve(procfs: &Path, numbers: &[u32]) -> Result<Vec<WatchedProcess>, String> {
    let mut watched: Vec<WatchedProcess> = Vec::new();
    for number in numbers {
        let tgid = process::tgid_of(procfs, *number).map_err(|error| line(*number, &error))?;
        if watched.iter().any(|known| known.tgid == tgid) {
            continue;
        }
        let thread = (tgid != *number).then_some(*number);
        let pid = i32::try_from(tgid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| format!("--pid {number}: not a PID"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        let pidfd = pidfd.map_err(|error| format!("--pid {number}: cannot watch process {tgid}: {error}"))?;
        watched.push(WatchedProcess { tgid, thread, pidfd, ended: false });
    }
    Ok(watched)
}

/// The PID of this process as that procfs has it.
///
/// # Errors
/// One line, if it does not show this process.
pub fn own(procfs: &Path) -> Result<u32, String> {
    let link = procfs.join("self");
    let own =
        std::fs::read_link(&link).map_err(|error| format!("cannot read {}: {error}", link.display()))?;
    let number = own.to_str().and_then(|own| own.parse().ok());
    number.ok_or_else(|| format!("{} names no process", link.display()))
}

fn line(number: u32, error: &ProcessError) -> String {
    match error {
        ProcessError::Gone { .. } => format!(
            "--pid {number}: no such process. PIDs are those of the host; see `kfd-trace ps` for who uses KFD"
        ),
        other => format!("--pid {number}: {other}"),
    }
}

impl WatchedProcess {
    /// True once, at the first check after the end of the process.
    pub fn ends(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.ended = poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0);
        self.ended
    }

    /// The process has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_error_for_an_unknown_pid_has_a_remedy() {
        // Above the largest PID that Linux assigns (PID_MAX_LIMIT, 4 Mi).
        let error = resolve(Path::new("/proc"), &[4_194_305]).unwrap_err();
        assert!(
            error.starts_with("--pid 4194305: no such process") && error.contains("kfd-trace ps"),
            "{error}"
        );
    }

    #[test]
    fn the_end_of_a_process_is_reported_once() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut watched = resolve(Path::new("/proc"), &[child.id(), child.id()]).unwrap();
        assert_eq!(watched.len(), 1, "the same process twice is one");
        assert!(!watched[0].ends());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(watched[0].ends() && !watched[0].ends() && watched[0].ended());
    }

    #[test]
    fn a_thread_is_resolved_to_its_process() {
        let thread = std::thread::spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            (tid, resolve(Path::new("/proc"), &[tid]).unwrap())
        });
        let (tid, watched) = thread.join().unwrap();
        assert_eq!((watched[0].tgid, watched[0].thread), (std::process::id(), Some(tid)));
    }
}
