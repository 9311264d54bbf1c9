//! The driver is taken out and put in again under a running tracer: it does not hold it, says that it went, and sees again
//! what the new one does. This is the only stage that can: kfdsim cannot be unloaded.

use std::fs;

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::driver::references;
use kfd_trace_tests::harness::kernel::{bpf_programs, kprobes};
use kfd_trace_tests::harness::tracer::run;
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Daemon, Driver, JsonProcess, Stream, VmKernel, Workload, until};
use serde_json::json;

const UNLOADED: &str =
    "kfd-trace: the amdgpu driver was unloaded, and all that it had has ended; waiting for it\n";
const TRACING: &str = "kfd-trace: tracing\n";

/// Without the probes that sit on most functions, and that nothing here asks: a tracer starts much sooner.
const FEW: [&str; 5] = [
    "--without-probe=ioctl_handler",
    "--without-probe=mqd_init",
    "--without-probe=mqd_update",
    "--without-probe=mqd_restore",
    "--without-probe=mqd_return",
];

/// A process opens /dev/kfd and calls GET_VERSION; gives its PID. 7.2 refuses the open without a GPU.
fn touch() -> Result<u32> {
    let mut workload = Workload::spawn(&["script", "version"])?;
    let success = workload.wait_exit(SOON)?.success();
    ensure!(success != (VmKernel::from_env()?.series == "7.2"), "{}", workload.stderr());
    Ok(workload.pid())
}

/// Waits until the daemon has counted so many [`touch`]es.
fn counted(daemon: &Daemon, touches: f64) -> Result<()> {
    let versions = if VmKernel::from_env()?.series == "7.2" { None } else { Some(touches) };
    daemon.scrape_until(&format!("touch {touches}"), |metrics| {
        let opens = metrics.sum("kfd_opens_total", &[]);
        let calls = metrics.sum("kfd_ioctls_total", &[("ioctl", "GET_VERSION")]);
        ((opens, calls.filter(|calls| *calls > 0.0)) == (Some(touches), versions)).then_some(())
    })
}

fn loads(daemon: &Daemon) -> Result<Option<f64>> {
    Ok(daemon.scrape()?.sum("kfd_trace_driver_loads_total", &[]))
}

/// Waits until its log holds a line so many times.
fn said(process: &JsonProcess, line: &str, times: usize) -> Result<()> {
    until(&format!("`{}` {times} times", line.trim()), ATTACH, || {
        let said = process.stderr().matches(line).count();
        ensure!(said <= times, "{said} times: {}", process.stderr());
        Ok((said == times).then_some(()))
    })
}

/// Waits until the daemon traces the driver that was loaded as the N-th.
fn ready(daemon: &Daemon, load: f64) -> Result<()> {
    until(&format!("load {load} to be traced"), ATTACH, || {
        // While it attaches its pages wait.
        let is_ready = daemon.get("/-/ready").is_ok_and(|response| response.status == 200);
        Ok((is_ready && loads(daemon)? == Some(load)).then_some(()))
    })
}

/// Open descriptors, and what it has in memory of its own, in KiB.
fn holds(process: &JsonProcess) -> Result<(usize, u64)> {
    let proc = format!("/proc/{}", process.pid());
    let status = fs::read_to_string(format!("{proc}/status"))?;
    let anon = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("RssAnon")?;
    let kib = anon.trim().strip_suffix(" kB").context("kB")?.parse()?;
    Ok((fs::read_dir(format!("{proc}/fd"))?.count(), kib))
}

#[test]
fn the_daemon_lets_go_of_the_driver_and_follows_the_next_one() -> Result<()> {
    let before = (bpf_programs()?, kprobes()?);
    let mut daemon = Daemon::ready(&[])?;
    touch()?;
    counted(&daemon, 1.0)?;
    assert_eq!(loads(&daemon)?, Some(1.0));
    let removed = Driver::of_job()?.remove()?;
    daemon.wait_stderr(UNLOADED, SOON)?;

    // it waits, answers, and holds nothing
    let not_ready = daemon.get("/-/ready")?;
    assert_eq!(not_ready.status, 503);
    assert!(not_ready.body.contains("amdgpu driver"), "{}", not_ready.body);
    assert_eq!(daemon.get("/api/v1/queues")?.status, 503);
    let metrics = daemon.scrape()?;
    assert_eq!(metrics.sum("kfd_trace_driver_loads_total", &[]), Some(1.0));
    assert_eq!(metrics.sum("kfd_opens_total", &[]), None, "not measured is not 0");
    until("what was attached to go", SOON, || Ok(((bpf_programs()?, kprobes()?) == before).then_some(())))?;
    for command in ["ps", "status"] {
        let output = run(&[command])?;
        assert_eq!(output.status.code(), Some(3), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }

    removed.insert()?;
    ready(&daemon, 2.0)?;
    said(&daemon, TRACING, 2)?;
    touch()?;
    counted(&daemon, 2.0)?;
    daemon.stop()
}

#[test]
fn a_reload_between_two_looks_is_noticed_and_leaves_nothing_behind() -> Result<()> {
    let mut daemon = Daemon::ready(&FEW)?;
    touch()?;
    counted(&daemon, 1.0)?;
    let before = holds(&daemon)?;
    for reload in [1, 2] {
        Driver::of_job()?.remove()?.insert()?;
        ready(&daemon, f64::from(reload + 1))?;
        said(&daemon, UNLOADED, reload.try_into()?)?;
        touch()?;
        counted(&daemon, f64::from(reload + 1))?;
    }
    let after = holds(&daemon)?;
    println!("descriptors and KiB before and after two reloads: {before:?} {after:?}");
    assert_eq!(after.0, before.0, "descriptors");
    assert!(after.1 < before.1 + 4096, "memory in KiB: {before:?} {after:?}");
    assert_eq!(daemon.scrape()?.sum("kfd_trace_decode_errors_total", &[]), Some(0.0));
    daemon.stop()
}

#[test]
fn a_daemon_that_came_first_sees_the_driver_that_comes() -> Result<()> {
    let removed = Driver::of_job()?.remove()?;
    let mut daemon = Daemon::spawn(&FEW)?;
    daemon.wait_stderr("the amdgpu driver is not loaded", SOON)?;
    removed.insert()?;
    ready(&daemon, 1.0)?;
    touch()?;
    counted(&daemon, 1.0)?;
    daemon.stop()
}

#[test]
fn the_stream_goes_on_after_a_reload() -> Result<()> {
    let mut stream = Stream::tracing(&FEW)?;
    let opened = |stream: &Stream, pid: u32| {
        stream.wait_line("its open", SOON, |line| line["event"] == "open" && line["pid"] == pid).map(drop)
    };
    opened(&stream, touch()?)?;
    let removed = Driver::of_job()?.remove()?;
    said(&stream, UNLOADED, 1)?;
    removed.insert()?;
    said(&stream, TRACING, 2)?;
    opened(&stream, touch()?)?;
    let summary = stream.finish()?;
    assert_eq!(summary["records"]["open"], 2, "of both loadings: {summary}");
    assert_eq!(summary["lost"], json!({}), "{summary}");
    Ok(())
}

/// The kernel takes a reference for each tracepoint that is used (`trace_event_try_get_ref`).
#[test]
fn its_tracepoints_would_hold_the_driver() -> Result<()> {
    until("nobody to hold amdgpu", SOON, || Ok((references()? == 0).then_some(())))?;
    let mut tracepoints = Daemon::ready(&[&FEW[..], &["--tracepoints"]].concat())?;
    assert!(references()? > 0);
    tracepoints.stop()?;
    until("nobody to hold amdgpu", SOON, || Ok((references()? == 0).then_some(())))
}
