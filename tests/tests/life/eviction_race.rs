//! Evictions and restores of one process at the same time, as from a userptr's invalidation concurrent with
//! TTM's worker: the driver takes its lock inside the probed functions, so some events are not reported
//! correctly; the state is correct all the same.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::kfdsim;
use kfd_trace_tests::harness::{Daemon, Steered, shared, until};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const THREADS: usize = 3;

/// How often calls were found to have overlapped.
fn raced(daemon: &Daemon) -> Result<f64> {
    let metrics = daemon.scrape()?;
    Ok(metrics.sum("kfd_trace_trouble_total", &[("reason", "eviction_raced")]).unwrap_or(0.0))
}

/// Evicts and restores the process in pairs, several at a time, until the tracer has met a race.
fn race(daemon: &Daemon, pid: u32) -> Result<()> {
    let before = raced(daemon)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let pairs = || -> Result<()> {
            while !over.load(Ordering::Relaxed) {
                kfdsim("quiesce", pid)?;
                kfdsim("resume", pid)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(pairs)).collect();
        let met = until("a race", SOON, || Ok((raced(daemon)? > before).then_some(())));
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a thread of this test")?;
        }
        met
    })
}

/// Waits until every queue of the process is evicted, or until none is.
fn settled(daemon: &Daemon, pid: u32, evicted: bool) -> Result<()> {
    until(&format!("evicted: {evicted}"), SOON, || {
        let answer = daemon.json("/api/v1/queues")?;
        let rows = answer["queues"].as_array().context("queues")?;
        let own: Vec<&Value> = rows.iter().filter(|row| row["pid"] == pid).collect();
        let right = |row: &&Value| row["evicted"] == evicted && row["active"] == !evicted;
        let processes = daemon.json("/api/v1/processes")?;
        let processes = processes["processes"].as_array().context("processes")?;
        let process = processes.iter().find(|row| row["pid"] == pid).context("its process")?;
        let gpus = process["evictions"].as_array().context("evictions")?;
        let same = gpus.len() == 2 && gpus.iter().all(|gpu| gpu["evicted"] == evicted);
        Ok((own.len() == 2 && own.iter().all(right) && same).then_some(()))
    })
}

#[test]
fn what_races_is_counted_and_mended() -> Result<()> {
    // their summary would report these races
    shared::end()?;
    let mut daemon = Daemon::quick(&FEW)?;
    let workload = Steered::having(&["create aql", "create aql gpu=1"])?;
    let pid = workload.pid();
    race(&daemon, pid)?;
    // soon, not only once a minute
    daemon.compared("kernel", 2)?;
    settled(&daemon, pid, false)?;
    // under an eviction that stays: the count does not return to 0
    kfdsim("quiesce", pid)?;
    race(&daemon, pid)?;
    settled(&daemon, pid, true)?;
    kfdsim("resume", pid)?;
    settled(&daemon, pid, false)?;
    let own = [("probe", "evict_gpu_return"), ("reason", "eviction_raced")];
    let of_probe = daemon.scrape()?.sum("kfd_trace_probe_trouble_total", &own);
    assert_eq!(of_probe, Some(raced(&daemon)?), "its return finds it");
    daemon.stop()
}
