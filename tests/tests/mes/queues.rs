//! Requests to the firmware scheduler, against those that kfdsim's got.

use anyhow::{Context as _, Result, ensure};
use kfd_trace_tests::harness::events::{all, of, so_far};
use kfd_trace_tests::harness::mes::{Firmware, MesCalls};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::{kfdsim, kfdsim_at};
use kfd_trace_tests::harness::{Daemon, Metrics, Steered, Stream, VmKernel, until};
use kfd_trace_tests::kfd::topology::gpu_id as gpu;
use serde_json::{Value, json};
use std::time::Duration;

const DURATION: &str = "kfd_gpu_mes_request_duration_seconds";
const FAILED: &str = "kfd_gpu_mes_requests_failed_total";

/// Operation, reason, queue and GPU of each change of a process, in order.
fn changes(lines: &[Value], pid: u32) -> Vec<Value> {
    let own = of(lines, "mes_queue", pid).into_iter();
    own.map(|line| json!([line["op"], line["reason"], line["queue_id"], line["gpu_id"]])).collect()
}

/// Those that succeeded, of this operation.
fn count(lines: &[Value], op: &str) -> u64 {
    let done = all(lines, "mes_queue").into_iter().filter(|line| line["op"] == op && line["errno"].is_null());
    done.count() as u64
}

/// Sum of the durations.
fn took(lines: &[Value]) -> Duration {
    Duration::from_nanos(all(lines, "mes_queue").iter().filter_map(|line| line["latency_ns"].as_u64()).sum())
}

#[test]
fn each_change_has_its_reason_its_process_and_its_queue() -> Result<()> {
    let stream = Stream::tracing(&["--runlists"])?;
    let before = MesCalls::so_far()?;
    let (first, second) = (gpu(0)?, gpu(1)?);
    let mut one = Steered::having(&["create aql", "create sdma gpu=1", "create aql percent=0"])?;
    let mut other = Steered::having(&["create aql"])?;
    let (a, b) = (one.pid(), other.pid());
    one.must("update 0 50")?;
    one.must("update 2 50")?;
    one.must("update 2 0")?;
    kfdsim("quiesce", a)?;
    kfdsim("resume", a)?;
    one.must("destroy 1")?;
    one.kill()?;
    let lines = so_far(&stream, &mut other)?;

    assert_eq!(
        changes(&lines, a),
        [
            json!(["add", "create", 0, first]),
            json!(["add", "create", 1, second]),
            json!(["remove", "update", 0, first]),
            json!(["add", "update", 0, first]),
            json!(["add", "update", 2, first]),
            json!(["remove", "update", 2, first]),
            json!(["remove", "evict", 0, first]),
            json!(["remove", "evict", 1, second]),
            json!(["add", "restore", 0, first]),
            json!(["add", "restore", 1, second]),
            json!(["remove", "destroy", 1, second]),
            json!(["remove", "process_end", 0, first]),
        ]
    );
    assert_eq!(changes(&lines, b), [json!(["add", "create", 0, first])]);
    let asked = MesCalls::so_far()?.since(&before);
    assert_eq!((count(&lines, "add"), count(&lines, "remove")), (asked.added, asked.removed));
    assert!(took(&lines) >= asked.took, "{:?} {asked:?}", took(&lines));
    assert_eq!((all(&lines, "runlist"), all(&lines, "preempt")), (vec![], vec![]));
    other.kill()
}

#[test]
fn the_daemon_counts_them_by_gpu_and_operation() -> Result<()> {
    let mut daemon = Daemon::quick(&["--runlists"])?;
    for (index, op) in [(0, "add"), (1, "remove")] {
        let labels = [("gpu_id", &*gpu(index)?.to_string()), ("operation", op), ("errno", "ETIMEDOUT")];
        assert_eq!(daemon.scrape()?.sum(FAILED, &labels), Some(0.0), "a first failure is an increase");
    }
    let mut one = Steered::having(&["create aql", "create aql gpu=1"])?;
    let before = MesCalls::so_far()?;
    let slow = Firmware::slow(300)?;
    one.must("update 0 50")?;
    drop(slow);
    let asked = MesCalls::so_far()?.since(&before);
    assert_eq!((asked.added, asked.removed), (1, 1), "{asked:?}");
    let (first, second) = (gpu(0)?.to_string(), gpu(1)?.to_string());
    let of = |metrics: &Metrics, what: &str, gpu_id: &str, op: &str| {
        metrics.sum(&format!("{DURATION}_{what}"), &[("gpu_id", gpu_id), ("operation", op)])
    };
    // The second one follows the removal.
    daemon
        .scrape_until("both", |metrics| (of(metrics, "count", &first, "add") == Some(2.0)).then_some(()))?;
    let metrics = daemon.scrape()?;
    let counts = [
        of(&metrics, "count", &first, "add"),
        of(&metrics, "count", &first, "remove"),
        of(&metrics, "count", &second, "add"),
        of(&metrics, "count", &second, "remove"),
    ];
    assert_eq!(counts, [Some(2.0), Some(1.0), Some(1.0), None]);
    let sum = |op| of(&metrics, "sum", &first, op).unwrap_or(0.0);
    assert!(sum("add") >= 0.3 && sum("remove") >= 0.3, "{metrics:?}");
    assert!(sum("add") + sum("remove") >= asked.took.as_secs_f64(), "{asked:?} {metrics:?}");
    assert!(sum("add") + sum("remove") < asked.took.as_secs_f64() + 1.0, "{asked:?} {metrics:?}");
    one.kill()?;
    daemon.stop()
}

#[test]
fn a_firmware_that_does_not_answer_is_named() -> Result<()> {
    let mut daemon = Daemon::quick(&["--runlists"])?;
    let mut stream =
        Stream::tracing(&["--event", "mes_queue", "--event", "hws_hang", "--event", "gpu_reset_end"])?;
    let before = MesCalls::so_far()?;
    let mut one = Steered::having(&["create aql gpu=1"])?;
    let failing = Firmware::failing(110)?;
    let reply = one.act("create aql gpu=1")?;
    ensure!(reply["errno"] == "ETIMEDOUT", "{reply}");
    stream.wait_line("the reset that follows", SOON, |line| line["event"] == "gpu_reset_end")?;
    drop(failing);
    let asked = MesCalls::so_far()?.since(&before);
    let lines = stream.lines();
    let failed: Vec<Value> =
        all(&lines, "mes_queue").into_iter().filter(|line| !line["errno"].is_null()).collect();
    assert_eq!(u64::try_from(failed.len()), Ok(asked.failed), "{failed:?}");
    let line = failed.first().context("a failure")?;
    assert_eq!(
        json!([line["errno"], line["op"], line["reason"], line["pid"], line["gpu_id"]]),
        json!(["ETIMEDOUT", "add", "create", one.pid(), gpu(1)?])
    );
    assert_eq!(all(&lines, "hws_hang").len(), 1, "{lines:?}");
    daemon.scrape_until("the failure", |metrics| {
        let labels = [("errno", "ETIMEDOUT"), ("operation", "add")];
        (metrics.sum(FAILED, &labels) == Some(1.0)).then_some(())
    })?;
    one.kill()?;
    let next = Steered::having(&["create aql gpu=1"])?;
    next.kill()?;
    stream.finish()?;
    daemon.stop()
}

#[test]
fn a_queue_that_is_not_removed_is_named() -> Result<()> {
    let stream = Stream::tracing(&["--event", "mes_queue", "--event", "hws_hang", "--event", "ioctl"])?;
    let mut one = Steered::having(&["create aql gpu=1"])?;
    let before = MesCalls::so_far()?;
    let failing = Firmware::failing(110)?;
    one.act("update 0 50")?;
    drop(failing);
    let asked = MesCalls::so_far()?.since(&before);
    let lines = so_far(&stream, &mut one)?;
    let failed = all(&lines, "mes_queue").into_iter().filter(|line| !line["errno"].is_null());
    let failed: Vec<Value> = failed.collect();
    assert_eq!(u64::try_from(failed.len()), Ok(asked.failed), "{failed:?}");
    let line = failed.first().context("a failure")?;
    assert_eq!(
        json!([line["errno"], line["op"], line["reason"], line["pid"], line["queue_id"]]),
        json!(["ETIMEDOUT", "remove", "update", one.pid(), 0])
    );
    // 7.2's driver suspends and resumes all queues instead of a reset, and goes on: to the next failure.
    let kernel = VmKernel::from_env()?;
    let goes_on = kernel.is_from("7.2") && !kernel.is_from("7.3");
    let ops: &[&str] = if goes_on { &["remove", "add"] } else { &["remove"] };
    assert_eq!(failed.iter().map(|line| line["op"].clone()).collect::<Vec<_>>(), ops, "{lines:?}");
    assert_eq!(all(&lines, "hws_hang").len(), 1, "{lines:?}");
    one.kill()
}

#[test]
fn each_request_around_a_reset_is_an_event_and_nothing_else_is() -> Result<()> {
    let stream = Stream::tracing(&["--event", "mes_queue", "--event", "evict", "--event", "ioctl"])?;
    let before = MesCalls::so_far()?;
    let mut other = Steered::having(&["create aql gpu=1"])?;
    let one = Steered::having(&["create aql", "create aql gpu=1"])?;
    kfdsim_at("reset", 0, 1)?;
    one.kill()?;
    let lines = so_far(&stream, &mut other)?;
    let asked = MesCalls::so_far()?.since(&before);
    let evictions = all(&lines, "evict").len();
    ensure!(evictions > 1, "the reset evicted nothing: {lines:?}");
    assert_eq!((count(&lines, "add"), count(&lines, "remove")), (asked.added, asked.removed), "{lines:?}");
    assert_eq!(asked.failed, 0);
    other.kill()
}

#[test]
fn a_selected_process_is_shown_its_own_queues_alone() -> Result<()> {
    let mut one = Steered::having(&["create aql"])?;
    let pid = one.pid();
    let mut stream = Stream::tracing(&["--event", "mes_queue", "--pid", &pid.to_string()])?;
    let other = Steered::having(&["create aql"])?;
    one.must("update 0 50")?;
    other.kill()?;
    let shown = until("its two", SOON, || {
        let shown = all(&stream.lines(), "mes_queue");
        Ok((shown.len() >= 2).then_some(shown))
    })?;
    assert!(shown.iter().all(|line| line["pid"] == pid), "{shown:?}");
    one.kill()?;
    // it ends with the process
    stream.wait_success(SOON)
}

#[test]
fn a_stream_that_is_not_asked_for_them_has_none() -> Result<()> {
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&["create aql", "update 0 50"])?;
    let lines = so_far(&stream, &mut workload)?;
    assert_eq!(all(&lines, "mes_queue"), Vec::<Value>::new());
    workload.kill()?;
    stream.end()
}
