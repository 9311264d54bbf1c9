//! `kfd-trace status` as text, and that its trial attach leaves no probe behind.

use anyhow::Result;
use kfd_trace_tests::harness::kernel::{bpf_programs, kprobes};
use kfd_trace_tests::harness::tracer::run;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{VmKernel, until};

#[test]
fn the_report_names_the_kernel_each_probe_and_what_is_not_seen() -> Result<()> {
    let kernel = VmKernel::from_env()?;
    let before = (bpf_programs()?, kprobes()?);
    let output = run(&["-v", "status"])?;
    // The program that reads the driver's symbols is refused before Linux 5.16; elsewhere nothing must fail.
    let log = String::from_utf8(output.stderr)?;
    assert_eq!(log.contains("the symbols of all modules are read"), kernel.series == "5.10", "{log}");
    let report = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(0), "{report}");
    let line =
        |word: &str| report.lines().filter(|line| line.split_whitespace().next() == Some(word)).count();
    assert!(
        report.lines().any(|line| line.starts_with("kernel ") && line.ends_with(&kernel.release)),
        "{report}"
    );
    for probe in ["ioctl", "ioctl_return", "open", "queue_add", "queue_del", "wq_release"] {
        assert_eq!(line(probe), 1, "{probe}: {report}");
    }
    // Debian's 5.10 has no BTF of modules
    let blind = kernel.series == "5.10";
    assert_eq!(report.contains("no types of the driver"), blind, "{report}");
    assert_eq!(report.lines().any(|line| line.starts_with("not seen: ")), blind, "{report}");
    until("what was tried to go", SOON, || Ok(((bpf_programs()?, kprobes()?) == before).then_some(())))
}
