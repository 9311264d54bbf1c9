//! Counts of queues that are used and destroyed normally.

use super::{
    PACKETS, RING_BYTES, act, daemon, has_queues, incomplete, ledger, of_process, or_none, reported,
    reported_of_queue, samples, shows,
};
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, until};

/// Enqueued commands of the run in the first bug report.
const REPORTED: u32 = 127_644;

pub(super) fn of_the_living(daemon: &Daemon) -> Result<()> {
    bursts(daemon).context("bursts")?;
    fork(daemon).context("fork")?;
    closed(daemon).context("closed")?;
    for (labels, errors) in daemon.scrape()?.series("kfd_trace_sample_errors_total") {
        assert_eq!(errors, 0.0, "{labels:?}");
    }
    Ok(())
}

/// The reported run: bursts with pauses, and an end right after the last of them.
fn bursts(daemon: &Daemon) -> Result<()> {
    let mut workload = Steered::having(&["create aql", "create aql gpu=1"])?;
    let (pid, whole) = (workload.pid(), f64::from(REPORTED));
    has_queues(daemon, pid, 2)?;
    workload.send_line(&format!("busy 0 {REPORTED}"))?;
    let mut before = (0.0, 0.0);
    let line = until("the end of the bursts", SOON, || {
        let now = reported(&daemon.scrape()?, PACKETS, pid).unwrap_or_default();
        let grows = before.0 <= now.0 && before.1 <= now.1;
        ensure!(grows && now.1 <= now.0 && now.0 <= whole, "{before:?}, then {now:?}");
        before = now;
        Ok(workload.operations("busy").pop())
    })?;
    assert_eq!(ledger(&line)?, (whole, whole));
    workload.must("destroy 0")?;
    let metrics = has_queues(daemon, pid, 1)?;
    assert_eq!((reported(&metrics, PACKETS, pid), incomplete(&metrics, pid)), (Some((whole, whole)), 0.0));

    // its id is reused by a queue that begins at 0
    let created = workload.act("create aql")?;
    assert_eq!(created["queue_id"], workload.queue_id(0)?);
    act(&mut workload, "submit 0 6")?;
    let (submitted, retired) = act(&mut workload, "retire 0 4")?;
    let other = act(&mut workload, "submit 1 11")?;
    let all = (whole + submitted + other.0, whole + retired + other.1);
    shows(daemon, PACKETS, pid, all)?;
    let metrics = samples(daemon, 2)?;
    assert_eq!(reported(&metrics, PACKETS, pid), Some(all), "there is no more");
    assert_eq!(reported_of_queue(&metrics, PACKETS, &workload, 0)?, Some((submitted, retired)));
    assert_eq!(reported_of_queue(&metrics, PACKETS, &workload, 1)?, Some(other));
    let gpu = created["gpu_id"].to_string();
    let labels = [("pid", &*pid.to_string()), ("gpu_id", &gpu)];
    let of_gpu = metrics.sum("kfd_process_packets_submitted_total", &labels);
    assert_eq!(of_gpu, Some(whole + submitted), "each GPU has its own");
    for (number, backlog) in [(0, 2.0), (1, 11.0)] {
        let labels = [("pid", &*pid.to_string()), ("queue_id", &workload.queue_id(number)?.to_string())];
        assert_eq!(metrics.sum("kfd_queue_packets_backlog", &labels), Some(backlog), "{number}");
    }
    assert_eq!(of_process(&metrics, "kfd_process_packets_backlog", pid), Some(13.0));

    workload.must("destroy 0")?;
    workload.must("destroy 1")?;
    let metrics = has_queues(daemon, pid, 0)?;
    assert_eq!((reported(&metrics, PACKETS, pid), incomplete(&metrics, pid)), (Some(all), 0.0));
    assert_eq!(reported_of_queue(&metrics, PACKETS, &workload, 0)?, None);
    workload.finish().map(drop)
}

/// A child has the device open, and no queue.
fn fork(daemon: &Daemon) -> Result<()> {
    let mut workload = Steered::having(&["create aql", "submit 0 100"])?;
    let forked = workload.act("fork")?;
    let child = forked["child"].as_u64().context("its child")?.to_string();
    let counts = act(&mut workload, "submit 0 11")?;
    shows(daemon, PACKETS, workload.pid(), counts)?;
    let metrics = samples(daemon, 4)?;
    assert_eq!(reported(&metrics, PACKETS, workload.pid()), Some(counts), "twofold");
    let of_child = |labels: &std::collections::BTreeMap<String, String>| labels.get("pid") == Some(&child);
    assert_eq!(metrics.samples.keys().find(|(_, labels)| of_child(labels)), None);
    workload.must("destroy 0")?;
    workload.finish().map(drop)
}

/// The device is closed: the queue and its memory still exist.
fn closed(daemon: &Daemon) -> Result<()> {
    let mut workload = Steered::having(&["create aql", "submit 0 3", "close"])?;
    let pid = workload.pid();
    shows(daemon, PACKETS, pid, (3.0, 0.0))?;
    act(&mut workload, "submit 0 4")?;
    let counts = act(&mut workload, "retire 0 7")?;
    shows(daemon, PACKETS, pid, counts)?;
    workload.must("open")?;
    let counts = act(&mut workload, "busy 0 20 10")?;
    workload.must("destroy 0")?;
    let metrics = has_queues(daemon, pid, 0)?;
    assert_eq!((reported(&metrics, PACKETS, pid), incomplete(&metrics, pid)), (Some(counts), 0.0));
    workload.finish().map(drop)
}

/// Queues on both GPUs that have a backlog: 3 packets, and 64 bytes of commands.
pub(super) struct Slow(Steered);

impl Slow {
    pub(super) fn begin() -> Result<Self> {
        let queues = ["create aql", "create sdma gpu=1"];
        let work = ["submit 0 5", "retire 0 2", "submit 1 4096", "retire 1 4032"];
        Steered::having(&[&queues[..], &work].concat()).map(Self)
    }

    pub(super) fn reported(&self, daemon: &Daemon) -> Result<()> {
        let pid = self.0.pid();
        shows(daemon, PACKETS, pid, (5.0, 2.0))?;
        let metrics = shows(daemon, RING_BYTES, pid, (4096.0, 4032.0))?;
        assert_eq!(reported_of_queue(&metrics, RING_BYTES, &self.0, 1)?, Some((4096.0, 4032.0)));
        let backlogs = [PACKETS, RING_BYTES]
            .map(|unit| of_process(&metrics, &format!("kfd_process_{unit}_backlog"), pid));
        assert_eq!(backlogs, [3.0, 64.0].map(Some));
        Ok(())
    }

    /// Nothing of them has moved; now it does.
    pub(super) fn stalled(&mut self, daemon: &Daemon) -> Result<()> {
        let Self(workload) = self;
        let pid = workload.pid();
        let until_stalled = |wanted: f64| {
            daemon.scrape_until(&format!("{wanted} to be stalled"), |metrics| {
                let stalled = of_process(metrics, "kfd_process_queues_stalled", pid);
                (stalled == Some(wanted)).then(|| metrics.clone())
            })
        };
        let metrics = until_stalled(2.0)?;
        assert_eq!(of_process(&metrics, "kfd_queue_stalled", pid), Some(2.0));
        act(workload, "retire 0 1")?;
        let metrics = until_stalled(1.0)?;
        let backlog = of_process(&metrics, "kfd_process_packets_backlog", pid);
        assert_eq!(backlog, Some(2.0), "it moves, and has more");
        act(workload, "retire 0 2")?;
        act(workload, "retire 1 64")?;
        let metrics = until_stalled(0.0)?;
        let counts = (reported(&metrics, RING_BYTES, pid), incomplete(&metrics, pid));
        assert_eq!(counts, (Some((4096.0, 4096.0)), 0.0));
        daemon.scrape_until("both queues to be idle", |metrics| {
            let idle = metrics.series("kfd_process_idle_seconds");
            let own = idle.filter(|(labels, _)| labels.get("pid") == Some(&pid.to_string()));
            (own.filter(|(_, seconds)| *seconds > 0.0).count() == 2).then_some(())
        })
    }
}

/// Queues that are destroyed until all counts of one process were read.
const TRIES: u32 = 3;

/// A daemon that does not sample within the test: the reported counts were read when the queue was destroyed.
/// For a queue whose pointers could not be read then, only that is reported.
#[test]
fn of_a_destroyed_queue_are_exact_without_any_sample() -> Result<()> {
    let mut daemon = daemon(&["--sample.interval=1h", "--metrics.per-queue"])?;
    let mut whole = false;
    for _ in 0..TRIES {
        whole = destroyed(&daemon)?;
        if whole {
            break;
        }
    }
    ensure!(whole, "of none of {TRIES} processes both queues were read at their end");

    let mut killed = Steered::having(&["create aql"])?;
    let pid = killed.pid();
    act(&mut killed, "submit 0 9")?;
    has_queues(&daemon, pid, 1)?;
    killed.kill()?;
    let metrics = has_queues(&daemon, pid, 0)?;
    assert_eq!(reported(&metrics, PACKETS, pid).unwrap_or_default(), (0.0, 0.0), "nothing was read");
    assert_eq!(incomplete(&metrics, pid), 1.0);
    daemon.stop()
}

/// Whether the last readings of both queues of a process succeeded.
fn destroyed(daemon: &Daemon) -> Result<bool> {
    let mut workload = Steered::having(&["create aql", "create sdma gpu=1"])?;
    let pid = workload.pid();
    let packets = act(&mut workload, "busy 0 1000 100")?;
    act(&mut workload, "submit 1 256")?;
    let bytes = act(&mut workload, "retire 1 128")?;
    let metrics = has_queues(daemon, pid, 2)?;
    let before = [PACKETS, RING_BYTES].map(|unit| reported(&metrics, unit, pid).unwrap_or_default());
    assert_eq!(before, [(0.0, 0.0); 2], "it has sampled");
    workload.must("destroy 0")?;
    workload.must("destroy 1")?;
    let metrics = has_queues(daemon, pid, 0)?;
    let (incomplete, missed) = (incomplete(&metrics, pid), metrics.sum("kfd_trace_probe_missed_total", &[]));
    let mut unread = 0;
    for (unit, all) in [(PACKETS, packets), (RING_BYTES, bytes)] {
        let reported = reported(&metrics, unit, pid);
        if reported != Some(all) {
            unread += 1;
            // A page that was not present, or a program that the kernel did not run.
            ensure!(
                reported.unwrap_or_default() == (0.0, 0.0),
                "{reported:?} of {all:?} {unit}, {missed:?} missed"
            );
        }
    }
    ensure!(incomplete == f64::from(unread), "{incomplete} incomplete, {unread} not read, {missed:?} missed");
    workload.finish()?;
    Ok(unread == 0)
}

#[test]
fn are_not_reported_where_sampling_is_off() -> Result<()> {
    let mut daemon = daemon(&["--sample.interval=0", "--metrics.per-queue"])?;
    let mut workload =
        Steered::having(&["create aql", "create sdma gpu=1", "busy 0 100", "submit 1 64", "create aql"])?;
    workload.must("destroy 0")?;
    let metrics = has_queues(&daemon, workload.pid(), 2)?;
    let reported: Vec<&String> = metrics
        .samples
        .keys()
        .map(|(name, _)| name)
        .filter(|name| ["_packets_", "_ring_bytes_", "_stalled", "_idle_"].iter().any(|of| name.contains(of)))
        .collect();
    assert_eq!(reported, Vec::<&String>::new());
    assert_eq!(metrics.sum("kfd_trace_sample_interval_seconds", &[]), Some(0.0));
    assert_eq!(metrics.sum("kfd_trace_samples_total", &[]).unwrap_or(0.0), 0.0);
    assert_eq!(or_none(&metrics, "kfd_queue_info", workload.pid()), 2.0, "queues are reported all the same");
    workload.finish()?;
    daemon.stop()
}
