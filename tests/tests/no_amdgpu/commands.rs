//! Without the driver there is nothing to trace: one clear line, and the matching exit code.

use kfd_trace_tests::harness::tracer::run;
use std::path::Path;

const NOTHING_TO_TRACE: i32 = 3;

#[test]
fn every_command_says_so_in_one_line() {
    assert!(!Path::new("/dev/kfd").exists(), "this stage is without amdgpu");
    for args in [&[][..], &["--json"], &["ps"], &["doctor"], &["doctor", "--pid=1"]] {
        let output = run(args).expect("kfd-trace");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(NOTHING_TO_TRACE), "{args:?}: {errors}");
        let lines: Vec<_> = errors.lines().collect();
        let [line] = lines[..] else { panic!("{args:?}: {errors}") };
        assert!(line.starts_with("kfd-trace: the amdgpu driver is not loaded"), "{line}");
        // Guests have no AMD GPU on a PCI bus, or no such bus.
        let gpu = if Path::new("/sys/bus/pci/devices").exists() { "no AMD GPU" } else { "modprobe amdgpu" };
        assert!(line.contains(gpu), "it says what to do: {line}");
    }
}

#[test]
fn what_cannot_be_traced_is_not_run() {
    let output = run(&["run", "--", "sh", "-c", "echo it ran"]).expect("kfd-trace");
    assert_eq!(output.status.code(), Some(NOTHING_TO_TRACE));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the amdgpu driver is not loaded"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

#[test]
fn status_reports_all_the_same() {
    let output = run(&["status"]).expect("kfd-trace");
    let report = String::from_utf8_lossy(&output.stdout);
    let driver = report.lines().find(|line| line.starts_with("driver")).expect("the driver's line");
    assert!(driver.contains("not loaded"), "{driver}");
    assert_eq!(report.matches("the amdgpu driver is not loaded").count(), 1, "{report}");
    assert_eq!(output.status.code(), Some(NOTHING_TO_TRACE));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "the report has the reason");
}

#[test]
fn bad_usage_is_another_exit_code() {
    for args in [&["--event", "no_such"][..], &["--duration", "soon"], &["no_such_command"]] {
        assert_eq!(run(args).expect("kfd-trace").status.code(), Some(2), "{args:?}");
    }
}
