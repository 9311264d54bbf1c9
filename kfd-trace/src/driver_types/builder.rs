//! The process that builds: the one that meets a driver's scripts, and what they made. In, on standard input: what to
//! do, then the source. Out, on standard output: a types file, or why there is none; on standard error: what the
//! build printed.
//!
//! Where the program is run by root, this process is a user that nothing else is, before it opens anything. Root has
//! pipes to it, and opens no file of it.

use super::build::Build;
use super::dwarf;
use super::request::{Answer, Job, LONGEST, Request};
use crate::runtime::confine;
use crate::runtime::exit::Stop;
use crate::runtime::frames::{read_frame, write_frame};
use crate::runtime::private_user::PrivateUser;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::umask;
use rustix::thread::set_name;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::Instant;

/// The process's name: 15 bytes at most.
const NAME: &CStr = c"kfd-trace-types";

/// Builds what it is asked for, once; then ends what it started, and empties its folder.
///
/// # Errors
/// If `driver-types` did not start it, or no longer waits.
pub fn run() -> Result<(), Stop> {
    answer().map_err(|error| Stop::failed(format!("only `kfd-trace driver-types` starts this: {error}")))
}

fn answer() -> io::Result<()> {
    confine::close_inherited()?;
    set_name(NAME)?;
    let mut input = File::from(fcntl_dupfd_cloexec(io::stdin(), 3)?);
    let request: Request = serde_json::from_slice(&read_frame(&mut input, LONGEST)?)?;
    let mut out = io::stdout().lock();
    let user = match request.user.map(PrivateUser::enter).transpose() {
        Ok(user) => user,
        Err(error) => {
            let why = format!(
                "cannot become an unused user to build as: {error}; give CAP_SETUID, CAP_SETGID and CAP_CHOWN, or run \
                 this as an ordinary user"
            );
            return write_frame(&mut out, &serde_json::to_vec(&Answer::Failed(why))?);
        }
    };
    umask(Mode::from_raw_mode(0o022));
    let built = request.job.as_ref().map(|job| types(job, &request.work, &input));
    clean(user.as_ref(), &request.work);
    match built {
        None => Ok(()),
        Some(Ok((types, note))) => {
            write_frame(&mut out, &serde_json::to_vec(&Answer::Types { note })?)?;
            write_frame(&mut out, &types)
        }
        Some(Err(why)) => write_frame(&mut out, &serde_json::to_vec(&Answer::Failed(why))?),
    }
}

fn types(job: &Job, work: &Path, input: &File) -> Result<(Vec<u8>, Option<String>), String> {
    let is_abandoned = || has_hung_up(input.as_fd());
    let build = Build { job, work, deadline: Instant::now() + job.timeout, is_abandoned: &is_abandoned };
    let object = build.object(input)?;
    let mut types = dwarf::types(&object.bytes)?;
    for tag in &job.tags {
        types.tag(1, tag);
    }
    Ok((types.bytes(), object.note))
}

/// Whether all writers of a pipe have closed it.
fn has_hung_up(pipe: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(pipe, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        && polled[0].revents().contains(PollFlags::HUP)
}

/// Ends what the build left running, and removes all that is in its folder. The folder itself may be in one that this
/// user may not write.
fn clean(user: Option<&PrivateUser>, work: &Path) {
    if let Some(user) = user {
        user.end_all();
    }
    for entry in fs::read_dir(work).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if let Err(error) = removed {
            log::warn!("cannot remove {}: {error}", path.display());
        }
    }
}
