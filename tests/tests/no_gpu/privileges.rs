//! The least privilege of docs/privileges.md: it is enough, each part of it is needed, and no more is kept.
//!
//! verdicts.rs shows that all probes attach with it.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::capable::PARANOID;
use kfd_trace_tests::harness::setting::Setting;
use kfd_trace_tests::harness::status::field;
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Daemon, JsonProcess, Workload, capable, until};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::CapabilitySet;
use serde_json::Value;
use std::fs;

/// CAP_SYSLOG, CAP_PERFMON and CAP_BPF.
const KEPT: &str = "000000c400000000";

/// Disables queue sampling, which needs two more capabilities.
const NO_SAMPLES: &str = "--sample.interval=0";

/// CAP_SETGID and CAP_SETUID, which a daemon of root passes on to the processes that serve and send.
const CHANGES_USER: &str = "00000000000000c0";
const NONE: &str = "0000000000000000";

/// One line of /proc/PID/status, which must be the same in all of its threads.
fn reported(pid: u32, key: &str) -> Result<String> {
    let mut reported: Vec<String> = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        reported.push(field(&status, key)?.to_owned());
    }
    reported.dedup();
    ensure!(reported.len() == 1, "{key} of its threads: {reported:?}");
    Ok(reported.remove(0))
}

#[test]
fn a_tracer_that_root_starts_keeps_what_it_needs_and_no_more() -> Result<()> {
    for (paranoid, more, kept, permitted) in [
        ("2", &[NO_SAMPLES][..], KEPT, "000000c4000000c0"),
        ("3", &[NO_SAMPLES], "000000c400200000", "000000c4002000c0"),
        // CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH beside the others
        ("2", &[], "000000c400080004", "000000c4000800c4"),
    ] {
        let _open = Setting::of(PARANOID.0, paranoid)?;
        let mut daemon = Daemon::ready(&[&FEW[..], more].concat())?;
        // a thread for the pages, too
        daemon.scrape()?;
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"]
            .map(|key| reported(daemon.pid(), key).unwrap_or_else(|error| format!("{error:#}")));
        assert_eq!(
            sets,
            [CHANGES_USER, permitted, kept, NONE, NONE, "1"],
            "kernel.perf_event_paranoid={paranoid} {more:?}"
        );
        daemon.stop()?;
    }
    Ok(())
}

/// The process that serves the pages of this daemon.
fn web_server(daemon: u32) -> Result<u32> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{daemon}/task"))? {
        let text = fs::read_to_string(task?.path().join("children"))?;
        children.extend(text.split_whitespace().map(str::parse::<u32>).collect::<Result<Vec<_>, _>>()?);
    }
    ensure!(children.len() == 1, "processes that it started: {children:?}");
    Ok(children[0])
}

#[test]
fn who_serves_the_pages_holds_nothing_and_takes_nothing_with_it() -> Result<()> {
    let mut daemon = Daemon::ready(&FEW)?;
    daemon.scrape()?;
    let web = web_server(daemon.pid())?;
    assert_eq!(fs::read_to_string(format!("/proc/{web}/comm"))?.trim(), "kfd-trace-web");
    for key in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(reported(web, key)?, NONE, "{key}");
    }
    let user = reported(web, "Uid")?;
    let ids: Vec<&str> = user.split_whitespace().collect();
    ensure!(ids[0] != "0" && ids[0] == ids[1] && ids[0] == ids[3], "{user}");
    assert_eq!(reported(web, "Groups")?.trim(), "");
    assert_eq!((reported(web, "NoNewPrivs")?, reported(web, "Seccomp")?), ("1".into(), "2".into()));
    let mut open = Vec::new();
    for descriptor in fs::read_dir(format!("/proc/{web}/fd"))? {
        open.push(fs::read_link(descriptor?.path())?.to_string_lossy().into_owned());
    }
    let traces = |link: &String| link.contains("bpf") || link.contains("perf_event");
    assert!(!open.iter().any(traces), "{open:?}");

    let began = daemon.json("/api/v1/status")?["began"].clone();
    kill_process(Pid::from_raw(web.cast_signed()).context("a PID")?, Signal::KILL)?;
    let again = until("another process that serves", SOON, || {
        let again = web_server(daemon.pid()).ok().filter(|again| *again != web);
        Ok(again.filter(|_| daemon.get("/-/ready").is_ok_and(|answer| answer.status == 200)))
    })?;
    assert_eq!(reported(again, "Seccomp")?, "2");
    assert_eq!(daemon.json("/api/v1/status")?["began"], began, "what is remembered stays");
    daemon.stop()
}

/// Opens /dev/kfd as root, with or without success; returns the PID.
fn touch() -> Result<u32> {
    let mut workload = Workload::spawn(&["script", "version"])?;
    workload.wait_exit(SOON)?;
    Ok(workload.pid())
}

/// Starts a stream with few probes and these capabilities, and waits until it traces.
fn stream(held: &CapabilitySet, more: &[&str]) -> Result<JsonProcess> {
    let words: Vec<&str> = ["--json"].iter().chain(&FEW).chain(more).copied().collect();
    let mut stream = JsonProcess::start(&mut capable::command(held, &words))?;
    stream.wait_stderr("kfd-trace: tracing", ATTACH)?;
    Ok(stream)
}

#[test]
fn another_users_process_is_named() -> Result<()> {
    let _open = Setting::of(PARANOID.0, PARANOID.1)?;
    let held = capable::needed() - CapabilitySet::DAC_READ_SEARCH;
    let stream = stream(&held, &[NO_SAMPLES])?;
    let pid = touch()?;
    let open: Value =
        stream.wait_line("its open", SOON, |line| line["event"] == "open" && line["pid"] == pid)?;
    assert_eq!(open["comm"], "kfd-workload", "{open}");
    assert!(!stream.stderr().contains("no CAP_"), "{}", stream.stderr());
    assert_eq!(
        (reported(stream.pid(), "CapEff")?, reported(stream.pid(), "NoNewPrivs")?),
        (KEPT.into(), "1".into())
    );
    Ok(())
}

#[test]
fn without_one_of_them_one_line_says_which() -> Result<()> {
    let needed = capable::needed();
    // as Debian sets it
    ensure!(fs::read_to_string(PARANOID.0)?.trim() == "3", "{} is not what it was", PARANOID.0);
    // The kernel checks it for kprobes, not for multi-kprobe links.
    let output = capable::run(&needed, &[&FEW[..], &["--attach=single"]].concat())?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no CAP_SYS_ADMIN, and kernel.perf_event_paranoid is 3: "), "{stderr}");

    let _open = Setting::of(PARANOID.0, PARANOID.1)?;
    let mut fatal = vec![
        (CapabilitySet::BPF, "no CAP_BPF: no program can be loaded"),
        (CapabilitySet::PERFMON, "no CAP_PERFMON: no probe can be set"),
    ];
    if needed.contains(CapabilitySet::SYS_RESOURCE) {
        fatal.push((CapabilitySet::SYS_RESOURCE, "run with CAP_SYS_RESOURCE"));
    }
    for (missing, line) in fatal {
        let output = capable::run(&(needed - missing), &FEW)?;
        let stderr = String::from_utf8(output.stderr)?;
        // aya itself may log that a limit stays; a driver without types is no matter of privileges
        let of_types = "kfd-trace: no types of the driver (no BTF of the amdgpu module";
        let own =
            stderr.lines().filter(|line| line.starts_with("kfd-trace: ") && !line.starts_with(of_types));
        let own: Vec<&str> = own.collect();
        assert_eq!((output.status.code(), own.len()), (Some(1), 1), "{missing:?}: {stderr}");
        assert!(own[0].contains(line), "{missing:?}: {stderr}");
    }
    Ok(())
}

#[test]
fn what_else_is_missing_is_reported_by_a_tracer_that_goes_on() -> Result<()> {
    let _open = Setting::of(PARANOID.0, PARANOID.1)?;
    let rest = capable::needed() - CapabilitySet::SYSLOG - CapabilitySet::DAC_READ_SEARCH;
    let stream = stream(&rest, &["--tracepoints"])?;
    let stderr = stream.stderr();
    for line in [
        "no CAP_SYSLOG: the kernel hides its addresses",
        "no CAP_DAC_READ_SEARCH: ",
        "no CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: the memory",
    ] {
        assert_eq!(stderr.lines().filter(|stderr| stderr.contains(line)).count(), 1, "{line}: {stderr}");
    }
    Ok(())
}

#[test]
fn hidden_processes_take_a_capability_more() -> Result<()> {
    let _open = Setting::of(PARANOID.0, PARANOID.1)?;
    let folder = tempfile::tempdir()?;
    let place = folder.path();
    let options = Some("hidepid=invisible");
    nix::mount::mount(Some("proc"), place, Some("proc"), nix::mount::MsFlags::empty(), options)?;
    let looked = (|| {
        let root = place.to_str().context("a path of text")?;
        let mut daemon = Daemon::ready(&[&FEW[..], &[NO_SAMPLES, "--path.procfs", root]].concat())?;
        assert_eq!(reported(daemon.pid(), "CapEff")?, "000000c400080000", "CAP_SYS_PTRACE beside the others");
        daemon.stop()?;
        let held = capable::needed() - CapabilitySet::DAC_READ_SEARCH - CapabilitySet::SYS_PTRACE;
        let stream = stream(&held, &[NO_SAMPLES, "--path.procfs", root])?;
        let stderr = stream.stderr();
        ensure!(stderr.contains("no CAP_SYS_PTRACE, and /proc hides other users' processes"), "{stderr}");
        Ok(())
    })();
    nix::mount::umount(place)?;
    looked
}
