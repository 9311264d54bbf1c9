//! A workload that lsof and fuser cannot see, because its device node has another inode; and the tracer,
//! which sees it by its queues.

use super::usual::Eyes;
use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::run_json;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Stream, Workload};
use serde_json::{Value, json};

/// The facts of a queue, under the names used by `kfd-trace ps` and the stream.
fn as_the_workload_says(queue: &Value) -> Value {
    json!({
        "gpu_id": queue["gpu_id"],
        "queue_id": queue["queue_id"],
        "queue_type": queue["queue_type"],
        "ring_address": queue["ring"],
        "ring_size": queue["ring_size"],
        "write_pointer_address": queue["wptr"],
        "read_pointer_address": queue["rptr"],
    })
}

/// The same fields of a tracer's line.
fn as_the_tracer_says(line: &Value) -> Value {
    let names = [
        "gpu_id",
        "queue_id",
        "queue_type",
        "ring_address",
        "ring_size",
        "write_pointer_address",
        "read_pointer_address",
    ];
    names
        .iter()
        .map(|name| ((*name).to_owned(), line[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn lsof_and_fuser_find_a_plain_workload() -> Result<()> {
    let workload = Workload::ready(&["hold"])?;
    let pid = workload.pid().to_string();
    for tool in ["lsof", "fuser"] {
        let found = Eyes::Root.found_by(tool)?;
        assert!(found.split_whitespace().any(|word| word == pid), "{tool}: {found:?}, the workload is {pid}");
    }
    Ok(())
}

#[test]
fn a_hidden_workload_is_seen_by_the_tracer_only() -> Result<()> {
    let stream = Stream::shared()?;
    let daemon = Daemon::shared()?;
    let mut workload = Workload::ready(&["hold", "--hidden", "--aql=1", "--sdma=1"])?;
    let pid = workload.host_pid();
    assert_ne!(pid, workload.pid(), "the hidden one is a child");

    for tool in ["lsof", "fuser"] {
        assert_eq!(Eyes::Root.found_by(tool)?, "", "{tool}");
    }

    let queues = workload.queues();
    let types: Vec<_> = queues.iter().map(|queue| queue["queue_type"].clone()).collect();
    assert_eq!(types, ["compute_aql", "sdma"]);
    let expected: Vec<Value> = queues.iter().map(as_the_workload_says).collect();

    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    let rows: Vec<&Value> = ps["queues"].as_array().context("queues")?.iter().collect();
    assert!(rows.iter().all(|row| row["pid"] == pid && row["ns_pid"] == 1), "{rows:?}");
    assert!(rows.iter().all(|row| row["sources"] == json!(["kernel", "sysfs"])), "{rows:?}");
    assert_eq!(rows.iter().map(|row| as_the_tracer_says(row)).collect::<Vec<_>>(), expected);

    let births = stream.wait_lines("both births", SOON, |lines| {
        let births: Vec<_> = lines.iter().filter(|line| line["event"] == "queue_create").cloned().collect();
        (births.len() >= 2).then_some(births)
    })?;
    assert!(births.iter().all(|birth| birth["pid"] == pid && birth["origin"] == "ioctl"), "{births:?}");
    assert_eq!(births.iter().map(as_the_tracer_says).collect::<Vec<_>>(), expected);
    let seen = stream.events("process_seen");
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(
        (&seen[0]["pid"], &seen[0]["ns_pid"], &seen[0]["standing"]),
        (&json!(pid), &json!(1), &json!(false))
    );

    let metrics = daemon.scrape_until("both queues in the metrics", |metrics| {
        (metrics.sum("kfd_queues", &[]) == Some(2.0)).then(|| metrics.clone())
    })?;
    for queue in &expected {
        let gpu = queue["gpu_id"].to_string();
        let labels =
            [("gpu_id", gpu.as_str()), ("queue_type", queue["queue_type"].as_str().context("a type")?)];
        for name in ["kfd_queues", "kfd_queues_created_total", "kfd_process_queues"] {
            assert_eq!(metrics.sum(name, &labels), Some(1.0), "{name} {labels:?}");
        }
    }
    let labels = [("pid", &*pid.to_string()), ("ns_pid", "1")];
    assert_eq!(metrics.sum("kfd_process_info", &labels), Some(1.0));

    workload.finish()?;
    daemon.scrape_until("both queues to go", |metrics| {
        (metrics.sum("kfd_queues", &[]) == Some(0.0)).then_some(())
    })?;
    stream.wait_lines("both ends", SOON, |lines| {
        (lines.iter().filter(|line| line["event"] == "queue_destroy").count() == 2).then_some(())
    })?;
    let ends = stream.events("queue_destroy");
    assert!(ends.iter().all(|end| end["pid"] == pid && end["cause"] == "ioctl"), "{ends:?}");
    stream.end()?;
    daemon.end()
}
