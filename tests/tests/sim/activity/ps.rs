//! `kfd-trace ps`: what each queue does at the moment.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::Steered;
use kfd_trace_tests::harness::tracer::run_json;
use serde_json::{Value, json};

/// Activity of a listed queue: `[unit, submitted, retired, backlog, reason if unknown]`
fn activity(queues: &[Value], workload: &Steered, number: u64) -> Result<Value> {
    let (pid, queue_id) = (workload.pid(), workload.queue_id(number)?);
    let mut own = queues.iter().filter(|queue| queue["pid"] == pid && queue["queue_id"] == queue_id);
    let reported = &own.next().with_context(|| format!("no queue {queue_id} of process {pid}"))?["activity"];
    Ok(json!(["unit", "submitted", "retired", "backlog", "not_measured"].map(|name| &reported[name])))
}

#[test]
fn shows_what_each_queue_does() -> Result<()> {
    let mut good =
        Steered::having(&["create aql", "create sdma gpu=1", "submit 0 9", "retire 0 4", "submit 1 4096"])?;
    let mut bad = Steered::having(&["create aql", "create aql unreadable", "submit 0 7", "scribble 0"])?;
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    let queues = ps["queues"].as_array().context("queues")?;
    assert_eq!(activity(queues, &good, 0)?, json!(["packets", 9, 4, 5, null]));
    assert_eq!(activity(queues, &good, 1)?, json!(["ring_bytes", 4096, 0, 4096, null]));
    for (number, why) in [(0, "foreign"), (1, "unreadable")] {
        let reported = activity(queues, &bad, number)?;
        assert_eq!((&reported[4], &reported[1]), (&json!(why), &json!(null)), "queue {number}");
    }
    good.finish()?;
    bad.finish().map(drop)
}
