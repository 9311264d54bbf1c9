//! Conclusions from a preflight: one line per limit on what can be seen. Pure.

use super::preflight::{Capability, DriverForm, INITIAL_PID_NAMESPACE, Lockdown, Preflight};
use super::types::TypesSource;
use std::fmt;

/// Worst first, so that a sorted list starts with what matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingSeverity {
    /// No driver to trace: exit code 3, or the daemon waits.
    NothingToTrace,
    /// There is a driver, but no probe can be attached: exit code 1. sysfs still shows processes and queues.
    Blocks,
    /// Tracing works, but something cannot be seen.
    Limits,
    /// For information.
    Note,
}

/// One finding; displayed as one line: `what: consequence; remedy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: FindingSeverity,
    pub what: String,
    pub consequence: &'static str,
    pub remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.consequence, self.remedy)
    }
}

/// Missing capabilities with which probes can still be attached: nothing else reports them while tracing.
#[must_use]
pub fn unprivileged(seen: &Preflight) -> Vec<Finding> {
    let missing = [perf_events(seen), addresses(seen), other_processes(seen)].into_iter().flatten();
    missing.filter(|finding| finding.severity == FindingSeverity::Limits).collect()
}

/// Everything that limits tracing here, worst first. Empty: no limits.
#[must_use]
pub fn findings(seen: &Preflight) -> Vec<Finding> {
    let mut found: Vec<Finding> = [
        driver(seen),
        privilege(seen),
        foreign_pids(seen),
        lockdown(seen),
        kprobes(seen),
        ftrace(seen),
        perf_events(seen),
        addresses(seen),
        memlock(seen),
        other_processes(seen),
        tracefs(seen),
    ]
    .into_iter()
    .flatten()
    .collect();
    found.sort_by_key(|finding| finding.severity);
    found
}

fn finding(
    severity: FindingSeverity,
    what: impl Into<String>,
    consequence: &'static str,
    remedy: &'static str,
) -> Option<Finding> {
    Some(Finding { severity, what: what.into(), consequence, remedy })
}

/// What to do where there is no driver.
const LOAD_OR_WAIT: &str = "load it (modprobe amdgpu), or run `kfd-trace daemon`, which waits for it";

/// The same for the daemon itself.
#[must_use]
pub fn of_who_waits(line: &str) -> String {
    line.replace(LOAD_OR_WAIT, "load it (modprobe amdgpu)")
}

/// The same where no driver would find a GPU.
const NO_GPU: &str = "this machine has no AMD GPU on its PCI bus; a recording of another machine can be read here (replay, top --recording, timeline)";

fn driver(seen: &Preflight) -> Option<Finding> {
    match seen.driver {
        DriverForm::Absent if seen.amd_gpu == Some(false) => finding(
            FindingSeverity::NothingToTrace,
            "the amdgpu driver is not loaded",
            "there is nothing to trace",
            NO_GPU,
        ),
        DriverForm::Absent => finding(
            FindingSeverity::NothingToTrace,
            "the amdgpu driver is not loaded",
            "there is nothing to trace",
            LOAD_OR_WAIT,
        ),
        _ if !seen.kfd => finding(
            FindingSeverity::NothingToTrace,
            "amdgpu is loaded without its compute part (no class/kfd in sysfs)",
            "there is nothing to trace",
            "use a kernel with CONFIG_HSA_AMD",
        ),
        _ => None,
    }
}

fn privilege(seen: &Preflight) -> Option<Finding> {
    let consequence = "no probe can be set; only what sysfs shows can be seen";
    match (seen.capabilities, seen.euid) {
        (Some(capabilities), _) if capabilities.can_trace() => None,
        (Some(capabilities), Some(_)) if capabilities.has(Capability::Bpf) => finding(
            FindingSeverity::Blocks,
            "no CAP_PERFMON",
            consequence,
            "run with CAP_PERFMON beside CAP_BPF",
        ),
        (Some(capabilities), Some(_)) if capabilities.has(Capability::Perfmon) => finding(
            FindingSeverity::Blocks,
            "no CAP_BPF",
            "no program can be loaded; only what sysfs shows can be seen",
            "run with CAP_BPF beside CAP_PERFMON",
        ),
        (Some(_), Some(0)) => finding(
            FindingSeverity::Blocks,
            "root without CAP_BPF and CAP_PERFMON (and without CAP_SYS_ADMIN)",
            consequence,
            "run outside the container, or give the container these capabilities",
        ),
        (Some(_), euid) => finding(
            FindingSeverity::Blocks,
            format!("not root (uid {})", euid.map_or_else(|| "unknown".to_owned(), |uid| uid.to_string())),
            consequence,
            "run with sudo, or with CAP_BPF, CAP_PERFMON and CAP_SYSLOG",
        ),
        (None, _) => finding(
            FindingSeverity::Limits,
            "own capabilities cannot be read (self/status in procfs)",
            "whether probes may be attached is not known before they are tried",
            "mount procfs, or check --path.procfs",
        ),
    }
}

/// A PID from the driver or a probe belongs to a different process in this procfs.
#[must_use]
pub fn foreign_pids(seen: &Preflight) -> Option<Finding> {
    seen.pid_namespace.filter(|number| *number != INITIAL_PID_NAMESPACE)?;
    finding(
        FindingSeverity::Blocks,
        "procfs shows the processes of a PID namespace that is not the host's",
        "the PIDs that the kernel reports would be taken for those of other processes",
        "run in the host's PID namespace (--pid=host of a container), or give the host's procfs with --path.procfs",
    )
}

fn lockdown(seen: &Preflight) -> Option<Finding> {
    if seen.lockdown != Some(Lockdown::Confidentiality) {
        return None;
    }
    finding(
        FindingSeverity::Blocks,
        "kernel lockdown is at confidentiality",
        "the kernel refuses kprobes and reads of its memory, to root too",
        "boot with lockdown=integrity",
    )
}

fn kprobes(seen: &Preflight) -> Option<Finding> {
    if seen.kprobes_enabled != Some(false) {
        return None;
    }
    finding(
        FindingSeverity::Blocks,
        "all kprobes of this machine are switched off",
        "probes can be set and never fire",
        "echo 1 > /sys/kernel/debug/kprobes/enabled",
    )
}

/// On x86-64, kprobes at the start of a function use ftrace (arch/x86/kernel/kprobes/ftrace.c), and ftrace's
/// sysctl disables them silently (kernel/trace/ftrace.c: ftrace_enable_sysctl).
fn ftrace(seen: &Preflight) -> Option<Finding> {
    if seen.ftrace_enabled != Some(0) || !cfg!(target_arch = "x86_64") {
        return None;
    }
    finding(
        FindingSeverity::Blocks,
        "ftrace is switched off (kernel.ftrace_enabled is 0)",
        "probes can be set and never fire",
        "sysctl kernel.ftrace_enabled=1",
    )
}

/// What of the kernel's and the driver's types is missing. `problems`: types that exist and could not be used.
#[must_use]
pub fn types(has_vmlinux: bool, driver: &TypesSource, problems: &[String]) -> Vec<Finding> {
    let unusable = problems.iter().filter_map(|problem| {
        finding(FindingSeverity::Limits, problem.clone(), "it is left out", "see docs/driver-types.md")
    });
    let missing = match (has_vmlinux, driver) {
        (_, TypesSource::None) => finding(
            FindingSeverity::Limits,
            "no types of the driver (no BTF of the amdgpu module, and no file for it)",
            "only ioctls are traced: no field of a driver structure can be read",
            "run `kfd-trace driver-types` on the host where the driver was built, once per driver version and kernel",
        ),
        (false, _) => finding(
            FindingSeverity::Limits,
            "no types of the kernel (no kernel/btf/vmlinux in sysfs, and none in the driver's file)",
            "only ioctls are traced: no field of a kernel structure can be read",
            "run `kfd-trace driver-types`, or use a kernel with CONFIG_DEBUG_INFO_BTF",
        ),
        (true, _) => None,
    };
    missing.into_iter().chain(unusable).collect()
}

/// From whom the kernel hides addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    FromAll,
    WithoutSyslog,
}

/// Why this process may not see addresses of the kernel (kernel/ksyms_common.c:kallsyms_show_value).
pub(super) fn hidden_addresses(seen: &Preflight) -> Option<Hidden> {
    let syslog = seen.capabilities.is_none_or(|capabilities| capabilities.has(Capability::Syslog));
    // Where perf_event_open is unrestricted, so are addresses.
    let free = seen.kptr_restrict == Some(0) && seen.perf_event_paranoid.is_some_and(|level| level <= 1);
    match seen.kptr_restrict {
        Some(2..) => Some(Hidden::FromAll),
        _ if !syslog && !free => Some(Hidden::WithoutSyslog),
        _ => None,
    }
}

fn addresses(seen: &Preflight) -> Option<Finding> {
    let consequence = "functions whose name occurs more than once (update_mqd) cannot be probed";
    match hidden_addresses(seen)? {
        Hidden::FromAll => finding(
            FindingSeverity::Limits,
            "the kernel hides its addresses from all users (kernel.kptr_restrict is 2)",
            consequence,
            "sysctl kernel.kptr_restrict=1",
        ),
        Hidden::WithoutSyslog => finding(
            FindingSeverity::Limits,
            "no CAP_SYSLOG: the kernel hides its addresses from this process",
            consequence,
            "run with CAP_SYSLOG",
        ),
    }
}

/// Levels above 2 are not upstream; Debian's refuse perf_event_open to all but CAP_SYS_ADMIN there.
fn perf_events(seen: &Preflight) -> Option<Finding> {
    let may = seen.capabilities.is_none_or(|capabilities| capabilities.has(Capability::SysAdmin));
    let level = seen.perf_event_paranoid.filter(|level| *level > 2 && !may)?;
    finding(
        FindingSeverity::Limits,
        format!("no CAP_SYS_ADMIN, and kernel.perf_event_paranoid is {level}"),
        "some distributions' kernels (Debian's) let no other process set probes then",
        "sysctl kernel.perf_event_paranoid=2, or run with CAP_SYS_ADMIN",
    )
}

fn memlock(seen: &Preflight) -> Option<Finding> {
    let may = seen.capabilities.is_none_or(|capabilities| capabilities.has(Capability::SysResource));
    if may || seen.memory_limited == Some(false) || seen.release.as_deref().is_some_and(charges_cgroups) {
        return None;
    }
    finding(
        FindingSeverity::Note,
        "no CAP_SYS_RESOURCE: the limit of locked memory cannot be raised",
        "a kernel before 5.11 charges maps to it and may refuse them",
        "raise RLIMIT_MEMLOCK (LimitMEMLOCK=infinity)",
    )
}

/// Whether a kernel of this release charges maps to the memory cgroup in place of RLIMIT_MEMLOCK, as from 5.11 on. False also
/// where the release is not one.
fn charges_cgroups(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 11)
}

fn other_processes(seen: &Preflight) -> Option<Finding> {
    let may = seen.capabilities.is_none_or(|capabilities| capabilities.has(Capability::SysPtrace));
    if may || seen.processes_hidden != Some(true) {
        return None;
    }
    finding(
        FindingSeverity::Limits,
        "no CAP_SYS_PTRACE, and /proc hides other users' processes (mounted with hidepid)",
        "they are shown without command line and cgroup, and whether they are alive is unknown",
        "run with CAP_SYS_PTRACE",
    )
}

fn tracefs(seen: &Preflight) -> Option<Finding> {
    if seen.tracefs_mounted != Some(false) {
        return None;
    }
    finding(
        FindingSeverity::Note,
        "tracefs is not mounted",
        "the driver's tracepoints cannot be used; kprobes do not need it",
        "mount -t tracefs tracefs /sys/kernel/tracing",
    )
}

#[cfg(test)]
mod tests;
