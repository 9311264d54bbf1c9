//! Starts the process that builds (`builder`), and has nothing in common with it but pipes. In: what to build, and the
//! source's folder. Out: a types file, bounded; or why there is none, and what the build printed.

use super::build::TIME_IS_OVER;
use super::build_log::BuildLog;
use super::request::{Answer, Job, Request, SUBCOMMAND, read_answer};
use super::source_stream;
use crate::runtime::confine;
use crate::runtime::private_user;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fchown, fstat, open, statvfs};
use rustix::process::{Gid, Uid, geteuid};
use std::env;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How much later than its own deadline the process is ended from here, and how long its last output may take.
const GRACE: Duration = Duration::from_secs(20);
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// Processes that try to end what a build left, and the time of each.
const CLEANERS: u32 = 4;
const CLEANS: Duration = Duration::from_secs(10);

/// Why there is no types file.
#[derive(Debug, Default)]
pub(super) struct Failure {
    pub(super) why: String,
    pub(super) log: BuildLog,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Failure { why, ..Failure::default() }
    }
}

/// Builds. `step` is called with the name of each step, `copied` with the bytes of each file. Out: the types file, and
/// a line for the user.
///
/// # Errors
/// What failed.
pub(super) fn types(
    source: &Path,
    job: Job,
    step: &(impl Fn(&str) + Sync),
    copied: &(impl Fn(u64) + Sync),
) -> Result<(Vec<u8>, Option<String>), Failure> {
    let user = private_user::unused()?;
    let work = Work::new(user)?;
    let deadline = Instant::now() + job.timeout;
    let request = Request { user, work: work.path.clone(), job: Some(job) };
    let mut child = start(Stdio::piped()).map_err(|error| cannot_start(&error))?;
    let (Some(input), Some(mut output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(cannot_start(&ErrorKind::BrokenPipe.into()).into());
    };
    let log = Drained::from(errors);
    let (answered, fed) = thread::scope(|scope| {
        let fed = scope.spawn(|| feed(input, &request, source, deadline, step, copied));
        let (answers, answered) = mpsc::channel();
        scope.spawn(move || drop(answers.send(read_answer(&mut output))));
        let left = deadline.saturating_duration_since(Instant::now()) + GRACE;
        let answered = answered.recv_timeout(left);
        // Until here the thread's result keeps the pipe open: its end shows the process that nothing waits for it.
        (end(answered, &mut child, &request), fed.join())
    });
    let failed = |why: String, log: Drained| Err(Failure { why, log: log.finish() });
    match (answered, fed) {
        (Ok((Answer::Types { note }, types)), _) => Ok((types, note)),
        // What the process says of a source that was cut off is about the consequence.
        (_, Ok(Err(Some(why)))) | (Ok((Answer::Failed(why), _)) | Err(why), _) => failed(why, log),
    }
}

/// The process, which gets its request next.
fn start(stderr: Stdio) -> io::Result<Child> {
    let mut command = confine::process(SUBCOMMAND);
    // Not of the terminal's group: at Ctrl-C it has yet to clean up.
    command.current_dir("/").process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    command.spawn()
}

fn cannot_start(error: &io::Error) -> String {
    format!("cannot start a process that builds: {error}")
}

/// Sends the request and the source; returns the pipe, still open. `Err(None)`: the process reads no more.
fn feed(
    input: ChildStdin,
    request: &Request,
    source: &Path,
    deadline: Instant,
    step: &impl Fn(&str),
    copied: &impl Fn(u64),
) -> Result<ChildStdin, Option<String>> {
    let mut out = BufWriter::new(input);
    step("copying the driver's source");
    let sent = request.send(&mut out).map_err(|error| cannot_start(&error)).and_then(|()| {
        source_stream::write(source, &mut out, &mut |bytes| {
            copied(bytes);
            if Instant::now() < deadline { Ok(()) } else { Err(TIME_IS_OVER.to_owned()) }
        })
    });
    let (input, _) = out.into_parts();
    match sent {
        Ok(()) => {
            step("building with the driver's own scripts");
            Ok(input)
        }
        Err(why) => Err((!is_broken(&input)).then_some(why)),
    }
}

/// Whether nothing reads from a pipe any more.
fn is_broken(pipe: &ChildStdin) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

type Answered = Result<io::Result<(Answer, Vec<u8>)>, RecvTimeoutError>;

/// Waits for the process, and ends what it left. It is in the hands of the driver's scripts, which are the same user:
/// they can stop or kill it.
fn end(answered: Answered, child: &mut Child, request: &Request) -> Result<(Answer, Vec<u8>), String> {
    let has_answered = matches!(answered, Ok(Ok(_)));
    let patience = if answered.is_err() { Duration::ZERO } else { GRACE };
    let status = wait(child, Instant::now() + patience);
    if !(has_answered && status.is_some_and(|status| status.success())) {
        match request.user {
            // As that user: this process needs no privilege for it, and follows no link in the folder.
            Some(_) => clean(request),
            None => drop(child.kill()),
        }
        if wait(child, Instant::now() + GRACE).is_none() {
            log::error!("the process that builds (PID {}) cannot be ended: it is left alone", child.id());
        }
    }
    match (answered, status) {
        (Ok(Ok(answer)), _) => Ok(answer),
        (Err(_), _) => Err(TIME_IS_OVER.to_owned()),
        (Ok(Err(error)), status) => {
            let status = status.map_or_else(|| "it was stopped".to_owned(), |status| status.to_string());
            Err(format!("the process that builds ended without an answer: {error} ({status})"))
        }
    }
}

fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Has another process end all of that user, and empty its folder. The driver's scripts can stop or kill it while it
/// becomes that user: then the next one tries.
fn clean(request: &Request) {
    let request = Request { job: None, ..request.clone() };
    let cleaned = || {
        let mut child = start(Stdio::null())?;
        child.stdin.take().map_or(Ok(()), |mut input| request.send(&mut input))?;
        Ok::<_, io::Error>(wait(&mut child, Instant::now() + CLEANS).is_some_and(|status| status.success()))
    };
    for _ in 0..CLEANERS {
        match cleaned() {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => log::warn!("cannot start a process that cleans up: {error}"),
        }
    }
    log::error!("{} and processes of the build may be left: end them, and remove it", request.work.display());
}

/// What a process prints, read by a thread until its end.
struct Drained {
    log: Arc<Mutex<BuildLog>>,
    ended: Receiver<()>,
}

impl Drained {
    fn from(mut errors: ChildStderr) -> Self {
        let log = Arc::new(Mutex::new(BuildLog::default()));
        let (ends, ended) = mpsc::channel();
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            while let Ok(read @ 1..) = errors.read(&mut bytes) {
                for line in String::from_utf8_lossy(&bytes[..read]).lines() {
                    log::debug!("{line}");
                }
                shared.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes[..read]);
            }
            drop(ends);
        });
        Drained { log, ended }
    }

    /// A process that moved out of its group may have the pipe still.
    fn finish(self) -> BuildLog {
        let _ = self.ended.recv_timeout(LAST_OUTPUT);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A private folder whose programs can be run: the driver's scripts are.
struct Work {
    path: PathBuf,
    is_own: bool,
}

impl Work {
    /// In TMPDIR or /var/tmp, given to `user`.
    fn new(user: Option<u32>) -> Result<Self, String> {
        let is_noexec = |folder: &Path| {
            statvfs(folder).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::NOEXEC))
        };
        let folders = [env::temp_dir(), PathBuf::from("/var/tmp")];
        let Some(folder) = folders.iter().find(|folder| !is_noexec(folder)) else {
            return Err(format!(
                "no program may be run in {} and /var/tmp (mounted noexec): name another folder in TMPDIR",
                folders[0].display()
            ));
        };
        let cannot = |error: io::Error| format!("cannot make a folder in {}: {error}", folder.display());
        let made = tempfile::Builder::new().prefix("kfd-trace-types-").tempdir_in(folder).map_err(cannot)?;
        let work = Work { path: made.keep(), is_own: user.is_none() };
        if let Some(user) = user {
            give(&work.path, user).map_err(cannot)?;
        }
        Ok(work)
    }
}

/// Gives a folder that this process made to a user and its group.
fn give(folder: &Path, user: u32) -> io::Result<()> {
    let folder = open(folder, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    // Whoever may write the folder above can have put another there.
    if fstat(&folder)?.st_uid != geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(fchown(&folder, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?)
}

impl Drop for Work {
    fn drop(&mut self) {
        // Another user's has been emptied by that user.
        let removed = if self.is_own { fs::remove_dir_all(&self.path) } else { fs::remove_dir(&self.path) };
        if let Err(error) = removed {
            log::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}
