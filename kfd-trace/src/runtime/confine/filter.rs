//! The system calls of a confined process.
//!
//! In: nothing but the architecture. Out: one filter, by call and by argument. A call is listed because the web server or
//! the sender makes it after the start; its arguments are restricted to what they pass, since a call that is harmless by
//! name may not be so with another command, another flag, or on a descriptor that the tracer holds, too.

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;

/// Calls that act on this process alone, whatever their arguments: on its memory, its time, its signal handlers, its end,
/// and on bytes of descriptors that it has. None takes a path, a PID or an address, or starts a thread.
const ANY_ARGUMENTS: &[libc::c_long] = &[
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
    libc::SYS_futex,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_gettid,
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
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// fcntl's commands that only read. All others act on a file that the tracer may share, or on a process: F_SETOWN with
/// F_SETSIG and O_ASYNC has the kernel send any signal to it (fs/fcntl.c, send_sigio).
const FCNTL: [libc::c_int; 2] = [libc::F_GETFD, libc::F_GETFL];

/// A socket option that is read: whether a connection has failed.
const GETSOCKOPT: (libc::c_int, libc::c_int) = (libc::SOL_SOCKET, libc::SO_ERROR);

/// Advice that allocators give about memory that they do not need.
const MADVISE: [libc::c_int; 2] = [libc::MADV_DONTNEED, libc::MADV_FREE];

/// One condition on an argument, by its position.
struct Argument(u8);

impl Argument {
    fn is(&self, value: libc::c_int) -> Result<SeccompCondition, BackendError> {
        self.compare(SeccompCmpOp::Eq, value)
    }

    /// The bits of `mask` have this value.
    fn has(&self, mask: libc::c_int, value: libc::c_int) -> Result<SeccompCondition, BackendError> {
        self.compare(SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned())), value)
    }

    fn compare(&self, op: SeccompCmpOp, value: libc::c_int) -> Result<SeccompCondition, BackendError> {
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(self.0, SeccompCmpArgLen::Dword, op, value)
    }

    /// All 64 bits: of an address, the lower half can be zero alone.
    fn is_null(&self) -> Result<SeccompCondition, BackendError> {
        SeccompCondition::new(self.0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)
    }
}

/// Calls that are allowed where one of their rules holds.
fn by_argument() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let rule = SeccompRule::new;
    let each = |argument: u8, values: &[libc::c_int]| -> Result<Vec<SeccompRule>, BackendError> {
        values.iter().map(|value| rule(vec![Argument(argument).is(*value)?])).collect()
    };
    let (level, name) = GETSOCKOPT;
    // No new code, no file, and none of the machine's huge pages.
    let never = libc::MAP_HUGETLB | libc::MAP_ANONYMOUS;
    let memory = vec![Argument(2).has(libc::PROT_EXEC, 0)?, Argument(3).has(never, libc::MAP_ANONYMOUS)?];
    // Without an address, so that a listening socket cannot connect by MSG_FASTOPEN, and with no other flag than the one
    // that the standard library sets.
    let sent = vec![Argument(3).has(!libc::MSG_NOSIGNAL, 0)?, Argument(4).is_null()?];
    Ok([
        (libc::SYS_fcntl, each(1, &FCNTL)?),
        (libc::SYS_getsockopt, vec![rule(vec![Argument(1).is(level)?, Argument(2).is(name)?])?]),
        (libc::SYS_madvise, each(2, &MADVISE)?),
        (libc::SYS_mmap, vec![rule(memory)?]),
        (libc::SYS_mprotect, vec![rule(vec![Argument(2).has(libc::PROT_EXEC, 0)?])?]),
        (libc::SYS_sendto, vec![rule(sent)?]),
    ]
    .into())
}

/// All other calls fail with EPERM.
pub(super) fn filter() -> Result<BpfProgram, BackendError> {
    let mut allowed = by_argument()?;
    allowed.extend(ANY_ARGUMENTS.iter().map(|call| (*call, vec![])));
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(allowed, refused, SeccompAction::Allow, arch)?.try_into()
}
