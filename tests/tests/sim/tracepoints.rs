//! `--tracepoints`: the driver's own tracepoints are counted where requested, and cost nothing otherwise.
//!
//! kfdsim submits no job and its interrupts are delivered to KFD only, so that none of them fires here: their
//! counters are at 0.

use anyhow::Result;
use kfd_trace_tests::harness::kernel::bpf_programs;
use kfd_trace_tests::harness::tracer::FEW;
use kfd_trace_tests::harness::{Daemon, Metrics, Workload};
use std::collections::BTreeSet;
use std::path::Path;

/// Tracepoints of amdgpu and of the DRM scheduler, which each kernel here has.
const THERE: [&str; 5] = ["tp_cs", "tp_interrupt", "tp_job_queue", "tp_job_run", "tp_job_done"];

/// Tracepoints of ROCm's own driver.
const ELSEWHERE: [&str; 4] = ["tp_evict_start", "tp_evict_end", "tp_restore_start", "tp_restore_end"];

/// Those of both that the loaded driver has, and the others.
fn by_driver() -> (Vec<&'static str>, Vec<&'static str>) {
    let is_rocm = Path::new("/sys/kernel/tracing/events/amdkfd/kfd_evict_process_worker_start").exists();
    let (more, absent) = if is_rocm { (&ELSEWHERE[..], &[][..]) } else { (&[][..], &ELSEWHERE[..]) };
    ([&THERE, more].concat(), absent.to_vec())
}

/// Names of the programs that are loaded more often than in `before`.
fn loaded(before: &[String]) -> Result<BTreeSet<String>> {
    let mut now = programs()?;
    for name in before {
        if let Some(at) = now.iter().position(|other| other == name) {
            now.swap_remove(at);
        }
    }
    Ok(now.into_iter().collect())
}

fn programs() -> Result<Vec<String>> {
    Ok(bpf_programs()?.into_values().filter(|name| name.starts_with("tp_")).collect())
}

/// Attached (1 or 0) and hits of one of them.
fn reported(metrics: &Metrics, probe: &str) -> (Option<f64>, Option<f64>) {
    let attached = [("probe", probe), ("kind", "tracepoint")];
    (
        metrics.sum("kfd_trace_probe_attached", &attached),
        metrics.sum("kfd_trace_probe_hits_total", &[("probe", probe)]),
    )
}

#[test]
fn they_are_counted_where_they_are_asked_for() -> Result<()> {
    let (there, elsewhere) = by_driver();
    // The kernel cuts names of programs.
    let names = there.iter().map(|probe| probe.chars().take(15).collect::<String>()).collect();
    let plain = Daemon::shared()?;
    let before = programs()?;
    let mut daemon = Daemon::quick(&[&FEW[..], &["--tracepoints"]].concat())?;
    assert_eq!(loaded(&before)?, names);
    Workload::run(&["script", "create aql", "destroy 0"])?;
    let made = |metrics: &Metrics| metrics.sum("kfd_queues_created_total", &[]) == Some(1.0);
    // the others work as before alongside them
    let with = daemon.scrape_until("the queue", |metrics| made(metrics).then(|| metrics.clone()))?;
    let without = plain.scrape()?;
    for probe in &there {
        assert_eq!(reported(&with, probe), (Some(1.0), Some(0.0)), "{probe}");
    }
    for probe in &elsewhere {
        assert_eq!(reported(&with, probe).0, Some(0.0), "{probe}: not in this driver");
    }
    for probe in THERE.iter().chain(&ELSEWHERE) {
        assert_eq!(reported(&without, probe).0, None, "{probe}: not requested");
    }
    daemon.stop()?;
    assert_eq!(loaded(&before)?, BTreeSet::new());
    plain.end()
}
