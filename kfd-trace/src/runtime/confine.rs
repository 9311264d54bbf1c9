//! Confines a process that serves any client: no capability, no new file, no new program, no other process.
//!
//! In: a process with one thread, which has open all that it needs. Out: one that the kernel holds to that, whatever
//! code runs in it.

use super::privilege;
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// It is the first to be killed where memory is short: the tracer starts it again, and keeps what it knows.
const OOM_SCORE: &str = "500";

/// Calls on descriptors, memory, time and this process's own threads. None takes a path, a PID or an address.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// A command that starts this program's part `subcommand`, which confines itself: also where the program's file was replaced
/// meanwhile, without the environment, and logging as this process does. The caller adds its streams.
pub(crate) fn process(subcommand: &str) -> Command {
    let more = (log::max_level() as usize).saturating_sub(log::LevelFilter::Warn as usize);
    let mut command = Command::new("/proc/self/exe");
    command.arg0("kfd-trace").args(std::iter::repeat_n("-v", more)).arg(subcommand).env_clear();
    command
}

/// # Errors
/// If a capability stays. What else the kernel refuses is logged: a container may have rules of its own.
pub(crate) fn confine() -> io::Result<()> {
    privilege::give_up_all()?;
    // Before the next line, after which the file is root's.
    if let Err(error) = fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        log::warn!("/proc/self/oom_score_adj cannot be written: {error}");
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // A process that reads sees the tracer's end; this is for one that does not.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for filter in filters().map_err(io::Error::other)? {
        if let Err(error) = seccompiler::apply_filter(&filter) {
            log::warn!("this process has no filter of system calls: {error}");
        }
    }
    Ok(())
}

/// Closes what the daemon's parent left open in it: all but the standard streams. Must be called before this
/// process has opened anything.
///
/// # Errors
/// If /proc does not show what is open.
pub(crate) fn close_inherited() -> io::Result<()> {
    let open: Vec<_> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok())
        .collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // That of the folder above is closed already: a debug build of rustix's close panics there.
        // SAFETY: nothing in this process owns a descriptor yet.
        unsafe { libc::close(descriptor) };
    }
    Ok(())
}

fn filters() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let errno = |errno: i32| SeccompAction::Errno(errno.cast_unsigned());
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, vec![])).collect();
    let when = |argument, op, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?;
        SeccompRule::new(vec![condition])
    };
    let flag = |argument, flag: i32, value: i32| {
        let flag = u64::from(flag.cast_unsigned());
        when(argument, SeccompCmpOp::MaskedEq(flag), u64::from(value.cast_unsigned()))
    };
    // Threads, and no processes.
    allowed.insert(libc::SYS_clone, vec![flag(0, libc::CLONE_THREAD, libc::CLONE_THREAD)?]);
    // The next filter has it.
    allowed.insert(libc::SYS_clone3, vec![]);
    // No new code.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        allowed.insert(call, vec![flag(2, libc::PROT_EXEC, 0)?]);
    }
    // A thread's name.
    let name = u64::from(libc::PR_SET_NAME.cast_unsigned());
    allowed.insert(libc::SYS_prctl, vec![when(0, SeccompCmpOp::Eq, name)?]);
    let listed = SeccompFilter::new(allowed, errno(libc::EPERM), SeccompAction::Allow, arch)?;
    // Its flags are in memory, where no filter sees them: glibc then uses clone.
    let clone3 = [(libc::SYS_clone3, vec![])].into();
    let clone3 = SeccompFilter::new(clone3, SeccompAction::Allow, errno(libc::ENOSYS), arch)?;
    Ok([clone3.try_into()?, listed.try_into()?])
}

#[cfg(test)]
mod tests;
