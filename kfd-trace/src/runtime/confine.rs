//! Confines a process that serves any client: no capability, no new file, no new program, no other process, and no thread but
//! those that it has.
//!
//! In: a process with one thread, which has open all that it needs. Out: one that the kernel holds to that, whatever
//! code runs in it.

mod domain;
mod filter;
pub(crate) mod log;
mod scope;
pub(crate) mod stream;

use super::privilege;
use super::unused_user::unused_user;
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Signal, Uid, geteuid, getrlimit, nice, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// It is the first to be killed where memory is short: the tracer starts it again, and keeps what it knows.
const OOM_SCORE: &str = "500";

/// A thread of it gets a tenth of what a thread of the tracer gets of a CPU that both want (kernel/sched/core.c,
/// sched_prio_to_weight: 110 to 1024), so that all of its threads together get as much as the tracer.
const NICE: i32 = 10;

/// Time for threads to start.
const START: Duration = Duration::from_secs(30);

/// Whether a process serves without a filter of system calls where the kernel or a container refuses it
/// (`--without-seccomp`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    #[default]
    Required,
    Optional,
}

/// A command that starts this program's part `subcommand`, which confines itself: also where the program's file was replaced
/// meanwhile, without the environment, and logging as this process does. The caller adds its streams; standard error is
/// that of [`log::pipe`].
pub(crate) fn process(subcommand: &str) -> Command {
    let more = (::log::max_level() as usize).saturating_sub(::log::LevelFilter::Warn as usize);
    let mut command = Command::new("/proc/self/exe");
    command.arg0("kfd-trace").args(std::iter::repeat_n("-v", more)).arg(subcommand).env_clear();
    command
}

/// Gives up what this process must not have, then starts all of its threads, and then installs the filter in each of them.
/// `descriptors`: how many it may have open beyond those that are open then. Out: what `start` returns, and how many it
/// really may.
///
/// # Errors
/// If a capability stays; if the filter is refused and `seccomp` requires it; those of `start`. What else the kernel refuses
/// is logged: a container may have rules of its own.
pub(crate) fn confine<T>(
    seccomp: Seccomp,
    descriptors: u64,
    start: impl FnOnce() -> io::Result<T>,
) -> io::Result<(T, u64)> {
    // The first two before the user changes: the file is this user's, and niceness needs no privilege.
    logged("/proc/self/oom_score_adj", fs::write("/proc/self/oom_score_adj", OOM_SCORE));
    logged("its priority", nice(NICE).map(drop).map_err(Into::into));
    change_user()?;
    privilege::give_up_all()?;
    // While there is one thread, and before the filter refuses to open the files that it takes.
    let root = Path::new("/");
    logged("the profile kfd-trace-confined of AppArmor", domain::stack_profile(root));
    logged("the type kfd_trace_confined_t of SELinux", domain::change_type(root));
    if let Err(error) = scope::scope() {
        ::log::debug!("no Landlock: {error}");
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // A process that reads sees the tracer's end; this is for one that does not. A change of the user forgets it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let started = start()?;
    let open =
        descriptors_open()?.into_iter().max().map_or(0, |highest| u64::try_from(highest + 1).unwrap_or(0));
    for (resource, most) in [
        (Resource::Nofile, open + descriptors),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        // The limit counts all threads of the user: none can be added to those that exist.
        (Resource::Nproc, 0),
    ] {
        logged("a limit of its resources", limit(resource, most));
    }
    let left = getrlimit(Resource::Nofile).current.map_or(descriptors, |most| most.saturating_sub(open));
    let filter = filter::filter().map_err(io::Error::other)?;
    match (seccompiler::apply_filter_all_threads(&filter), seccomp) {
        (Ok(()), _) => {}
        (Err(error), Seccomp::Optional) => {
            ::log::warn!("this process has no filter of system calls: {error}");
        }
        (Err(error), Seccomp::Required) => {
            return Err(io::Error::other(format!(
                "no filter of system calls can be installed, so that whoever takes over this process is not confined: {error}; allow \
                 seccomp(2) here, or accept that with --without-seccomp"
            )));
        }
    }
    Ok((started, left))
}

fn logged(what: &str, done: io::Result<()>) {
    if let Err(error) = done {
        ::log::warn!("{what} cannot be set: {error}");
    }
}

/// Never more than what there was.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(resource);
    let most = [current, maximum].into_iter().flatten().fold(most, u64::min);
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Changes from root to a user that nothing else has. Its saved user stays root: so the tracer, which has no `CAP_KILL`, can
/// end it (kernel/signal.c, kill_ok_by_cred), while it can signal none of root's processes. To become root again takes a
/// call that the filter refuses.
fn change_user() -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let id = match unused_user(Path::new("/")) {
        Ok(id) => id,
        Err(error) => {
            ::log::warn!("this process keeps the user root: {error}");
            return Ok(());
        }
    };
    let needed = CapabilitySet::SETGID | CapabilitySet::SETUID;
    if !capabilities(None)?.effective.contains(needed) {
        ::log::info!("this process keeps the user root: CAP_SETGID or CAP_SETUID is missing");
        return Ok(());
    }
    match set_thread_groups(&[]) {
        // A user namespace may forbid it, and keeps the groups that it has.
        Err(rustix::io::Errno::PERM) => {}
        done => done?,
    }
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_res_gid(group, group, group)?;
    Ok(set_thread_res_uid(user, user, Uid::ROOT)?)
}

/// Starts all threads of the runtime's pool for what may block, which has `count` and never ends one
/// ([`KEEP_ALIVE`]): none can be started once the process is confined.
///
/// # Errors
/// If one does not start.
pub(crate) fn start_pool(count: usize) -> io::Result<()> {
    let (starts, started) = mpsc::channel();
    let (held, releases): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel::<()>()).unzip();
    for release in releases {
        let starts = starts.clone();
        drop(spawn_blocking(move || {
            // Each waits for the last one, so that none takes another one's place.
            let _ = starts.send(());
            let _ = release.recv();
        }));
    }
    for _ in 0..count {
        started.recv_timeout(START).map_err(|_| io::Error::other("its threads do not start"))?;
    }
    drop(held);
    Ok(())
}

/// Longer than any process runs.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn descriptors_open() -> io::Result<Vec<RawFd>> {
    let open = fs::read_dir("/proc/self/fd")?;
    Ok(open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Closes what the daemon's parent left open in it: all but the standard streams. Must be called before this
/// process has opened anything.
///
/// # Errors
/// If /proc does not show what is open.
pub(crate) fn close_inherited() -> io::Result<()> {
    for descriptor in descriptors_open()?.into_iter().filter(|descriptor| *descriptor > 2) {
        // That of the folder above is closed already: a debug build of rustix's close panics there.
        // SAFETY: nothing in this process owns a descriptor yet.
        unsafe { libc::close(descriptor) };
    }
    Ok(())
}

#[cfg(test)]
mod tests;
