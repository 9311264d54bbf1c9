//! Least privilege: of the capabilities that this process was started with, keeps those that are still
//! needed.
//!
//! In: what procfs reports about this process, and what is requested. Out: a process that can attach its
//! probes again when the driver is loaded again, and nothing else. docs/privileges.md describes what each
//! capability is for.

use super::exit::Stop;
use super::stderr::say;
use crate::kernel::findings::{foreign_pids, unprivileged};
use crate::kernel::{Capabilities, Capability, Preflight, Roots, tracefs_folders};
use crate::probes::load;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::io::ErrorKind;
use std::path::Path;

/// Needed by every tracer: to load programs, to attach probes, to find functions and tables by their
/// addresses.
const ALWAYS: [Capability; 3] = [Capability::Bpf, Capability::Perfmon, Capability::Syslog];

/// What requires further capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Needs {
    /// Tracepoints and return probes, whose numbers are below tracefs, which only root may read.
    tracefs: bool,
    /// Processes that procfs hides.
    hidden_processes: bool,
    /// The memory of other users' processes, or what they have open and mapped.
    others: bool,
    /// A command of another user, to which SIGTERM is passed on.
    signals: bool,
    /// kernel.perf_event_paranoid is above 2: then Debian's kernels refuse perf_event_open to all but
    /// CAP_SYS_ADMIN.
    strict_perf: bool,
}

/// What their absence means, and what to do.
const NO_MEMORY: &str = "no CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: the memory of other users' processes cannot be read, so that what \
                         their queues do is not measured; run with both, or trace with --sample.interval=0";

/// /proc/PID/mem of any user's process (proc_mem_open, and the mode of the file).
fn may_read_memory(held: Option<Capabilities>) -> bool {
    let both = [Capability::SysPtrace, Capability::DacReadSearch];
    held.is_none_or(|held| both.iter().all(|one| held.has(*one)))
}

/// The capabilities of `held` that are kept. Pure.
fn kept(held: Capabilities, needs: Needs) -> Capabilities {
    let mut wanted = Vec::from(ALWAYS);
    if needs.tracefs || needs.others {
        wanted.push(Capability::DacReadSearch);
    }
    if needs.hidden_processes || needs.others {
        wanted.push(Capability::SysPtrace);
    }
    if needs.signals {
        wanted.push(Capability::Kill);
    }
    if needs.strict_perf || !(held.has(Capability::Bpf) && held.has(Capability::Perfmon)) {
        // A container runtime that knows no other capabilities, or a kernel before 5.8, which has no others.
        wanted.push(Capability::SysAdmin);
    }
    let wanted = wanted.into_iter().fold(0, |all, capability| all | 1 << capability as u8);
    Capabilities(held.0 & wanted)
}

/// What a command reads in addition to what all commands read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Tracepoints' numbers.
    pub tracefs: bool,
    /// Ids of return probes that the service manager has defined in tracefs: files of root.
    pub return_events: bool,
    /// The driver's dumps, in a folder that only root may read.
    pub debugfs: bool,
    /// The memory of other users' processes: /proc/PID/mem makes ptrace's check (proc_mem_open), and only its
    /// owner may read it.
    pub memory: bool,
    /// What other users' processes have open and mapped (fs/proc/base.c, proc_pid_get_link makes ptrace's
    /// check).
    pub descriptors: bool,
    /// Nothing: it starts processes that change their user, where it runs as root.
    pub changes_user: bool,
    /// Nothing is read: a command that runs as another user gets signals.
    pub signals: bool,
}

/// What cannot be determined is assumed. Pure.
fn needs(reads: Reads, seen: &Preflight, is_root: bool) -> Needs {
    Needs {
        tracefs: reads.tracefs || reads.debugfs || (reads.return_events && !is_root),
        hidden_processes: seen.processes_hidden.unwrap_or(true),
        others: reads.memory || reads.descriptors,
        signals: reads.signals,
        strict_perf: seen.perf_event_paranoid.is_none_or(|level| level > 2),
    }
}

/// Gives up for good what this process no longer needs, and reports what is missing. Must be called before
/// there is a second thread: each has its own capabilities. Locked memory is made unlimited before, which
/// takes one that is given up.
///
/// # Errors
/// If the kernel refuses: the process would continue with more than it should have. If procfs is not the
/// host's.
pub fn give_up(roots: &Roots, reads: Reads) -> Result<(), Stop> {
    let Reads { tracefs, memory, changes_user, .. } = reads;
    load::allow_locked_memory();
    let seen = Preflight::read(roots);
    // Without CAP_SYS_PTRACE, PID 1's namespace can no longer be determined.
    if let Some(finding) = foreign_pids(&seen) {
        return Err(Stop::failed(finding));
    }
    let needs = needs(reads, &seen, geteuid().is_root());
    let passed = if changes_user && geteuid().is_root() { CHANGES_USER } else { Capabilities(0) };
    reduce(needs, passed)
        .map_err(|error| Stop::failed(format!("capabilities cannot be given up: {error}")))?;
    let traces = seen.capabilities.is_some_and(Capabilities::can_trace);
    for finding in unprivileged(&seen).iter().filter(|_| traces) {
        say(format_args!("{finding}"));
    }
    if traces && memory && !may_read_memory(seen.capabilities) {
        say(format_args!("{NO_MEMORY}"));
    }
    if traces && tracefs && is_closed(&tracefs_folders(&roots.sysfs)[0]) {
        say(format_args!(
            "no CAP_DAC_READ_SEARCH: tracefs cannot be read, so that tracepoints are not counted; run with it"
        ));
    }
    if traces && tracefs && !has_tracefs(&roots.sysfs) {
        say(format_args!(
            "tracefs is not mounted, so that tracepoints are not counted; mount -t tracefs tracefs /sys/kernel/tracing"
        ));
    }
    Ok(())
}

/// Where a tracepoint's number is looked up. What exists and may not be read is reported by its own line.
fn has_tracefs(sysfs: &Path) -> bool {
    tracefs_folders(sysfs).iter().any(|place| is_closed(place) || place.join("events").exists())
}

/// It exists and may not be read.
fn is_closed(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// `CAP_SETGID` and `CAP_SETUID` (linux/capability.h). A process of root passes them on to the processes that it starts,
/// which change their user and give them up; in its own effective set they are not.
const CHANGES_USER: Capabilities = Capabilities(1 << 6 | 1 << 7);

/// Gives up all capabilities for good. Must be called before there is a second thread.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn give_up_all() -> Result<(), Errno> {
    keep(|_| Capabilities(0), Capabilities(0))
}

fn reduce(needs: Needs, passed: Capabilities) -> Result<(), Errno> {
    keep(|held| kept(held, needs), passed)
}

/// `passed`: those that children of root get, as far as they are held.
fn keep(of: impl FnOnce(Capabilities) -> Capabilities, passed: Capabilities) -> Result<(), Errno> {
    let held = capabilities(None)?;
    let passed = held.permitted & CapabilitySet::from_bits_retain(passed.0);
    // First, since an inheritable one must be in the bounding set (security/commoncap.c, cap_capset).
    set_capabilities(None, CapabilitySets { inheritable: passed, ..held })?;
    for bit in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            Ok(()) => {}
            // Beyond the last one that this kernel knows; or not permitted, as for any user but root.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error),
        }
    }
    clear_ambient_capability_set()?;
    let kept = CapabilitySet::from_bits_retain(of(Capabilities(held.permitted.bits())).0);
    let sets = CapabilitySets { effective: kept, permitted: kept | passed, inheritable: passed };
    set_capabilities(None, sets)?;
    set_no_new_privs(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Capabilities = Capabilities(0x1ff_ffff_ffff);

    fn of(names: &[Capability]) -> Capabilities {
        Capabilities(names.iter().fold(0, |all, name| all | 1 << *name as u8))
    }

    fn plain() -> Needs {
        Needs { tracefs: false, hidden_processes: false, others: false, signals: false, strict_perf: false }
    }

    #[test]
    fn root_keeps_three() {
        assert_eq!(kept(ALL, plain()), of(&ALWAYS));
        assert_eq!(kept(ALL, plain()).0, 0xc4_0000_0000, "as /proc/PID/status shows it");
    }

    #[test]
    fn others_are_kept_where_there_is_a_need() {
        let tracefs = kept(ALL, Needs { tracefs: true, ..plain() });
        assert_eq!(tracefs.0 & !of(&ALWAYS).0, of(&[Capability::DacReadSearch]).0);
        let hidden = kept(ALL, Needs { hidden_processes: true, ..plain() });
        assert_eq!(hidden.0 & !of(&ALWAYS).0, of(&[Capability::SysPtrace]).0);
        let others = kept(ALL, Needs { others: true, ..plain() });
        let both = of(&[Capability::DacReadSearch, Capability::SysPtrace]);
        assert_eq!(others.0 & !of(&ALWAYS).0, both.0);
        let signals = kept(ALL, Needs { signals: true, ..plain() });
        assert_eq!(signals.0 & !of(&ALWAYS).0, of(&[Capability::Kill]).0);
        let strict = kept(ALL, Needs { strict_perf: true, ..plain() });
        assert_eq!(strict.0 & !of(&ALWAYS).0, of(&[Capability::SysAdmin]).0);
    }

    #[test]
    fn ids_of_return_probes_take_one_of_a_daemon_that_is_not_root() {
        let root = tempfile::tempdir().unwrap();
        let seen = Preflight::read(&Roots::under(root.path()));
        let tracefs = |return_events, is_root| {
            needs(Reads { return_events, ..Reads::default() }, &seen, is_root).tracefs
        };
        assert!(tracefs(true, false));
        assert!(!tracefs(true, true), "the files are root's");
        assert!(!tracefs(false, false));
    }

    #[test]
    fn memory_takes_both() {
        use Capability::{DacReadSearch, SysPtrace};
        assert!(may_read_memory(Some(ALL)) && may_read_memory(Some(of(&[DacReadSearch, SysPtrace]))));
        assert!(may_read_memory(None), "it may be so");
        for lacking in [of(&[DacReadSearch]), of(&[SysPtrace]), of(&[Capability::SysAdmin])] {
            assert!(!may_read_memory(Some(lacking)));
        }
    }

    #[test]
    fn sys_admin_replaces_missing_capabilities() {
        use Capability::{Bpf, Perfmon, SysAdmin};
        assert_eq!(kept(of(&[SysAdmin]), plain()), of(&[SysAdmin]));
        assert_eq!(kept(of(&[SysAdmin, Bpf]), plain()), of(&[SysAdmin, Bpf]));
        assert_eq!(kept(of(&[SysAdmin, Bpf, Perfmon]), plain()), of(&[Bpf, Perfmon]));
    }

    #[test]
    fn nothing_is_kept_that_is_not_held() {
        let all =
            Needs { tracefs: true, hidden_processes: true, others: true, signals: true, strict_perf: true };
        assert_eq!(kept(Capabilities(0), all), Capabilities(0));
    }
}
