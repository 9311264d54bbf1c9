//! The driver is unloaded and loaded again under running tracers: tracers with kprobes do not hold it, report
//! its removal, and trace the new one. Only this stage can do this: kfdsim cannot be unloaded.

use anyhow::{Result, ensure};
use kfd_trace_tests::harness::driver::references;
use kfd_trace_tests::harness::footprint::Footprint;
use kfd_trace_tests::harness::kernel::{bpf_programs, kprobes};
use kfd_trace_tests::harness::tracer::{FEW, run};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Daemon, Driver, JsonProcess, Stream, VmKernel, Workload, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const UNLOADED: &str =
    "kfd-trace: the amdgpu driver was unloaded: its processes and queues ended; waiting for it\n";
const WHY: &str = "the amdgpu driver is not loaded";
const TRACING: &str = "kfd-trace: tracing\n";

/// A process opens /dev/kfd and calls GET_VERSION; returns its PID. 7.2 refuses the open without a GPU.
fn touch() -> Result<u32> {
    let mut workload = Workload::spawn(&["script", "version"])?;
    let success = workload.wait_exit(SOON)?.success();
    ensure!(success != VmKernel::from_env()?.driver_is_from("7.2"), "{}", workload.stderr());
    Ok(workload.pid())
}

/// Waits until the daemon has counted this many [`touch`]es.
fn counted(daemon: &Daemon, touches: f64) -> Result<()> {
    let versions = if VmKernel::from_env()?.driver_is_from("7.2") { None } else { Some(touches) };
    daemon.scrape_until(&format!("touch {touches}"), |metrics| {
        let opens = metrics.sum("kfd_opens_total", &[]);
        let of_calls = ["kfd_ioctls_total", "kfd_ioctl_duration_seconds_count"];
        let calls = of_calls.map(|name| metrics.sum(name, &[("ioctl", "GET_VERSION")]));
        let seen = calls.map(|calls| calls.filter(|calls| *calls > 0.0));
        ((opens, seen) == (Some(touches), [versions; 2])).then_some(())
    })
}

/// Waits until its log contains a line this many times.
fn logged(process: &JsonProcess, line: &str, times: usize) -> Result<()> {
    let limit = if line == TRACING { ATTACH } else { SOON };
    until(&format!("`{}` {times} times", line.trim()), limit, || {
        let found = process.stderr().matches(line).count();
        ensure!(found <= times, "{found} times: {}", process.stderr());
        Ok((found == times).then_some(()))
    })
}

/// Waits until the daemon traces the N-th loaded driver. Its pages are served also while it attaches; returns
/// the longest time that one took.
fn ready(daemon: &Daemon, load: f64) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    until(&format!("load {load} to be traced"), ATTACH, || {
        let start = Instant::now();
        let is_ready = daemon.get("/-/ready")?.status == 200;
        longest = longest.max(start.elapsed());
        let loads = || Ok::<_, anyhow::Error>(daemon.scrape()?.sum("kfd_trace_driver_loads_total", &[]));
        Ok((is_ready && loads()? == Some(load)).then_some(()))
    })?;
    assert_eq!(daemon.scrape()?.sum("kfd_trace_driver_loaded", &[]), Some(1.0));
    Ok(longest)
}

/// The daemon waits, serves its pages, reports why, and keeps counting what it counts of itself: the events
/// of one open. A daemon that never had a driver is in tests/tests/no_amdgpu/waiting.rs.
fn waits(daemon: &Daemon) -> Result<()> {
    for path in ["/-/ready", "/api/v1/queues"] {
        let page = daemon.get(path)?;
        ensure!(page.status == 503 && page.body.contains(WHY), "{path}: {page:?}");
    }
    let landing = daemon.get("/")?;
    ensure!(landing.body.contains(WHY) && !landing.body.contains("No process"), "{landing:?}");
    let metrics = daemon.scrape()?;
    assert_eq!(metrics.sum("kfd_opens_total", &[]), None, "not measured is not 0");
    assert_eq!(metrics.sum("kfd_trace_driver_loads_total", &[]), Some(1.0));
    assert_eq!(metrics.sum("kfd_trace_driver_loaded", &[]), Some(0.0));
    assert_eq!(metrics.sum("kfd_trace_records_total", &[("kind", "open")]), Some(1.0));
    assert_eq!(metrics.sum("kfd_trace_probe_hits_total", &[("probe", "open")]), Some(1.0));
    Ok(())
}

/// Open descriptors, and the memory that is its own, in KiB.
fn holds(process: &JsonProcess) -> Result<(u64, u64)> {
    let Footprint { descriptors, anonymous, .. } = Footprint::of(process.pid())?;
    Ok((descriptors, anonymous))
}

/// The stream's lines about the driver's state and about opens of the device, with the PID.
fn reported(stream: &Stream) -> Vec<(Value, Value)> {
    let reported = stream.lines().into_iter().map(|mut line| (line["event"].take(), line["pid"].take()));
    reported
        .filter(|(event, _)| ["open", "driver_unloaded", "driver_loaded"].iter().any(|one| event == one))
        .collect()
}

#[test]
fn a_reload_is_followed_by_the_daemon_and_the_stream() -> Result<()> {
    let before = (bpf_programs()?, kprobes()?);
    let nothing_attached = || -> Result<()> {
        until("what was attached to go", SOON, || Ok(((bpf_programs()?, kprobes()?) == before).then_some(())))
    };
    let mut daemon = Daemon::spawn(&FEW)?;
    let mut stream = Stream::tracing(&[&FEW[..], &["--attach=single"]].concat())?;
    ready(&daemon, 1.0)?;
    let first = touch()?;
    counted(&daemon, 1.0)?;

    let removed = Driver::of_job()?.remove()?;
    logged(&daemon, UNLOADED, 1)?;
    logged(&stream, UNLOADED, 1)?;
    nothing_attached()?;
    until("the daemon to look for it", SOON, || {
        Ok(daemon.get("/-/ready")?.body.contains("is not loaded").then_some(()))
    })?;
    waits(&daemon)?;
    let output = run(&["ps"])?;
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    removed.insert()?;
    let longest = ready(&daemon, 2.0)?;
    println!("the longest answer while the daemon attached took {longest:?}");
    logged(&daemon, TRACING, 2)?;
    logged(&stream, TRACING, 2)?;
    let second = touch()?;
    counted(&daemon, 2.0)?;

    let opened = |pid: u32| (json!("open"), json!(pid));
    let driver = |event| (json!(event), Value::Null);
    let expected = [opened(first), driver("driver_unloaded"), driver("driver_loaded"), opened(second)];
    until("the stream to tell both opens", SOON, || Ok((reported(&stream).len() == 4).then_some(())))?;
    assert_eq!(reported(&stream), expected);
    let summary = stream.finish()?;
    assert_eq!(summary["records"]["open"], 2, "of both loadings: {summary}");
    assert_eq!(summary["lost"], json!({}), "{summary}");

    // Each insertion of amdgpu takes 24 G instructions (`ftrace_module_enable` searches each of its functions
    // among all of its symbols).
    if VmKernel::from_env()?.all {
        between_two_looks(&daemon)?;
    }
    assert_eq!(daemon.scrape()?.sum("kfd_trace_decode_errors_total", &[]), Some(0.0));
    daemon.stop()?;
    nothing_attached()
}

/// The driver is back before the next check; a daemon that follows its second driver keeps nothing of the
/// last one.
fn between_two_looks(daemon: &Daemon) -> Result<()> {
    let before = holds(daemon)?;
    Driver::of_job()?.remove()?.insert()?;
    ready(daemon, 3.0)?;
    logged(daemon, UNLOADED, 2)?;
    touch()?;
    counted(daemon, 3.0)?;
    let after = holds(daemon)?;
    println!("descriptors and KiB before and after a reload: {before:?} {after:?}");
    assert_eq!(after.0, before.0, "descriptors");
    assert!(after.1 < before.1 + 2048, "memory in KiB: {before:?} {after:?}");
    Ok(())
}

/// The kernel takes a reference for each used tracepoint (`trace_event_try_get_ref`), the same way in all
/// kernels, and for a multi-kprobe link (`bpf_kprobe_multi_link_attach`).
#[test]
fn tracepoints_and_links_would_hold_the_driver_across_a_reload() -> Result<()> {
    if !VmKernel::from_env()?.all {
        return Ok(());
    }
    until("amdgpu without users", SOON, || Ok((references()? == 0).then_some(())))?;
    let mut tracepoints = Daemon::ready(&[&FEW[..], &["--tracepoints"]].concat())?;
    assert!(references()? > 0);
    tracepoints.stop()?;
    until("amdgpu without users", SOON, || Ok((references()? == 0).then_some(())))?;
    let mut stream = Stream::tracing(&FEW)?;
    assert!(references()? > 0);
    stream.interrupt()?;
    until("amdgpu without users", SOON, || Ok((references()? == 0).then_some(())))
}
