//! Reads a process from procfs. All reads use one open folder, so they are of the same process even if its
//! PID is reused meanwhile.

use super::cgroup::{Belongs, belongs};
use super::sysfs_file::begin;
use kfd_trace_common::limits::ANCESTORS;
use procfs::process::{Process, Stat, Status};
use procfs::{FromBufRead as _, FromRead as _, ProcError, ProcessCGroup, ProcessCGroups};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

const SECOND_NS: u64 = 1_000_000_000;
/// Most bytes kept of a command line, which may have megabytes: one is kept per process.
const CMDLINE: u64 = 4096;
/// Most bytes read from any other file. `Groups` in `status` may have 65,536 numbers.
const FILE: u64 = 1 << 20;
/// ESRCH: returned by a read if the process ended after the file was opened.
const NO_SUCH_PROCESS: i32 = 3;
/// Lines of `status` (fs/proc/array.c, proc_pid_status): those that the crate requires, and `NSpid`. Parsing
/// the other two thirds would be slow.
const STATUS: [&str; 21] = [
    "Name",
    "State",
    "Tgid",
    "Pid",
    "PPid",
    "TracerPid",
    "Uid",
    "Gid",
    "FDSize",
    "Groups",
    "NSpid",
    "Threads",
    "SigQ",
    "SigPnd",
    "ShdPnd",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "CapInh",
    "CapPrm",
    "CapEff",
];
/// The cgroup v1 controllers with useful paths; container runtimes create the same path in all of these.
const V1_CONTROLLERS: [&str; 5] = ["memory", "pids", "devices", "cpu", "name=systemd"];

/// Identity of a process (thread group).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub tgid: u32,
    /// Nanoseconds of CLOCK_BOOTTIME, truncated to a clock tick (10 ms), as in procfs.
    pub start_boottime_ns: u64,
    /// At most 15 bytes; invalid UTF-8 is replaced.
    pub comm: String,
    /// Real and effective user.
    pub uid: u32,
    pub euid: u32,
    /// Its PID in each PID namespace, from that of the procfs mount to its own: the last is the PID it sees
    /// itself.
    pub ns_pids: Vec<u32>,
}

impl Identity {
    /// Its PID in its own namespace, if different.
    #[must_use]
    pub fn inner_pid(&self) -> Option<u32> {
        self.ns_pids.last().copied().filter(|_| self.ns_pids.len() > 1)
    }
}

/// One process, with its container, pod, job or unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    pub who: Identity,
    /// Path in the cgroup v2 hierarchy, or in a v1 hierarchy if v2 has none.
    pub cgroup: Option<String>,
    /// From its paths in all hierarchies.
    pub belongs: Belongs,
}

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("process {tgid} does not exist")]
    Gone { tgid: u32 },
    /// The PID is reused: by a process with another start time, or by a thread.
    #[error("process {tgid} has ended and its number is in use again")]
    Reused { tgid: u32 },
    #[error("no permission to read process {tgid} in procfs")]
    Denied { tgid: u32 },
    #[error("cannot read process {tgid} in procfs: {why}")]
    Unreadable { tgid: u32, why: String },
}

/// Reads a process. If the start time is given that BPF saw (task_struct.start_boottime), only that process
/// matches. procfs counts whole clock ticks, so a difference of one tick counts as equal.
///
/// # Errors
/// See [`ProcessError`].
pub fn read(
    procfs: &Path,
    tgid: u32,
    expected_start_boottime_ns: Option<u64>,
) -> Result<ProcessInfo, ProcessError> {
    let process = open(procfs, tgid)?;
    let fault = |error| classify(tgid, error);
    let who = identified(&process, tgid, expected_start_boottime_ns)?;
    let cgroup = whole(&process, "cgroup").map_err(fault)?;
    let cgroups =
        ProcessCGroups::from_buf_read(String::from_utf8_lossy(&cgroup).as_bytes()).map_err(fault)?;
    let paths = cgroup_paths(&cgroups.0);
    let cgroup = paths.first().map(|path| (*path).to_owned());
    Ok(ProcessInfo { who, cgroup, belongs: belongs(paths) })
}

/// Reads the arguments of a process that is found as in [`read`]. They may contain secrets. Empty for a
/// process that has none left (it is exiting) or cleared them. Truncated after 4,096 bytes, then ending in
/// `...`. The kernel waits for the memory lock of the process.
///
/// # Errors
/// See [`ProcessError`].
pub fn cmdline(
    procfs: &Path,
    tgid: u32,
    expected_start_boottime_ns: Option<u64>,
) -> Result<Vec<String>, ProcessError> {
    let process = open(procfs, tgid)?;
    identified(&process, tgid, expected_start_boottime_ns)?;
    let cmdline = bytes(&process, "cmdline", CMDLINE).map_err(|error| classify(tgid, error))?;
    Ok(arguments(&cmdline))
}

/// Reads the identity of a process that is found as in [`read`].
///
/// # Errors
/// See [`ProcessError`].
pub fn identify(
    procfs: &Path,
    tgid: u32,
    expected_start_boottime_ns: Option<u64>,
) -> Result<Identity, ProcessError> {
    identified(&open(procfs, tgid)?, tgid, expected_start_boottime_ns)
}

/// Checks that exactly this process exists, as [`identify`] does.
///
/// # Errors
/// See [`ProcessError`].
pub fn check(procfs: &Path, tgid: u32, expected_start_boottime_ns: Option<u64>) -> Result<(), ProcessError> {
    identify(procfs, tgid, expected_start_boottime_ns).map(drop)
}

/// Whether a process descends from another one, by the parents that procfs shows now. A process that no longer
/// exists descends from none.
#[must_use]
pub fn descends(procfs: &Path, tgid: u32, ancestor: u32) -> bool {
    let parent = |of: &u32| life(procfs, *of).ok().map(|life| life.parent).filter(|parent| *parent != 0);
    let ancestors = std::iter::successors(parent(&tgid), parent);
    ancestors.take(ANCESTORS as usize).any(|one| one == ancestor)
}

/// State of a process in its life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// As in `stat`: `R`, `S`, `D`, `Z`...
    pub state: char,
    /// tgid of its parent, 0 for none.
    pub parent: u32,
    /// Includes the leader until it is reaped.
    pub threads: u32,
    /// Its leader is in do_exit (PF_EXITING).
    pub exiting: bool,
    /// A kernel thread (PF_KTHREAD): it has no files and no memory.
    pub of_kernel: bool,
}

impl Life {
    /// The leader has ended, other threads run.
    #[must_use]
    pub fn lives_without_leader(&self) -> bool {
        self.is_zombie() && self.threads > 1
    }

    /// All threads have ended, or are about to.
    #[must_use]
    pub fn is_over(&self) -> bool {
        (self.is_zombie() || self.exiting) && !self.lives_without_leader()
    }

    fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Reads the life cycle state of a process (or of a thread, by its own id). Flags: include/linux/sched.h.
///
/// # Errors
/// See [`ProcessError`].
pub fn life(procfs: &Path, tgid: u32) -> Result<Life, ProcessError> {
    const PF_EXITING: u32 = 0x4;
    const PF_KTHREAD: u32 = 0x20_0000;
    let stat = stat(&open(procfs, tgid)?).map_err(|error| classify(tgid, error))?;
    Ok(Life {
        state: stat.state,
        parent: u32::try_from(stat.ppid).unwrap_or(0),
        threads: u32::try_from(stat.num_threads).unwrap_or(0),
        exiting: stat.flags & PF_EXITING != 0,
        of_kernel: stat.flags & PF_KTHREAD != 0,
    })
}

fn identified(process: &Process, tgid: u32, start: Option<u64>) -> Result<Identity, ProcessError> {
    let fault = |error| classify(tgid, error);
    let stat = stat(process).map_err(fault)?;
    let other_start = |expected: u64| (expected / tick_ns()).abs_diff(stat.starttime) > 1;
    let status = status(process).map_err(fault)?;
    if status.tgid.cast_unsigned() != tgid || start.is_some_and(other_start) {
        return Err(ProcessError::Reused { tgid });
    }
    Ok(Identity {
        tgid,
        start_boottime_ns: stat.starttime.saturating_mul(tick_ns()),
        comm: stat.comm,
        uid: status.ruid,
        euid: status.euid,
        ns_pids: status.nspid.unwrap_or_default().into_iter().map(i32::cast_unsigned).collect(),
    })
}

fn tick_ns() -> u64 {
    (SECOND_NS / procfs::ticks_per_second().max(1)).max(1)
}

/// tgid of the process that a thread belongs to; for a process, its own id.
///
/// # Errors
/// No such thread, or not readable.
pub fn tgid_of(procfs: &Path, tid: u32) -> Result<u32, ProcessError> {
    let thread = open(procfs, tid)?;
    let status = status(&thread).map_err(|error| classify(tid, error))?;
    Ok(status.tgid.cast_unsigned())
}

/// Whether a process (not only a thread) with this id exists.
#[must_use]
pub fn exists(procfs: &Path, tgid: u32) -> bool {
    tgid_of(procfs, tgid).is_ok_and(|found| found == tgid)
}

fn open(procfs: &Path, tgid: u32) -> Result<Process, ProcessError> {
    let folder: PathBuf = procfs.join(tgid.to_string());
    Process::new_with_root(folder).map_err(|error| classify(tgid, error))
}

fn classify(tgid: u32, error: ProcError) -> ProcessError {
    match error {
        ProcError::NotFound(_) => ProcessError::Gone { tgid },
        ProcError::PermissionDenied(_) => ProcessError::Denied { tgid },
        ProcError::Io(error, _) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => {
            ProcessError::Gone { tgid }
        }
        // The last line is the text that could not be parsed; the lines before it are positions in the crate.
        ProcError::InternalError(error) => {
            let last = error.msg.lines().last().unwrap_or_default();
            ProcessError::Unreadable { tgid, why: begin(last).escape_debug().to_string() }
        }
        error => ProcessError::Unreadable { tgid, why: error.to_string() },
    }
}

/// The crate's own reader requires UTF-8, but a process can choose any name.
fn status(process: &Process) -> Result<Status, ProcError> {
    let text = whole(process, "status")?;
    let colon = |line: &[u8]| line.iter().position(|byte| *byte == b':');
    let is_wanted = |line: &&[u8]| {
        colon(line).is_some_and(|end| STATUS.iter().any(|wanted| wanted.as_bytes() == &line[..end]))
    };
    let wanted: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').filter(is_wanted).collect();
    Status::from_buf_read(String::from_utf8_lossy(&wanted.concat()).as_bytes())
}

/// The crate's own reader assumes the format and panics on any other: procfs may be a stand-in.
fn stat(process: &Process) -> Result<Stat, ProcError> {
    let text = whole(process, "stat")?;
    let text = String::from_utf8_lossy(&text);
    let text = text.trim();
    let (start, end) = (text.find('('), text.rfind(')'));
    let formed = start.zip(end).is_some_and(|(start, end)| {
        start.checked_sub(1).is_some_and(|before| text.is_char_boundary(before))
            && start < end
            && text.is_char_boundary(end + 2)
    });
    if formed {
        Stat::from_read(text.as_bytes())
    } else {
        Err(ProcError::Other("stat is not of the form `PID (NAME) STATE ...`".to_owned()))
    }
}

fn whole(process: &Process, file: &str) -> Result<Vec<u8>, ProcError> {
    let bytes = bytes(process, file, FILE)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= FILE) {
        Ok(bytes)
    } else {
        Err(ProcError::Other(format!("{file} has more than {FILE} bytes")))
    }
}

/// The first `most` bytes, plus one if there are more.
fn bytes(process: &Process, file: &str, most: u64) -> Result<Vec<u8>, ProcError> {
    let mut bytes = Vec::new();
    let read: io::Result<usize> = process.open_relative(file)?.take(most + 1).read_to_end(&mut bytes);
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(ProcError::Io(error, Some(file.into()))),
    }
}

/// Arguments end in NUL. A process that overwrote them with its own title may leave one text without NULs.
fn arguments(cmdline: &[u8]) -> Vec<String> {
    let end = cmdline.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if end == 0 {
        return Vec::new();
    }
    let most = usize::try_from(CMDLINE).unwrap_or(usize::MAX);
    let words = cmdline[..end.min(most)].split(|byte| *byte == 0);
    let mut words: Vec<_> = words.map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    if cmdline.len() > most
        && let Some(last) = words.last_mut()
    {
        last.push_str("...");
    }
    words
}

/// Each path once, the most useful first.
fn cgroup_paths(groups: &[ProcessCGroup]) -> Vec<&str> {
    let v2 = groups.iter().filter(|group| group.hierarchy == 0);
    let by_controller = |name: &&str| groups.iter().find(|group| group.controllers.iter().any(|c| c == name));
    let all: Vec<&ProcessCGroup> =
        v2.chain(V1_CONTROLLERS.iter().filter_map(by_controller)).chain(groups).collect();
    let (worth_having, roots): (Vec<_>, Vec<_>) = all.into_iter().partition(|group| group.pathname != "/");
    let mut paths = Vec::new();
    for group in worth_having.into_iter().chain(roots) {
        let path = group.pathname.strip_suffix(" (deleted)").unwrap_or(&group.pathname);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
