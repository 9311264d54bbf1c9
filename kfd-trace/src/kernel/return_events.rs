//! Return probes of the driver's functions as events of tracefs. A return probe that perf makes holds at most
//! max(10, 2 * CPUs) calls at a time; one that is defined in tracefs holds as many as its definition asks for, which
//! sleepers in WAIT_EVENTS and crowds of callers need.
//!
//! In: the folder of tracefs, a group, names of functions. Out: events that are defined or removed, and their ids, on
//! which a tracer opens perf events. The kernel refuses to remove one that is open.

use super::{DRIVER, DriverForm, thread, tracefs_folders};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Calls under way that the event of `kfd_ioctl` sees return: the most that the kernel accepts
/// (`KRETPROBE_MAXACTIVE_MAX`, kernel/trace/trace_kprobe.c).
pub const MOST_CALLS: usize = 4096;

/// Calls under way of another function: a process does not sleep in it with hundreds of threads. Since 6.7 each possible CPU
/// has a list with room for all of them (lib/objpool.c), so that with 256 CPUs an event takes 2 MiB instead of 8.
const CALLS_OF_OTHERS: usize = 1024;

/// The function of every ioctl, in which thousands of threads may sleep.
pub const CALLS: &str = "kfd_ioctl";

/// Functions that the driver has on every kernel from 5.10 on. An event of a function that is missing when the driver is
/// loaded makes the kernel log a warning (`trace_kprobe_module_callback`, kernel/trace/trace_kprobe.c).
const IN_EVERY_DRIVER: [&str; 5] =
    [CALLS, "kfd_open", "kfd_create_process", "kfd_process_wq_release", "update_queue"];

/// The list of definitions, below tracefs.
const LIST: &str = "kprobe_events";
/// Longest accepted text of an event's id: digits and a newline.
const LONGEST_ID: u64 = 32;
/// Names that are read of a group's folder: more than any version defines.
const MOST_EVENTS: usize = 256;
/// Groups of one process: more loadings of the driver than another tracer sits through.
const MOST_GROUPS: u32 = 100;

/// Whose events they are. Each tracer has its own: at an event that another one has armed before, it would see returns of
/// calls of which it has seen no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventGroup {
    /// Defined and removed by the service manager around the daemon, which may only read them.
    Service,
    /// Defined and removed by a process of root, which is known by its PID and the time at which it started, both as its procfs
    /// has them. `nth`: another group of it, where an earlier one could not be removed.
    Process { pid: u32, start: u64, nth: u32 },
}

impl EventGroup {
    /// That of this process. In a container with the host's procfs its PID is the host's.
    #[must_use]
    pub fn own(procfs: &Path) -> Self {
        let shown = fs::read_link(procfs.join("self")).ok();
        let pid = shown.and_then(|shown| shown.to_str()?.parse().ok()).unwrap_or_else(std::process::id);
        EventGroup::Process { pid, start: thread::start(procfs, pid).unwrap_or(0), nth: 0 }
    }

    /// Its name in tracefs.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            EventGroup::Service => "kfd_trace_service".to_owned(),
            EventGroup::Process { pid, start, nth: 0 } => format!("{OF_PROCESS}{pid}_{start}"),
            EventGroup::Process { pid, start, nth } => format!("{OF_PROCESS}{pid}_{start}_{nth}"),
        }
    }

    /// The inverse, of processes alone.
    fn of_process(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix(OF_PROCESS)?.splitn(3, '_');
        let (pid, start) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        let nth = numbers.next().map_or(Some(0), |nth| nth.parse().ok())?;
        Some(EventGroup::Process { pid, start, nth })
    }
}

/// What the name of a process's group begins with.
const OF_PROCESS: &str = "kfd_trace_of_";

/// What could not be done, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ReturnEventError {
    #[error("no tracefs with kprobe events below {}: mount -t tracefs tracefs /sys/kernel/tracing", .0.display())]
    NoTracefs(PathBuf),
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot list {}: {source}", path.display())]
    List { path: PathBuf, source: io::Error },
}

/// The lines that the kernel refused, with the reason of each.
#[derive(Debug, Default)]
pub struct Refused(Vec<(String, io::Error)>);

impl Refused {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes those with one of these reasons, and returns how many they were.
    fn drop_those_with(&mut self, reasons: &[Errno]) -> usize {
        let before = self.0.len();
        let is_one =
            |error: &io::Error| Errno::from_io_error(error).is_some_and(|reason| reasons.contains(&reason));
        self.0.retain(|(_, error)| !is_one(error));
        before - self.0.len()
    }
}

impl fmt::Display for Refused {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel refused in kprobe_events")?;
        for (number, (line, error)) in self.0.iter().enumerate() {
            let separator = if number == 0 { ": " } else { "; " };
            write!(f, "{separator}`{line}`, {error}")?;
        }
        Ok(())
    }
}

/// The folder of tracefs in which events can be defined.
///
/// # Errors
/// It is not mounted, or the kernel has no kprobe events.
pub fn tracefs(sysfs: &Path) -> Result<PathBuf, ReturnEventError> {
    let mut folders = tracefs_folders(sysfs).into_iter();
    // Where that is unknown, the folder may not be entered: opening the list gives the reason.
    let found = folders.find(|folder| folder.join(LIST).try_exists().unwrap_or(true));
    found.ok_or_else(|| ReturnEventError::NoTracefs(sysfs.to_owned()))
}

/// Defines the events of `functions`, each under the name of its function, and returns what the kernel refused. An event
/// that is defined already stays. Functions that the driver does not have are left out.
///
/// Where `address` knows one, the event is of this address, and does not come back when the driver is loaded again. Before 6.2 a
/// name costs the kernel some 100 million instructions each time, since it unpacks all names of its image to find one.
///
/// # Errors
/// The list cannot be opened: nothing is defined.
pub fn define(
    tracefs: &Path,
    group: EventGroup,
    driver: &DriverForm,
    functions: &[&str],
    address: &dyn Fn(&str) -> Option<u64>,
) -> Result<Refused, ReturnEventError> {
    let (every, some): (Vec<&str>, Vec<&str>) =
        functions.iter().partition(|name| IN_EVERY_DRIVER.contains(name));
    let mut refused = write_each(tracefs, definitions(group, driver, &every, address))?;
    // The function is not in the loaded driver; the event is there.
    refused.drop_those_with(&[Errno::NOENT, Errno::EXIST]);
    let mut others = write_each(tracefs, definitions(group, driver, &some, address))?;
    // Since 6.7 the kernel refuses a missing function as it refuses a wrong line (`validate_probe_symbol`).
    others.drop_those_with(&[Errno::NOENT, Errno::EXIST, Errno::INVAL]);
    refused.0.append(&mut others.0);
    Ok(refused)
}

/// What became of a group.
#[derive(Debug, Default)]
pub struct Removed {
    /// Events that stay because a tracer has them open.
    pub busy: usize,
    /// What the kernel refused for another reason.
    pub refused: Refused,
}

/// Removes the events of a group, whoever defined them.
///
/// # Errors
/// The events cannot be listed, or the list of definitions cannot be opened: nothing is removed.
pub fn remove(tracefs: &Path, group: EventGroup) -> Result<Removed, ReturnEventError> {
    let events = existing(tracefs, group)?;
    if events.is_empty() {
        return Ok(Removed::default());
    }
    let mut refused = write_each(tracefs, events.iter().map(|event| removal(group, event)).collect())?;
    // Another tracer has removed it meanwhile.
    refused.drop_those_with(&[Errno::NOENT]);
    Ok(Removed { busy: refused.drop_those_with(&[Errno::BUSY]), refused })
}

/// The first group of this process in which no event is left. Those of an earlier loading of the driver, which have the addresses
/// of then, stay while another tracer has them open, and the kernel takes a definition of the same name for the same.
#[must_use]
pub fn free(tracefs: &Path, own: EventGroup) -> EventGroup {
    let EventGroup::Process { pid, start, .. } = own else { return own };
    let mut groups = (0..MOST_GROUPS).map(|nth| EventGroup::Process { pid, start, nth });
    let is_free = |group: &EventGroup| {
        let removed = remove(tracefs, *group);
        removed.is_ok() && existing(tracefs, *group).is_ok_and(|events| events.is_empty())
    };
    groups.find(is_free).unwrap_or(own)
}

/// Removes the events of processes that have ended without removing them.
pub fn remove_abandoned(tracefs: &Path, procfs: &Path) {
    let groups = fs::read_dir(tracefs.join("events")).into_iter().flatten().filter_map(Result::ok);
    let groups = groups.filter_map(|entry| EventGroup::of_process(entry.file_name().to_str()?));
    for group in groups.filter(|group| is_abandoned(procfs, *group)).take(MOST_EVENTS) {
        if let Err(error) = remove(tracefs, group) {
            log::warn!("events of a tracer that was killed stay in tracefs: {error}");
        }
    }
}

fn is_abandoned(procfs: &Path, group: EventGroup) -> bool {
    let EventGroup::Process { pid, start, .. } = group else { return false };
    // 0: it was not known.
    let reused = || start != 0 && thread::start(procfs, pid).is_some_and(|now| now != start);
    thread::has_ended(procfs, pid, pid) || reused()
}

/// The ids of those events of `functions` that are defined and that this process may read, by function: what perf takes as
/// `config` of a tracepoint. An id that is no number, or 0, is as if the event did not exist.
#[must_use]
pub fn ids(tracefs: &Path, group: EventGroup, functions: &[&str]) -> BTreeMap<String, u64> {
    let folder = events_folder(tracefs, group);
    let id = |function: &&str| Some(((*function).to_owned(), read_id(&folder.join(function).join("id"))?));
    functions.iter().filter_map(id).collect()
}

/// The lines that define the events. Pure.
///
/// With the module's name the event can be defined before the driver is loaded, arms again when the driver is loaded again,
/// and means the driver's function where the kernel image has another one of the name (ipc/sem.c has an `update_queue`).
/// In a driver that is built in, only names that begin as none but the driver's do mean its functions.
fn definitions(
    group: EventGroup,
    driver: &DriverForm,
    functions: &[&str],
    address: &dyn Fn(&str) -> Option<u64>,
) -> Vec<String> {
    let is_meant = |function: &&&str| match driver {
        DriverForm::Absent => IN_EVERY_DRIVER.contains(*function),
        DriverForm::BuiltIn => function.starts_with("kfd_"),
        DriverForm::Module { .. } => true,
    };
    let module = if *driver == DriverForm::BuiltIn { String::new() } else { format!("{DRIVER}:") };
    let group = group.name();
    let line = |function: &&str| {
        let calls = if *function == CALLS { MOST_CALLS } else { CALLS_OF_OTHERS };
        let place = address(function).map(|address| format!("{address:#x}"));
        format!("r{calls}:{group}/{function} {}", place.unwrap_or_else(|| format!("{module}{function}")))
    };
    functions.iter().filter(is_meant).map(line).collect()
}

/// The line that removes an event. Pure.
fn removal(group: EventGroup, event: &str) -> String {
    format!("-:{}/{event}", group.name())
}

/// As the kernel takes it for an event (`is_good_name`, kernel/trace/trace.h).
fn is_event_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_part)
}

fn events_folder(tracefs: &Path, group: EventGroup) -> PathBuf {
    tracefs.join("events").join(group.name())
}

/// Names of the events of a group; none where the group does not exist.
fn existing(tracefs: &Path, group: EventGroup) -> Result<Vec<String>, ReturnEventError> {
    let path = events_folder(tracefs, group);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(ReturnEventError::List { path, source }),
    };
    let folders =
        entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| is_event_name(name)).take(MOST_EVENTS).collect())
}

fn read_id(path: &Path) -> Option<u64> {
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST_ID).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|id| *id != 0)
}

/// Writes each line by itself, since the kernel ignores what comes after one that it refuses. Returns the refused ones.
fn write_each(tracefs: &Path, lines: Vec<String>) -> Result<Refused, ReturnEventError> {
    let path = tracefs.join(LIST);
    // Never truncated: that removes the events of all other tracers (probes_open, kernel/trace/trace_kprobe.c).
    let mut list = match OpenOptions::new().append(true).open(&path) {
        Ok(list) => list,
        Err(source) => return Err(ReturnEventError::Open { path, source }),
    };
    let refused = lines.into_iter().filter_map(|line| {
        let error = list.write_all(format!("{line}\n").as_bytes()).err()?;
        Some((line, error))
    });
    Ok(Refused(refused.collect()))
}

#[cfg(test)]
mod tests;
