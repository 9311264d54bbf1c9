use super::*;
use crate::kernel::preflight::Capabilities;

fn good() -> Preflight {
    Preflight {
        release: Some("6.12.0".to_owned()),
        euid: Some(0),
        capabilities: Some(Capabilities(u64::MAX)),
        pid_namespace: Some(INITIAL_PID_NAMESPACE),
        lockdown: Some(Lockdown::Integrity),
        kptr_restrict: Some(1),
        perf_event_paranoid: Some(2),
        unprivileged_bpf_disabled: Some(2),
        amd_gpu: Some(true),
        tracefs_mounted: Some(true),
        debugfs_mounted: Some(true),
        processes_hidden: Some(false),
        memory_limited: Some(false),
        ftrace_enabled: Some(1),
        kprobes_enabled: Some(true),
        vmlinux_btf: true,
        amdgpu_btf: true,
        driver: DriverForm::Module { version: None, srcversion: None },
        kfd: true,
        possible_cpus: Some(2),
        cpu_ids: Some(2),
    }
}

/// Severity of the only finding, and the start of its text.
fn only(seen: &Preflight) -> (FindingSeverity, String) {
    let found = findings(seen);
    assert_eq!(found.len(), 1, "{found:?}");
    (found[0].severity, found[0].to_string())
}

#[test]
fn a_good_machine_has_none() {
    assert_eq!(findings(&good()), []);
    let unknown = Preflight { kptr_restrict: None, lockdown: None, tracefs_mounted: None, ..good() };
    let unknown = Preflight { pid_namespace: None, ..unknown };
    assert_eq!(findings(&unknown), [], "what is not known is not claimed");
}

#[test]
fn each_lack_has_its_line() {
    let module_less = Preflight { driver: DriverForm::Absent, kfd: false, amdgpu_btf: false, ..good() };
    let (severity, line) = only(&module_less);
    assert_eq!(severity, FindingSeverity::NothingToTrace);
    assert!(line.starts_with("the amdgpu driver is not loaded: there is nothing to trace; load it"));
    assert!(line.contains("kfd-trace daemon") && !of_who_waits(&line).contains("kfd-trace"), "{line}");

    let without_gpu = Preflight { amd_gpu: Some(false), ..module_less.clone() };
    let line = only(&without_gpu).1;
    assert!(line.contains("no AMD GPU") && !line.contains("modprobe"), "{line}");
    let unknown = Preflight { amd_gpu: None, ..module_less };
    assert!(only(&unknown).1.contains("modprobe amdgpu"), "a GPU may be there");

    assert_eq!(only(&Preflight { kfd: false, ..good() }).0, FindingSeverity::NothingToTrace);
    let (severity, line) = only(&Preflight { pid_namespace: Some(4_026_532_000), ..good() });
    assert_eq!(severity, FindingSeverity::Blocks);
    assert!(line.contains("a PID namespace that is not the host's") && line.contains("--path.procfs"));
    assert_eq!(only(&Preflight { kprobes_enabled: Some(false), ..good() }).0, FindingSeverity::Blocks);
    let (severity, line) = only(&Preflight { ftrace_enabled: Some(0), ..good() });
    assert!(
        severity == FindingSeverity::Blocks && line.ends_with("sysctl kernel.ftrace_enabled=1"),
        "{line}"
    );
    let locked = Preflight { lockdown: Some(Lockdown::Confidentiality), ..good() };
    assert_eq!(only(&locked).0, FindingSeverity::Blocks);

    assert!(only(&Preflight { kptr_restrict: Some(2), ..good() }).1.contains("kptr_restrict is 2"));
    assert_eq!(only(&Preflight { tracefs_mounted: Some(false), ..good() }).0, FindingSeverity::Note);
    assert_eq!(only(&Preflight { capabilities: None, ..good() }).0, FindingSeverity::Limits);
}

#[test]
fn missing_types_name_the_command_that_makes_them() {
    let lines = |has_vmlinux, source: &TypesSource, problems: &[String]| -> Vec<String> {
        let found = types(has_vmlinux, source, problems);
        assert!(found.iter().all(|finding| finding.severity == FindingSeverity::Limits));
        found.iter().map(ToString::to_string).collect()
    };
    assert_eq!(lines(true, &TypesSource::Module, &[]), [""; 0]);
    let file = TypesSource::File("/x.btf".into());
    assert!(lines(false, &file, &[])[0].contains("no types of the kernel"));
    let none = lines(true, &TypesSource::None, &["cannot use file /x.btf: damaged".to_owned()]);
    assert!(none[0].contains("only ioctls are traced") && none[0].contains("run `kfd-trace driver-types`"));
    assert!(none[1].contains("cannot use file /x.btf: damaged"));
    assert_eq!(none.len(), 2);
}

#[test]
fn what_only_some_machines_need_is_reported_there_alone() {
    let without = |capability: Capability| Some(Capabilities(!(1 << capability as u8)));
    let limited =
        Preflight { capabilities: without(Capability::SysResource), memory_limited: Some(true), ..good() };
    let release = |release: &str| Preflight { release: Some(release.to_owned()), ..limited.clone() };
    for old in ["5.10.0-32-amd64", "4.18.0-553.el8", "unknown"] {
        assert!(only(&release(old)).1.starts_with("no CAP_SYS_RESOURCE"), "{old}");
    }
    for newer in ["5.11.0", "5.11-rc1", "5.14.0-503.el9", "6.18.1"] {
        assert_eq!(findings(&release(newer)), [], "{newer}");
    }
    let limited = release("5.10.0");
    assert_eq!(findings(&Preflight { memory_limited: Some(false), ..limited }), []);
    let hidden =
        Preflight { capabilities: without(Capability::SysPtrace), processes_hidden: Some(true), ..good() };
    let (severity, line) = only(&hidden);
    assert!(severity == FindingSeverity::Limits && line.starts_with("no CAP_SYS_PTRACE"), "{line}");
    assert_eq!(findings(&Preflight { processes_hidden: Some(false), ..hidden }), []);
}

#[test]
fn a_built_in_driver_needs_no_module_btf() {
    assert_eq!(findings(&Preflight { driver: DriverForm::BuiltIn, amdgpu_btf: false, ..good() }), []);
}

#[test]
fn an_ordinary_user_sees_first_what_blocks() {
    let user = Preflight { euid: Some(1000), capabilities: Some(Capabilities(0)), ..good() };
    let found = findings(&user);
    assert_eq!(found[0].severity, FindingSeverity::Blocks);
    assert!(found[0].to_string().starts_with("not root (uid 1000): no probe can be set"));
    assert!(found.is_sorted_by_key(|finding| finding.severity));
    let locked = Preflight { capabilities: None, lockdown: Some(Lockdown::Confidentiality), ..good() };
    let severities: Vec<_> = findings(&locked).iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [FindingSeverity::Blocks, FindingSeverity::Limits]);
    let container = Preflight { capabilities: Some(Capabilities(0)), ..good() };
    assert!(findings(&container)[0].to_string().contains("container"));
}

#[test]
fn bpf_and_perfmon_are_enough() {
    let bits = [Capability::Bpf, Capability::Perfmon, Capability::Syslog];
    let bits = bits.iter().fold(0, |all, bit| all | 1 << *bit as u8);
    let found = findings(&Preflight { euid: Some(999), capabilities: Some(Capabilities(bits)), ..good() });
    assert!(found.iter().all(|finding| finding.severity == FindingSeverity::Note), "{found:?}");
    let no_syslog = Some(Capabilities(!(1 << Capability::Syslog as u8)));
    let (severity, line) = only(&Preflight { capabilities: no_syslog, ..good() });
    assert!(severity == FindingSeverity::Limits && line.starts_with("no CAP_SYSLOG"), "{line}");
    let open = |paranoid| Preflight {
        capabilities: no_syslog,
        kptr_restrict: Some(0),
        perf_event_paranoid: paranoid,
        ..good()
    };
    assert_eq!(findings(&open(Some(1))), []);
    for hidden in [Some(2), Some(3), None] {
        assert!(only(&open(hidden)).1.starts_with("no CAP_SYSLOG"));
    }
    let strict = Preflight {
        capabilities: Some(Capabilities(!(1 << Capability::SysAdmin as u8))),
        perf_event_paranoid: Some(3),
        ..good()
    };
    let (severity, line) = only(&strict);
    assert!(
        severity == FindingSeverity::Limits && line.contains("kernel.perf_event_paranoid is 3"),
        "{line}"
    );
    for (held, missing) in [(Capability::Bpf, "no CAP_PERFMON"), (Capability::Perfmon, "no CAP_BPF")] {
        let held = Some(Capabilities(1 << held as u8));
        let found = findings(&Preflight { capabilities: held, ..good() });
        assert_eq!((found[0].severity, found[0].what.as_str()), (FindingSeverity::Blocks, missing));
    }
}
