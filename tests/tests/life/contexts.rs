//! Further contexts of a PID (7.2): each is a KFD process of its own with the PID of the first, and its queue
//! ids start anew.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::tracer::{FEW, run_json};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, Stream, counts, driver_has, sysfs, until};
use serde_json::{Value, json};
use std::path::Path;

/// Whether this kernel's driver has CREATE_PROCESS.
fn has_contexts() -> bool {
    driver_has("kfd_ioctl_create_process")
}

/// Two queues with id 0: one of the first context and one of a second context, which is then in use.
fn twofold() -> Result<Steered> {
    Steered::having(&["create aql", "context", "create sdma gpu=1"])
}

#[test]
fn each_context_has_a_queue_of_its_own() -> Result<()> {
    if !has_contexts() {
        let mut workload = Steered::start()?;
        let reply = workload.act("context")?;
        assert_eq!(reply["errno"], counts::no_command(), "no such command before 7.2: {reply}");
        return Ok(());
    }
    let stream = Stream::shared()?;
    let mut workload = twofold()?;
    let pid = workload.pid();
    let lines = events::so_far(&stream, &mut workload)?;

    let seen = of(&lines, "process_seen", pid);
    let who: Vec<Value> =
        seen.iter().map(|line| json!([line["standing"], line["context_id"].is_null()])).collect();
    assert_eq!(who, [json!([false, true]), json!([false, false])], "both were seen to be created");
    assert_ne!(seen[0]["kfd_process"], seen[1]["kfd_process"]);
    let births = of(&lines, "queue_create", pid);
    let queues: Vec<Value> = births
        .iter()
        .map(|line| json!([line["queue_id"], line["queue_type"], line["kfd_process"]]))
        .collect();
    let expected =
        [json!([0, "compute_aql", seen[0]["kfd_process"]]), json!([0, "sdma", seen[1]["kfd_process"]])];
    assert_eq!(queues, expected);

    // The first one lives on when the second is closed.
    workload.act("close")?;
    let ends = events::wait(&stream, "queue_destroy", pid, 1)?;
    assert_eq!(
        json!([ends[0]["queue_id"], ends[0]["queue_type"], ends[0]["cause"]]),
        json!([0, "sdma", "close"])
    );
    assert_eq!(ends[0]["kfd_process"], seen[1]["kfd_process"]);
    events::wait(&stream, "process_release", pid, 1)?;
    drop(workload);
    stream.end()
}

#[test]
fn standing_contexts_are_distinguished_and_agree_with_sysfs() -> Result<()> {
    if !has_contexts() {
        return Ok(());
    }
    let mut workload = twofold()?;
    let pid = workload.pid();
    let listed = sysfs::all_queues(Path::new("/sys"))?;
    let mine: Vec<_> = listed.keys().filter(|(owner, ..)| *owner == pid).collect();
    let context = mine.iter().find_map(|(_, context, _)| *context).context("a context in sysfs")?;
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    let queues = ps["queues"].as_array().context("queues")?;
    let shown: Vec<Value> = queues
        .iter()
        .filter(|queue| queue["pid"] == pid)
        .map(|queue| json!([queue["context_id"], queue["queue_id"], queue["queue_type"], queue["sources"]]))
        .collect();
    let sources = json!(["kernel", "sysfs"]);
    assert!(shown.contains(&json!([null, 0, "compute_aql", sources])), "{shown:?}");
    assert!(shown.contains(&json!([context, 0, "sdma", sources])), "{shown:?}");
    assert_eq!(shown.len(), 2);

    let mut daemon = Daemon::quick(&FEW)?;
    let queues = |wanted: usize| {
        until("the queues of both contexts", SOON, || {
            let page = daemon.json("/api/v1/queues")?;
            let queues = page["queues"].as_array().context("queues")?;
            let mine: Vec<Value> = queues.iter().filter(|queue| queue["pid"] == pid).cloned().collect();
            Ok((mine.len() == wanted).then_some(mine))
        })
    };
    let standing = queues(2)?;
    assert!(standing.iter().all(|queue| queue["origin"] == "standing"));
    for expected in [json!([null, "compute_aql"]), json!([context, "sdma"])] {
        let reported = |queue: &Value| json!([queue["context_id"], queue["queue_type"]]) == expected;
        assert!(standing.iter().any(reported), "{expected}: {standing:?}");
    }
    workload.act("close")?;
    let left = queues(1)?;
    assert_eq!(json!([left[0]["context_id"], left[0]["queue_type"]]), json!([null, "compute_aql"]));
    // A difference counts when a second scan finds it again, and the first of these scans may have begun
    // before the close had settled: none of them was a difference.
    daemon.compared("sysfs", 3)?;
    assert_eq!(daemon.scrape()?.sum("kfd_trace_differences_total", &[]), Some(0.0));
    daemon.stop()
}
