//! A thousand queues: their counts are the sum of all ledgers, by process and by GPU.

use super::{Counts, PACKETS, daemon, has_queues, incomplete, ledger, reported, shows};
use anyhow::{Context, Result};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Metrics, Workload, nodes};

const PROCESSES: usize = 8;
const QUEUES: usize = 125;

/// A process that creates its queues on both GPUs in turn, makes them work, and waits. Every other one then
/// submits more and destroys them; the others leave them to the driver.
fn start(number: usize) -> Result<Workload> {
    let mut words = vec!["script".to_owned()];
    words.extend((0..QUEUES).map(|i| format!("create aql gpu={}", i % 2)));
    words.extend([
        format!("submit all {}", 10 + number),
        format!("retire all {}", 3 + number),
        "wait".to_owned(),
    ]);
    if destroys(number) {
        words.push("submit all 1".to_owned());
        words.extend((0..QUEUES).map(|id| format!("destroy {id}")));
    }
    Workload::spawn(&Vec::from_iter(words.iter().map(String::as_str)))
}

fn destroys(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// The totals after the last operation with this name.
fn last(workload: &Workload, op: &str) -> Result<Counts> {
    ledger(workload.operations(op).last().with_context(|| format!("no {op}"))?)
}

fn sum(metrics: &Metrics, labels: &[(&str, &str)]) -> Option<Counts> {
    let of = |what| metrics.sum(&format!("kfd_process_packets_{what}_total"), labels);
    Some((of("submitted")?, of("retired")?))
}

fn total(counts: &[Counts]) -> Counts {
    counts.iter().fold((0.0, 0.0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
}

#[test]
fn queues_add_up() -> Result<()> {
    let mut daemon = daemon(&["--sample.interval=200ms"])?;
    let mut workloads = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    for workload in &workloads {
        workload.wait_line("its queues to work", SOON, |line| line["ready"] == true)?;
        assert_eq!(workload.queues().len(), QUEUES);
    }
    let counts = workloads.iter().map(|workload| last(workload, "retire")).collect::<Result<Vec<_>>>()?;
    let mut metrics = Metrics::default();
    for (workload, counts) in workloads.iter().zip(&counts) {
        metrics = shows(&daemon, PACKETS, workload.pid(), *counts)?;
    }
    assert_eq!(sum(&metrics, &[]), Some(total(&counts)));
    // each process has one queue more on the first GPU
    let (whole, queues) = (total(&counts), f64::from(u32::try_from(QUEUES)?));
    let gpus = nodes(std::path::Path::new("/sys"))?;
    for (gpu, share) in gpus.iter().zip([63.0, 62.0]) {
        let of_gpu = sum(&metrics, &[("gpu_id", &gpu.gpu_id.to_string())]);
        assert_eq!(of_gpu, Some((whole.0 / queues * share, whole.1 / queues * share)), "{gpu:?}");
    }

    for (number, workload) in workloads.iter_mut().enumerate() {
        workload.finish()?;
        let metrics = has_queues(&daemon, workload.pid(), 0)?;
        let (op, missing) = if destroys(number) { ("submit", 0.0) } else { ("retire", queues) };
        assert_eq!(
            reported(&metrics, PACKETS, workload.pid()),
            Some(last(workload, op)?),
            "process {number}"
        );
        assert_eq!(incomplete(&metrics, workload.pid()), missing, "process {number}");
    }
    daemon.stop()
}
