//! A tracer that starts late: it lists existing queues with all their facts, and follows them to their end.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::tracer::{FEW, run_json};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Stream, Workload};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// By PID and queue id: everything known of the queue, under the tracer's names.
type Listed = BTreeMap<(u64, u64), Value>;

const FACTS: [&str; 6] =
    ["gpu_id", "queue_type", "ring_address", "ring_size", "write_pointer_address", "read_pointer_address"];

fn key(pid: &Value, queue: &Value) -> (u64, u64) {
    (pid.as_u64().expect("a PID"), queue["queue_id"].as_u64().expect("a queue id"))
}

/// Lines of the tracer, by queue.
fn as_the_tracer_says<'a>(lines: impl Iterator<Item = &'a Value>) -> Listed {
    let mut listed = Listed::new();
    for line in lines {
        let facts: Vec<&Value> = FACTS.iter().map(|name| &line[*name]).collect();
        let before = listed.insert(key(&line["pid"], line), json!(facts));
        assert_eq!(before, None, "listed twice: {line}");
    }
    listed
}

fn as_the_workloads_say(workloads: &[&Workload]) -> Listed {
    let own = ["gpu_id", "queue_type", "ring", "ring_size", "wptr", "rptr"];
    let queues = workloads.iter().flat_map(|workload| {
        let pid = json!(workload.pid());
        let queues = workload.queues();
        queues.into_iter().map(move |queue| {
            let facts: Vec<&Value> = own.iter().map(|name| &queue[*name]).collect();
            (key(&pid, &queue), json!(facts))
        })
    });
    queues.collect()
}

/// Owner, queue, GPU, type, and how the queue ended.
fn endings(lines: &[Value]) -> BTreeSet<String> {
    let ends = events::all(lines, "queue_destroy");
    let reported: BTreeSet<String> = ends
        .iter()
        .map(|end| {
            let reported = ["pid", "queue_id", "gpu_id", "queue_type", "cause"].map(|name| &end[name]);
            json!(reported).to_string()
        })
        .collect();
    assert_eq!(reported.len(), ends.len(), "one for each queue: {ends:?}");
    reported
}

#[test]
fn sixteen_queues_of_four_processes_are_listed_and_all_endings_seen() -> Result<()> {
    let mut plain = Workload::ready(&["hold", "--gpus=all"])?;
    let mut closed = Workload::ready(&["hold", "--gpus=all", "--close-fd"])?;
    let mut leaving = Workload::ready(&["hold", "--aql=3", "--sdma=1", "--leave"])?;
    let mut killed = Workload::ready(&["kill-me", "--gpus=2", "--queues=4"])?;
    let all = [&plain, &closed, &leaving, &killed];
    let truth = as_the_workloads_say(&all);
    assert_eq!(truth.len(), 16);

    let mut stream = Stream::tracing(&FEW)?;
    let standing = stream.wait_lines("the standing queues", SOON, |lines| {
        Some(events::all(lines, "queue_create")).filter(|found| found.len() >= truth.len())
    })?;
    assert!(standing.iter().all(|line| line["origin"] == "standing"), "{standing:?}");
    assert_eq!(as_the_tracer_says(standing.iter()), truth, "{}", stream.stderr());
    for workload in all {
        let pid = workload.pid();
        let seen = of(&stream.lines(), "process_seen", pid);
        assert!(
            matches!(&*seen, [one] if one["standing"] == true && one["comm"] == "kfd-workload"),
            "{seen:?}"
        );
        let owner = &seen[0]["kfd_process"];
        assert!(standing.iter().all(|line| (line["pid"] == pid) == (line["kfd_process"] == *owner)));
    }
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    let rows = ps["queues"].as_array().context("queues")?;
    assert_eq!(as_the_tracer_says(rows.iter()), truth);
    assert!(rows.iter().all(|row| row["sources"] == json!(["kernel", "sysfs"])), "{rows:?}");

    let causes = [
        (plain.pid(), "ioctl"),
        (closed.pid(), "process_death"),
        (leaving.pid(), "process_death"),
        (killed.pid(), "process_death"),
    ];
    for workload in [&mut plain, &mut closed, &mut leaving] {
        workload.finish()?;
    }
    killed.signal(Signal::SIGKILL)?;
    killed.wait_exit(SOON)?;
    for (pid, _) in causes {
        events::wait(&stream, "process_release", pid, 1)?;
    }
    let summary = stream.finish()?;
    let expected: BTreeSet<String> = truth
        .iter()
        .map(|((pid, queue_id), facts)| {
            let cause = causes.iter().find(|(own, _)| u64::from(*own) == *pid).expect("its cause").1;
            json!([pid, queue_id, facts[0], facts[1], cause]).to_string()
        })
        .collect();
    assert_eq!(endings(&stream.lines()), expected);
    let queues = &summary["queues"];
    assert_eq!(
        json!([queues["standing"], queues["created"], queues["destroyed"], queues["alive"]]),
        json!([16, 0, {"ioctl": 4, "process_death": 12}, 0])
    );
    let ps = run_json(&["ps", "--json"])?.pop().context("one object")?;
    assert_eq!((&ps["queues"], &ps["processes"]), (&json!([]), &json!([])));
    Ok(())
}

/// A late tracer does not know when a queue was created, so it reports no lifetime; a queue created after the
/// tracer's start is not an existing queue.
#[test]
fn what_is_made_later_is_distinguished() -> Result<()> {
    let mut early = kfd_trace_tests::harness::Steered::having(&["create aql"])?;
    let mut stream = Stream::tracing(&FEW)?;
    for operation in ["create sdma gpu=1", "destroy 0", "create sdma", "destroy 0", "destroy 1"] {
        assert_eq!(early.act(operation)?["errno"], Value::Null, "{operation}");
    }
    let ends = events::wait(&stream, "queue_destroy", early.pid(), 3)?;
    let reported: Vec<Value> = ends
        .iter()
        .map(|end| json!([end["queue_id"], end["queue_type"], end["lifetime_ns"].is_null()]))
        .collect();
    assert_eq!(
        reported,
        [json!([0, "compute_aql", true]), json!([0, "sdma", false]), json!([1, "sdma", false])]
    );
    let origins: Vec<Value> =
        of(&stream.lines(), "queue_create", early.pid()).iter().map(|line| line["origin"].clone()).collect();
    assert_eq!(origins, ["standing", "ioctl", "ioctl"]);
    stream.interrupt()
}
