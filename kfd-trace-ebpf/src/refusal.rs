//! Which calls `kfd_ioctl` refuses before any handler (kfd_chardev.c). In: a command, its caller. Out: the errno.
//! The only owner of `NO_COMMAND`.

use crate::kernel::{self, read};
use crate::losses;
use aya_ebpf::Global;
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::process::Entry;
use kfd_trace_common::rules;

/// One past the last command of this kernel's driver.
#[unsafe(no_mangle)]
static IOCTL_END: Global<u32> = Global::new(0);

/// The same for the range that only ROCm's driver has; 0 when it has none.
#[unsafe(no_mangle)]
static IOCTL_ROCM_END: Global<u32> = Global::new(0);

/// The errno of a number that the driver has no command of; 0 while unknown. The daemon reads it from the code
/// of `kfd_ioctl` with a program of this object, so it cannot be a read-only global.
#[map]
static NO_COMMAND: Array<u32> = Array::with_max_entries(1, 0);

/// Not an errno: the call reaches its handler, as far as these rules say.
pub(crate) const NONE: u32 = 0;

/// Not an errno: the call is refused, and it is not known with which.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// The errno of a call that `kfd_ioctl` refuses before any handler, in the order of its checks. `own`: a
/// thread of the process calls.
#[inline(always)]
pub(crate) fn of(own: bool, nr: u32, file: u64) -> u32 {
    if rules::unknown(nr, IOCTL_END.load(), IOCTL_ROCM_END.load()) {
        return no_such_command();
    }
    if nr == rules::CRIU {
        return criu(own, file);
    }
    if own { NONE } else { rules::EBADF }
}

#[inline(always)]
fn no_such_command() -> u32 {
    match NO_COMMAND.get(0) {
        Some(errno) if *errno != 0 => *errno,
        _ => UNKNOWN,
    }
}

#[inline(always)]
fn criu(own: bool, file: u64) -> u32 {
    // SAFETY: no arguments.
    let current = unsafe { bpf_get_current_task() };
    if !own && !is_tracer(file, current) {
        return rules::EBADF;
    }
    if may_criu(current) { NONE } else { rules::EACCES }
}

/// `process->lead_thread == current->group_leader`. Without the driver's BTF the leader is not known: the
/// call is treated as admitted, and ends as "no return seen" if it was not.
#[inline(always)]
pub(crate) fn is_owner(entry: &Entry, current: u64) -> bool {
    match read::<u64>(current, &kernel::TASK_GROUP_LEADER) {
        Some(leader) if entry.leader != 0 => leader == entry.leader,
        _ => true,
    }
}

/// `ptrace_parent(process->lead_thread) == current`
#[inline(always)]
fn is_tracer(file: u64, current: u64) -> bool {
    let process = read::<u64>(file, &kernel::FILE_PRIVATE_DATA).unwrap_or(0);
    let leader = read::<u64>(process, &kernel::KFD_PROCESS_LEAD_THREAD).unwrap_or(0);
    let traced = read::<u32>(leader, &kernel::TASK_PTRACE).unwrap_or(0) != 0;
    traced && read::<u64>(leader, &kernel::TASK_PARENT) == Some(current)
}

/// `capable(CAP_CHECKPOINT_RESTORE) || capable(CAP_SYS_ADMIN)`: both check the initial user namespace.
#[inline(always)]
fn may_criu(current: u64) -> bool {
    let may = || {
        let cred: u64 = read(current, &kernel::TASK_CRED)?;
        let caps: u64 = read(cred, &kernel::CRED_CAP_EFFECTIVE)?;
        let level: u32 = read(read::<u64>(cred, &kernel::CRED_USER_NS)?, &kernel::USER_NS_LEVEL)?;
        Some(level == 0 && caps & rules::CRIU_CAPS != 0)
    };
    // Unreadable: the call is treated as admitted, and ends as "no return seen" if it was not.
    may().unwrap_or_else(|| {
        losses::trouble(ProbeId::Ioctl, Trouble::CredUnreadable);
        true
    })
}
