//! Rare conditions of the machine: a CPU that goes and comes, addresses that the kernel hides from everyone, no
//! descriptor that is free, no tracefs, and as many queues as the driver allows a process.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::setting::Setting;
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Metrics, Stream, Workload, until};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;

const SECOND_CPU: &str = "/sys/devices/system/cpu/cpu1/online";
const KPTR_RESTRICT: &str = "/proc/sys/kernel/kptr_restrict";
/// debugfs has another one below it.
const TRACEFS: [(&str, &str); 2] = [("tracefs", "/sys/kernel/tracing"), ("debugfs", "/sys/kernel/debug")];

/// KFD_MAX_NUM_OF_QUEUES_PER_PROCESS (kfd_priv.h). kfdsim's GPUs have doorbells for some 250.
const QUEUES: usize = 1024;

const CALLS: u32 = 1000;

fn burst() -> Result<()> {
    Workload::run(&["burst", "--threads=2", &format!("--count={CALLS}")]).map(drop)
}

fn sum(metrics: &Metrics, name: &str) -> f64 {
    metrics.sum(name, &[]).unwrap_or(0.0)
}

#[test]
fn a_cpu_that_goes_and_comes_takes_no_count_with_it() -> Result<()> {
    let mut daemon = Daemon::quick(&FEW)?;
    burst()?;
    let without = Setting::of(SECOND_CPU, "0")?;
    burst()?;
    drop(without);
    ensure!(fs::read_to_string(SECOND_CPU)?.trim() == "1", "it is not back");
    burst()?;
    let metrics = daemon.scrape()?;
    assert_eq!(sum(&metrics, "kfd_ioctls_total"), 3.0 * f64::from(CALLS));
    assert_eq!(sum(&metrics, "kfd_trace_probe_records_lost_total"), 0.0);
    daemon.stop()
}

#[test]
fn addresses_that_nobody_sees_cost_what_needs_them_and_no_more() -> Result<()> {
    let _hidden = Setting::of(KPTR_RESTRICT, "2")?;
    let stream = Stream::tracing(&[])?;
    assert!(stream.stderr().contains("kernel.kptr_restrict is 2"), "{}", stream.stderr());
    let mut workload = Workload::ready(&["hold", "--aql=1"])?;
    let pid = workload.pid();
    for event in ["queue_create", "ioctl"] {
        stream.wait_line(event, SOON, |line| line["event"] == event && line["pid"] == pid)?;
    }
    workload.finish().map(drop)
}

/// Sets how many descriptors a process may have open.
fn allow(pid: u32, descriptors: Option<u64>) -> Result<Rlimit> {
    let pid = Pid::from_raw(pid.cast_signed()).context("a PID")?;
    // fs.nr_open: no process may have more.
    let limit = Rlimit { current: descriptors, maximum: Some(1 << 20) };
    Ok(prlimit(Some(pid), Resource::Nofile, limit)?)
}

#[test]
fn without_a_free_descriptor_it_goes_on() -> Result<()> {
    let mut daemon = Daemon::quick(&FEW)?;
    let open = u64::try_from(fs::read_dir(format!("/proc/{}/fd", daemon.pid()))?.count())?;
    let before = allow(daemon.pid(), Some(open))?;
    let mut workload = Workload::ready(&["hold", "--aql=2", "--sdma=0"])?;
    let pid = workload.pid().to_string();
    let of_it = [("pid", pid.as_str())];
    daemon.scrape_until("its queues", |metrics| {
        (metrics.sum("kfd_process_queues", &of_it).unwrap_or(0.0) == 2.0).then_some(())
    })?;
    until("what it could not open", SOON, || Ok(daemon.stderr().contains("os error 24").then_some(())))?;
    allow(daemon.pid(), before.current)?;
    workload.finish()?;
    daemon.scrape_until("their end", |metrics| (sum(metrics, "kfd_queues") == 0.0).then_some(()))?;
    daemon.stop()
}

/// Mounted again when dropped.
struct NoTracefs(());

impl NoTracefs {
    fn begin() -> Result<Self> {
        let none = NoTracefs(());
        for (kind, place) in TRACEFS {
            umount2(place, MntFlags::MNT_DETACH).with_context(|| format!("unmount {kind}"))?;
        }
        Ok(none)
    }
}

impl Drop for NoTracefs {
    fn drop(&mut self) {
        for (kind, place) in TRACEFS {
            let _ = mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>);
        }
    }
}

#[test]
fn without_tracefs_tracepoints_alone_are_missing() -> Result<()> {
    let none = NoTracefs::begin()?;
    let stream = Stream::tracing(&["--tracepoints"])?;
    let stderr = stream.stderr();
    drop(none);
    assert_eq!(stderr.lines().filter(|line| line.contains("tracefs is not mounted")).count(), 1, "{stderr}");
    let mut workload = Workload::ready(&["hold", "--aql=1"])?;
    let pid = workload.pid();
    stream.wait_line("its queue", SOON, |line| line["event"] == "queue_create" && line["pid"] == pid)?;
    workload.finish().map(drop)
}

#[test]
fn a_process_has_as_many_queues_as_the_driver_allows() -> Result<()> {
    let mut daemon = Daemon::quick(&FEW)?;
    let words =
        ["script".to_owned()].into_iter().chain((0..=QUEUES).map(|i| format!("create aql gpu={}", i % 2)));
    let words: Vec<String> = words.chain(["wait".to_owned()]).collect();
    let mut workload = Workload::spawn(&Vec::from_iter(words.iter().map(String::as_str)))?;
    workload.wait_line("all its queues", SOON, |line| line["ready"] == true)?;
    let created = workload.queues().len();
    let refused = workload.ioctls().iter().filter(|call| !call["errno"].is_null()).count();
    assert!(created > 200 && created + refused == QUEUES + 1, "{created} created, {refused} refused");
    let pid = workload.pid().to_string();
    until("as many to be shown", SOON, || {
        let shown = daemon.scrape()?.sum("kfd_process_queues", &[("pid", &pid)]);
        Ok((shown == Some(created as f64)).then_some(()))
    })?;
    workload.finish()?;
    let metrics = daemon
        .scrape_until("their end", |metrics| (sum(metrics, "kfd_queues") == 0.0).then(|| metrics.clone()))?;
    assert_eq!(sum(&metrics, "kfd_queues_created_total"), created as f64);
    assert_eq!(sum(&metrics, "kfd_queues_destroyed_total"), created as f64);
    assert_eq!(sum(&metrics, "kfd_ioctl_errors_total"), refused as f64);
    assert_eq!(sum(&metrics, "kfd_trace_state_anomalies_total"), 0.0);
    daemon.stop()
}
