//! The daemon counts what the driver does without a GPU: its refusals, and opens that fail.

use anyhow::Result;
use kfd_trace_tests::harness::setting::{FTRACE, KPROBES, Setting};
use kfd_trace_tests::harness::tracer::{FEW, run};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, VmKernel, Workload, counts};
use serde_json::json;

/// Operations with the errno of every driver that permits opening /dev/kfd without a GPU.
const OPERATIONS: [(&str, Option<&str>); 8] = [
    ("version", None),
    ("clock gpu=none", None),
    ("memory-policy gpu=none", Some("EINVAL")),
    ("create aql gpu=none", Some("EINVAL")),
    ("create sdma gpu=none", Some("EINVAL")),
    ("destroy 0", Some("EINVAL")),
    ("unknown 0x82", Some("ENOTTY")),
    ("unknown 0x0c 24", None),
];

#[test]
fn refusals_are_counted_by_ioctl_and_errno() -> Result<()> {
    if VmKernel::from_env()?.driver_is_from("7.2") {
        // kfd_open refuses without a GPU: no ioctl is reached
        return Ok(());
    }
    let mut daemon = Daemon::ready(&FEW)?;
    let words: Vec<&str> = ["script"].into_iter().chain(OPERATIONS.map(|(operation, _)| operation)).collect();
    let (workload, truth) = Workload::run(&words)?;
    let issued = workload.ioctls();
    assert_eq!(issued.len(), OPERATIONS.len());
    for ((operation, errno), line) in OPERATIONS.iter().zip(&issued) {
        assert_eq!(line["errno"], json!(errno), "{operation}: the driver's own word");
    }
    let metrics = daemon.scrape_until("the open", |metrics| {
        (metrics.sum("kfd_opens_total", &[]) == Some(1.0)).then(|| metrics.clone())
    })?;
    assert_eq!(counts::by_label(&metrics, "kfd_ioctls_total", "ioctl")?, counts::calls(&truth));
    assert_eq!(counts::metric_errors(&metrics)?, counts::errors(&truth));
    assert_eq!(metrics.sum("kfd_open_errors_total", &[]), None, "none has failed");
    daemon.stop()
}

#[test]
fn failed_opens_are_counted_by_errno() -> Result<()> {
    if !VmKernel::from_env()?.driver_is_from("7.2") {
        return Ok(());
    }
    let mut daemon = Daemon::quick(&FEW)?;
    let mut workload = Workload::spawn(&["script", "version"])?;
    assert!(!workload.wait_exit(SOON)?.success());
    assert!(workload.stderr().contains("os error 22"), "the driver's own word: {}", workload.stderr());
    let metrics = daemon.scrape_until("the open", |metrics| {
        (metrics.sum("kfd_opens_total", &[]) == Some(1.0)).then(|| metrics.clone())
    })?;
    assert_eq!(metrics.sum("kfd_open_errors_total", &[("errno", "EINVAL")]), Some(1.0));
    assert_eq!(counts::by_label(&metrics, "kfd_ioctls_total", "ioctl")?, counts::Sums::new());
    daemon.stop()
}

fn is_unsupported(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.and_then(std::io::Error::raw_os_error) == Some(nix::libc::EOPNOTSUPP)
}

/// Two switches of the machine keep all probes from firing, without any error: using them blinds a running
/// tracer, and a tracer that starts reports it instead of staying silent.
#[test]
fn probes_that_would_never_fire_are_not_put_on() -> Result<()> {
    // One kprobe for each function: a link is none, and fires when kprobes are off.
    let mut daemon = Daemon::ready(&FEW)?;
    let opens = |daemon: &Daemon| Ok::<_, anyhow::Error>(daemon.scrape()?.sum("kfd_opens_total", &[]));
    for (file, word) in [(FTRACE, "ftrace_enabled"), (KPROBES, "kprobes")] {
        let before = opens(&daemon)?;
        let off = match Setting::of(file, "0") {
            // Linux 7.3 does not let ftrace be switched off.
            Err(error) if is_unsupported(&error) => continue,
            off => off?,
        };
        Workload::spawn(&["script", "version"])?.wait_exit(SOON)?;
        assert_eq!(opens(&daemon)?, before, "{word}: nothing is seen");
        let output = run(&["--duration", "1s"])?;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("probes can be set and never fire") && stderr.contains(word), "{stderr}");
        drop(off);
        Workload::spawn(&["script", "version"])?.wait_exit(SOON)?;
        daemon.scrape_until("an open", |metrics| {
            (metrics.sum("kfd_opens_total", &[]) > before).then_some(())
        })?;
    }
    daemon.stop()
}
