//! Runs in the VM with the real amdgpu: the kernel is locked down for confidentiality, which lasts
//! until the machine is off. It then refuses programs that read its memory (security_locked_down,
//! LOCKDOWN_BPF_READ_KERNEL).

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::run;
use nix::mount::{MsFlags, mount};
use serde_json::Value;
use std::fs;
use std::path::Path;

const SECURITYFS: &str = "/sys/kernel/security";

fn lock() -> Result<()> {
    let file = Path::new(SECURITYFS).join("lockdown");
    if !file.exists() {
        mount(Some("securityfs"), SECURITYFS, Some("securityfs"), MsFlags::empty(), None::<&str>)?;
    }
    fs::write(&file, "confidentiality").context("lock the kernel down")?;
    let state = fs::read_to_string(&file)?;
    ensure!(state.contains("[confidentiality]"), "{state}");
    Ok(())
}

#[test]
fn one_line_says_that_the_kernel_is_locked_down() -> Result<()> {
    lock()?;
    for command in [&["--duration=1s"][..], &["daemon", "--web.listen-address=127.0.0.1:0"]] {
        let output = run(command)?;
        let stderr = String::from_utf8(output.stderr)?;
        // The daemon has its addresses by then.
        let lines: Vec<&str> =
            stderr.lines().filter(|line| !line.starts_with("kfd-trace: serving ")).collect();
        assert_eq!((output.status.code(), lines.len()), (Some(1), 1), "{command:?}: {stderr}");
        assert!(lines[0].contains("confidentiality"), "{command:?}: {stderr}");
    }
    let output = run(&["status", "--json"])?;
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let status: Value = serde_json::from_slice(&output.stdout).context("one object")?;
    let findings = status["findings"].as_array().context("findings")?;
    let blocking =
        findings.iter().find(|finding| finding["severity"] == "blocks").context("one that blocks")?;
    assert!(blocking["what"].to_string().contains("confidentiality"), "{blocking}");
    // What the driver shows every user needs no program.
    let output = run(&["ps"])?;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
