//! An eviction that no restore follows, as where the driver loses a buffer that a queue needs: metrics and both
//! forms of `doctor` report it, and report nothing once it is over.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::evictions::trigger;
use kfd_trace_tests::harness::tracer::{Daemon, run};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::{kfdsim, kfdsim_at};
use kfd_trace_tests::harness::{Metrics, Steered, until};
use nix::sys::signal::Signal;
use serde_json::Value;

/// `KFD_QUEUE_EVICTION_TRIGGER_SVM`.
const SVM: u32 = 0;

/// Exit code of `doctor`, docs/doctor.md.
const WRONG: i32 = 5;

/// The finding that `doctor` has of a process, and its exit code.
fn finding(pid: &str, place: &[&str]) -> Result<(Option<i32>, Option<String>)> {
    let output = run(&[&["doctor", "--json", "--pid", pid], place].concat())?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)))?;
    let findings = report["processes"][0]["findings"].as_array().context("findings")?;
    let found = findings.iter().find(|finding| finding["kind"] == "not_restored");
    Ok((output.status.code(), found.map(|finding| finding["text"].as_str().unwrap_or_default().to_owned())))
}

#[test]
fn an_eviction_without_a_restore_is_reported_while_it_lasts() -> Result<()> {
    let daemon = Daemon::shared()?;
    let mut workload = Steered::having(&["create aql", "submit 0 5", "retire 0 2"])?;
    let (pid, url) = (workload.pid().to_string(), format!("http://{}", daemon.address));
    let by = trigger("svm");
    let by = by.as_str().unwrap_or("unknown");
    let gpu_id = workload.queues()[0]["gpu_id"].to_string();
    let age = |metrics: &Metrics| {
        let labels = [("pid", pid.as_str()), ("gpu_id", gpu_id.as_str()), ("trigger", by)];
        metrics.sum("kfd_process_eviction_seconds", &labels)
    };
    let sum = |metrics: &Metrics| metrics.sum("kfd_evicted_seconds_total", &[("gpu_id", &gpu_id)]);
    assert_eq!(age(&daemon.scrape()?), None);

    kfdsim_at("quiesce", workload.pid(), SVM)?;
    let first = daemon.scrape_until("the eviction", |metrics| age(metrics).zip(sum(metrics)))?;
    daemon.scrape_until("both to grow", |metrics| {
        let (age, sum) = age(metrics).zip(sum(metrics))?;
        (age > first.0 && sum - first.1 >= age - first.0 - 1e-6).then_some(())
    })?;
    for (place, reason) in [(&[][..], ""), (&["--url", &url][..], by)] {
        // The daemon measures a queue from its second sample on.
        let text = until("doctor to find it", SOON, || match finding(&pid, place)? {
            (Some(WRONG), text) => Ok(text),
            _ => Ok(None),
        })?;
        ensure!(text.contains("backlog 3 packets") && text.contains(&gpu_id), "{text}");
        ensure!(by == "unknown" || text.contains(reason), "{text}");
    }

    kfdsim("resume", workload.pid())?;
    daemon.scrape_until("its end", |metrics| age(metrics).is_none().then_some(()))?;
    for place in [&[][..], &["--url", &url][..]] {
        // The daemon shares a reading for a second.
        until("doctor to find nothing", SOON, || {
            let (code, text) = finding(&pid, place)?;
            Ok((code != Some(WRONG) && text.is_none()).then_some(()))
        })?;
    }

    // Another one ends with its process, and what was counted stays.
    kfdsim_at("quiesce", workload.pid(), SVM)?;
    let last = daemon.scrape_until("the next one", |metrics| age(metrics).and(sum(metrics)))?;
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    let after = daemon.scrape_until("its end", |metrics| sum(metrics).filter(|_| age(metrics).is_none()))?;
    ensure!(after >= last, "{after} after {last}");
    daemon.end()
}
