//! What this process may do and what this kernel offers, read from procfs and sysfs. findings.rs draws the
//! conclusions.

use super::{Roots, loading};
use procfs::process::Status;
use procfs::{FromBufRead as _, MountEntry};
use std::fmt;
use std::fs;
use std::path::Path;

/// Bits of CapEff, include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    DacReadSearch = 2,
    Kill = 5,
    SysPtrace = 19,
    SysAdmin = 21,
    SysResource = 24,
    Syslog = 34,
    Perfmon = 38,
    Bpf = 39,
}

/// The effective capabilities of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        self.0 >> capability as u8 & 1 == 1
    }

    /// May load tracing programs and attach them to kprobes: kernel/bpf/syscall.c (bpf_capable,
    /// perfmon_capable) and perf_kprobe_event_init.
    #[must_use]
    pub fn can_trace(self) -> bool {
        self.has(Capability::SysAdmin) || (self.has(Capability::Bpf) && self.has(Capability::Perfmon))
    }
}

/// Form of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverForm {
    /// Not loaded (and not built in).
    Absent,
    /// Built into the kernel image: its types are in vmlinux's BTF.
    BuiltIn,
    /// A module; `version` only if it declares one (DKMS does, the kernel's own does not).
    Module { version: Option<String>, srcversion: Option<String> },
}

impl DriverForm {
    /// Reads it from sysfs. Only a module has a state, a source version, or notes of its own; built-in code has at most its
    /// parameters there.
    #[must_use]
    pub fn read(sysfs: &Path) -> Self {
        let folder = sysfs.join("module/amdgpu");
        let of_modules = ["initstate", "srcversion", "notes"];
        if !folder.exists() {
            DriverForm::Absent
        } else if of_modules.iter().any(|name| folder.join(name).exists()) {
            DriverForm::Module {
                version: text(&folder.join("version")),
                srcversion: text(&folder.join("srcversion")),
            }
        } else {
            DriverForm::BuiltIn
        }
    }
}

impl fmt::Display for DriverForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverForm::Absent => f.write_str("not loaded"),
            DriverForm::BuiltIn => f.write_str("built into the kernel"),
            DriverForm::Module { version, srcversion } => {
                f.write_str("module")?;
                if let Some(version) = version {
                    write!(f, " {version}")?;
                }
                srcversion.as_ref().map_or(Ok(()), |srcversion| write!(f, " (srcversion {srcversion})"))
            }
        }
    }
}

/// security/lockdown/lockdown.c. What tracing needs is refused at `Confidentiality` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    None,
    Integrity,
    Confidentiality,
}

impl fmt::Display for Lockdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lockdown::None => "none",
            Lockdown::Integrity => "integrity",
            Lockdown::Confidentiality => "confidentiality",
        })
    }
}

/// None in a field means that it could not be read, not that it is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preflight {
    pub release: Option<String>,
    pub euid: Option<u32>,
    pub capabilities: Option<Capabilities>,
    /// Number of the PID namespace whose processes procfs shows.
    pub pid_namespace: Option<u64>,
    /// Also None on a kernel that has no lockdown; read from securityfs.
    pub lockdown: Option<Lockdown>,
    /// 2 hides kernel addresses even from root.
    pub kptr_restrict: Option<i64>,
    pub perf_event_paranoid: Option<i64>,
    /// 0: no function is traced on this machine.
    pub ftrace_enabled: Option<i64>,
    pub unprivileged_bpf_disabled: Option<i64>,
    /// An AMD GPU is on the PCI bus, with a driver or without one.
    pub amd_gpu: Option<bool>,
    pub tracefs_mounted: Option<bool>,
    pub debugfs_mounted: Option<bool>,
    /// procfs hides other users' processes (its option hidepid, Documentation/filesystems/proc.rst).
    pub processes_hidden: Option<bool>,
    /// Locked memory is limited (RLIMIT_MEMLOCK).
    pub memory_limited: Option<bool>,
    /// False: all kprobes of the machine were disabled. Known only with debugfs and root.
    pub kprobes_enabled: Option<bool>,
    pub vmlinux_btf: bool,
    pub amdgpu_btf: bool,
    pub driver: DriverForm,
    /// /sys/class/kfd exists: the driver has its compute part.
    pub kfd: bool,
    pub possible_cpus: Option<usize>,
    /// One past the highest possible CPU number.
    pub cpu_ids: Option<u32>,
}

impl Preflight {
    #[must_use]
    pub fn read(roots: &Roots) -> Preflight {
        let Roots { procfs, sysfs, .. } = roots;
        let sysctl = |name: &str| number(&procfs.join("sys/kernel").join(name));
        let status = read_status(&procfs.join("self/status"));
        let mounts = fs::read(procfs.join("self/mounts")).ok();
        let mounts = mounts.and_then(|text| Vec::<MountEntry>::from_buf_read(text.as_slice()).ok());
        let mounted = |kind| Some(mounts.as_ref()?.iter().any(|mount| mount.fs_vfstype == kind));
        let possible = text(&sysfs.join("devices/system/cpu/possible"));
        Preflight {
            release: text(&procfs.join("sys/kernel/osrelease")),
            euid: status.as_ref().map(|status| status.euid),
            capabilities: status.as_ref().map(|status| Capabilities(status.capeff)),
            pid_namespace: pid_namespace(procfs, status.as_ref()),
            lockdown: text(&sysfs.join("kernel/security/lockdown")).and_then(|text| parse_lockdown(&text)),
            kptr_restrict: sysctl("kptr_restrict"),
            perf_event_paranoid: sysctl("perf_event_paranoid"),
            ftrace_enabled: sysctl("ftrace_enabled"),
            unprivileged_bpf_disabled: sysctl("unprivileged_bpf_disabled"),
            amd_gpu: loading::amd_gpu(sysfs),
            tracefs_mounted: mounted("tracefs"),
            debugfs_mounted: mounted("debugfs"),
            processes_hidden: mounts.as_ref().map(|mounts| mounts.iter().any(hides)),
            memory_limited: text(&procfs.join("self/limits")).and_then(|text| limits_memory(&text)),
            kprobes_enabled: number(&sysfs.join("kernel/debug/kprobes/enabled")).map(|on| on != 0),
            vmlinux_btf: sysfs.join("kernel/btf/vmlinux").exists(),
            amdgpu_btf: sysfs.join("kernel/btf/amdgpu").exists(),
            driver: DriverForm::read(sysfs),
            kfd: sysfs.join("class/kfd").exists(),
            possible_cpus: possible.as_deref().and_then(count_cpus),
            cpu_ids: possible.as_deref().and_then(cpu_ids),
        }
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<i64> {
    text(path)?.parse().ok()
}

fn hides(mount: &MountEntry) -> bool {
    let hidepid = mount.fs_mntops.get("hidepid").and_then(Option::as_deref);
    mount.fs_vfstype == "proc" && hidepid.is_some_and(|value| !["0", "off"].contains(&value))
}

/// `Max locked memory         65536                65536                bytes`: the soft limit.
fn limits_memory(limits: &str) -> Option<bool> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    Some(line.split_whitespace().next()? != "unlimited")
}

/// The process name need not be UTF-8; it is not used here.
fn read_status(path: &Path) -> Option<Status> {
    let text = fs::read(path).ok()?;
    Status::from_buf_read(String::from_utf8_lossy(&text).as_bytes()).ok()
}

/// Number of the initial PID namespace, in which the driver and BPF report PIDs: include/uapi/linux/nsfs.h,
/// PID_NS_INIT_INO (PROC_PID_INIT_INO of include/linux/proc_ns.h before that).
pub const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;

/// A procfs shows the PID namespace of its PID 1. If that process may not be inspected, procfs shows our own
/// namespace if we have one PID there: in the procfs of an enclosing namespace we have two or more.
fn pid_namespace(procfs: &Path, own: Option<&Status>) -> Option<u64> {
    let of = |process: &str| {
        let link = fs::read_link(procfs.join(process).join("ns/pid")).ok()?;
        link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
    };
    let shows_ours = || own.and_then(|own| own.nspid.as_ref()).is_some_and(|pids| pids.len() == 1);
    of("1").or_else(|| if shows_ours() { of("self") } else { None })
}

/// `none [integrity] confidentiality`
fn parse_lockdown(text: &str) -> Option<Lockdown> {
    let (_, rest) = text.split_once('[')?;
    match rest.split_once(']')?.0 {
        "none" => Some(Lockdown::None),
        "integrity" => Some(Lockdown::Integrity),
        "confidentiality" => Some(Lockdown::Confidentiality),
        _ => None,
    }
}

/// `0-3,8-11`
fn count_cpus(text: &str) -> Option<usize> {
    text.split(',').try_fold(0, |sum: usize, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// One past the last number; the list is ascending.
fn cpu_ids(text: &str) -> Option<u32> {
    let last = text.rsplit([',', '-']).next()?;
    last.parse::<u32>().ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn an_empty_root_gives_no_facts() {
        let root = tempfile::tempdir().unwrap();
        let seen = Preflight::read(&Roots::under(root.path()));
        assert_eq!((seen.euid, seen.capabilities, seen.tracefs_mounted), (None, None, None));
        assert_eq!((seen.driver, seen.kfd, seen.vmlinux_btf), (DriverForm::Absent, false, false));
    }

    #[test]
    fn a_server_is_read() {
        let root = tempfile::tempdir().unwrap();
        let own = fs::read("/proc/self/status").unwrap();
        let own = String::from_utf8(own).unwrap();
        let status: String = own
            .lines()
            .map(|line| match line.split(':').next() {
                Some("CapEff") => "CapEff:\t000000c400000000\n".to_owned(),
                Some("Uid") => "Uid:\t1000\t1001\t1000\t1000\n".to_owned(),
                _ => format!("{line}\n"),
            })
            .collect();
        put(root.path(), "proc/self/status", &status);
        let mounts =
            "tracefs /sys/kernel/tracing tracefs rw,nosuid 0 0\nproc /proc proc rw,hidepid=invisible 0 0\n";
        put(root.path(), "proc/self/mounts", mounts);
        let limits =
            "Limit   Soft Limit   Hard Limit   Units\nMax locked memory   65536   unlimited   bytes\n";
        put(root.path(), "proc/self/limits", limits);
        put(root.path(), "proc/sys/kernel/osrelease", "6.12.0-test\n");
        put(root.path(), "proc/sys/kernel/kptr_restrict", "2\n");
        put(root.path(), "proc/sys/kernel/perf_event_paranoid", "-1\n");
        put(root.path(), "proc/sys/kernel/ftrace_enabled", "1\n");
        put(root.path(), "sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        put(root.path(), "sys/kernel/debug/kprobes/enabled", "1\n");
        put(root.path(), "sys/kernel/btf/vmlinux", "");
        put(root.path(), "sys/module/amdgpu/initstate", "live\n");
        put(root.path(), "sys/module/amdgpu/srcversion", "0123456789ABCDEF\n");
        put(root.path(), "sys/class/kfd/kfd/topology/generation_id", "1\n");
        put(root.path(), "sys/devices/system/cpu/possible", "0-3,8,10-11\n");
        let seen = Preflight::read(&Roots::under(root.path()));
        let capabilities = seen.capabilities.unwrap();
        assert!(capabilities.can_trace() && capabilities.has(Capability::Syslog));
        assert!(!capabilities.has(Capability::SysAdmin));
        let srcversion = Some("0123456789ABCDEF".to_owned());
        let expected = Preflight {
            release: Some("6.12.0-test".to_owned()),
            euid: Some(1001),
            capabilities: Some(Capabilities(0xc4_0000_0000)),
            pid_namespace: None,
            lockdown: Some(Lockdown::Integrity),
            kptr_restrict: Some(2),
            perf_event_paranoid: Some(-1),
            ftrace_enabled: Some(1),
            unprivileged_bpf_disabled: None,
            amd_gpu: None,
            tracefs_mounted: Some(true),
            debugfs_mounted: Some(false),
            processes_hidden: Some(true),
            memory_limited: Some(true),
            kprobes_enabled: Some(true),
            vmlinux_btf: true,
            amdgpu_btf: false,
            driver: DriverForm::Module { version: None, srcversion },
            kfd: true,
            possible_cpus: Some(7),
            cpu_ids: Some(12),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn procfs_shows_the_namespace_of_its_first_process_or_ours_where_we_have_one_pid() {
        let root = tempfile::tempdir().unwrap();
        let link = |process: &str, number: u64| {
            let folder = root.path().join(process).join("ns");
            fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(format!("pid:[{number}]"), folder.join("pid")).unwrap();
        };
        let own = |nspid: &[i32]| {
            let status = fs::read("/proc/self/status").unwrap();
            let mut status = Status::from_buf_read(String::from_utf8_lossy(&status).as_bytes()).unwrap();
            status.nspid = Some(nspid.to_vec());
            status
        };
        let shown = |nspid: &[i32]| pid_namespace(root.path(), Some(&own(nspid)));
        assert_eq!(shown(&[7]), None);
        link("self", 4_026_532_000);
        assert_eq!((shown(&[7]), shown(&[7, 1])), (Some(4_026_532_000), None));
        assert_eq!(pid_namespace(root.path(), None), None);
        link("1", INITIAL_PID_NAMESPACE);
        assert_eq!(shown(&[7]), Some(INITIAL_PID_NAMESPACE));
    }

    #[test]
    fn a_built_in_driver_is_no_module() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "sys/module/amdgpu/parameters/noretry", "-1\n");
        assert_eq!(Preflight::read(&Roots::under(root.path())).driver, DriverForm::BuiltIn);
    }

    #[test]
    fn a_driver_is_named_with_what_it_declares() {
        let module = |version: Option<&str>, srcversion: Option<&str>| {
            let [version, srcversion] = [version, srcversion].map(|text| text.map(str::to_owned));
            DriverForm::Module { version, srcversion }.to_string()
        };
        assert_eq!(module(Some("6.10.5"), Some("AB12")), "module 6.10.5 (srcversion AB12)");
        assert_eq!(module(None, None), "module");
        assert_eq!(DriverForm::Absent.to_string(), "not loaded");
    }

    #[test]
    fn only_a_procfs_that_hides_does() {
        let hidden = |mounts: &str| {
            let root = tempfile::tempdir().unwrap();
            put(root.path(), "proc/self/mounts", mounts);
            Preflight::read(&Roots::under(root.path())).processes_hidden
        };
        for options in ["rw", "rw,hidepid=0", "rw,hidepid=off"] {
            assert_eq!(hidden(&format!("proc /proc proc {options} 0 0\n")), Some(false), "{options}");
        }
        for value in ["1", "2", "4", "noaccess", "invisible", "ptraceable"] {
            assert_eq!(hidden(&format!("proc /proc proc rw,hidepid={value} 0 0\n")), Some(true), "{value}");
        }
        assert_eq!(limits_memory("Max locked memory   unlimited  unlimited bytes"), Some(false));
        assert_eq!(limits_memory("Max processes   1  1 processes"), None);
    }

    #[test]
    fn odd_texts_are_unknown() {
        assert_eq!(parse_lockdown("none integrity"), None);
        assert_eq!(parse_lockdown("[none] integrity confidentiality"), Some(Lockdown::None));
        for text in ["", "3-1", "a", "0-18446744073709551615"] {
            assert_eq!(count_cpus(text), None, "{text}");
        }
        assert_eq!((cpu_ids(""), cpu_ids("0-4294967295"), cpu_ids("0")), (None, None, Some(1)));
    }
}
