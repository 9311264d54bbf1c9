//! Queues that a debugger suspends and resumes: who, which, with what result, and what is shown of them meanwhile.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::events::{self, of};
use kfd_trace_tests::harness::tracer::{NO_MQD, run_json};
use kfd_trace_tests::harness::{Daemon, Steered, Stream, driver_has};
use serde_json::{Value, json};

/// A process that a debugger can stop, and its debugger, for which its queues are no longer new.
const DEBUGGED: [&str; 4] = ["runtime-enable", "create aql", "create aql", "create aql gpu=1"];

fn attached(target: &Steered) -> Result<Steered> {
    let mut debugger = Steered::debugger_of(target.pid())?;
    debugger.must("enable")?;
    Ok(debugger)
}

/// Whether the driver has a debugger that suspends queues.
fn suspends() -> bool {
    driver_has("suspend_queues")
}

/// `suspended` of each queue of the process, in the order of their ids.
fn suspended(queues: &Value, pid: u32) -> Result<Vec<Value>> {
    let all = queues["queues"].as_array().context("queues")?;
    let mut own: Vec<&Value> = all.iter().filter(|queue| queue["pid"] == pid).collect();
    own.sort_by_key(|queue| queue["queue_id"].as_u64());
    Ok(own.into_iter().map(|queue| queue["suspended"].clone()).collect())
}

/// As the driver's own table shows it now.
fn in_ps(pid: u32) -> Result<Vec<Value>> {
    suspended(&run_json(&["ps", "--json"])?.pop().context("one object")?, pid)
}

#[test]
fn two_of_three_queues_are_suspended_and_resumed() -> Result<()> {
    if !suspends() {
        return Ok(());
    }
    let stream = Stream::shared()?;
    let target = Steered::having(&DEBUGGED)?;
    let mut debugger = attached(&target)?;
    let pid = target.pid();

    // A queue is new until a snapshot was taken: the driver refuses it without an error.
    debugger.must("suspend 5 0")?;
    assert_eq!(in_ps(pid)?, [false, false, false]);
    assert_eq!(debugger.act("snapshot")?["queues"], json!([2, 1, 0]));
    let call = debugger.act("suspend 7 0 2 99")?;
    assert_eq!((&call["errno"], &call["words"]), (&Value::Null, &json!([0, 2, 99 | 1_u64 << 31])));
    assert_eq!(in_ps(pid)?, [true, false, true]);

    let suspends = events::wait(&stream, "queues_suspended", pid, 2)?;
    let queue = |id: u32, result: &str| json!({ "queue_id": id, "result": result });
    assert_eq!(suspends[0]["queues"], json!([queue(0, "invalid")]));
    assert_eq!((&suspends[0]["count"], &suspends[0]["grace_period"]), (&json!(0), &json!(5)));
    let done = &suspends[1];
    assert_eq!(done["queues"], json!([queue(0, "ok"), queue(2, "ok"), queue(99, "invalid")]), "{done}");
    for (field, value) in [
        ("count", json!(2)),
        ("more_queues", json!(0)),
        ("grace_period", json!(7)),
        ("errno", Value::Null),
        ("comm", json!("kfd-workload")),
        ("by_comm", json!("kfd-workload")),
        ("by_pid", json!(debugger.pid())),
        ("task_pid", json!(debugger.pid())),
    ] {
        assert_eq!(done[field], value, "{field}: {done}");
    }
    let (took, ioctl) = (done["latency_ns"].as_u64().context("latency")?, call["ns"].as_u64());
    assert!(took > 0 && Some(took) < ioctl, "part of the ioctl: {done} {call}");

    debugger.must("resume 2")?;
    assert_eq!(in_ps(pid)?, [true, false, false]);
    debugger.must("disable")?;
    assert_eq!(in_ps(pid)?, [false, false, false]);
    let resumes = events::wait(&stream, "queues_resumed", pid, 2)?;
    let shown = |line: &Value| json!([line["all"], line["queues"], line["by_pid"]]);
    assert_eq!(shown(&resumes[0]), json!([false, [queue(2, "ok")], debugger.pid()]));
    assert_eq!(shown(&resumes[1]), json!([true, [], debugger.pid()]));
    drop((debugger, target));
    stream.end()
}

#[test]
fn the_daemon_knows_what_is_suspended_and_by_whom() -> Result<()> {
    if !suspends() {
        return Ok(());
    }
    let daemon = Daemon::shared()?;
    let target = Steered::having(&DEBUGGED)?;
    let mut debugger = attached(&target)?;
    let pid = target.pid();
    debugger.act("snapshot")?;
    debugger.must("suspend 0 0 1")?;
    let queues = daemon.json("/api/v1/queues")?;
    assert_eq!(suspended(&queues, pid)?, [true, true, false], "within the time of a request");
    let all = queues["queues"].as_array().context("queues")?;
    let own = |id: u32| all.iter().find(|queue| queue["pid"] == pid && queue["queue_id"] == id);
    let (stopped, running) = (own(1).context("queue 1")?, own(2).context("queue 2")?);
    assert_eq!(stopped["suspended_by"], json!({ "pid": debugger.pid(), "comm": "kfd-workload" }));
    assert!(stopped["suspended_ns"].as_u64().is_some_and(|ns| ns > 0), "{stopped}");
    assert_eq!((&stopped["suspensions"], &stopped["active"]), (&json!(1), &json!(false)));
    assert_eq!((&running["suspended_by"], &running["active"]), (&Value::Null, &json!(true)));
    let label = pid.to_string();
    let gauge =
        || Ok::<_, anyhow::Error>(daemon.scrape()?.sum("kfd_process_queues_suspended", &[("pid", &label)]));
    assert_eq!(gauge()?, Some(2.0));
    // A list of the driver changes none of it.
    daemon.compared("sysfs", 2)?;
    assert_eq!(suspended(&daemon.json("/api/v1/queues")?, pid)?, [true, true, false]);
    debugger.must("resume 0 1")?;
    assert_eq!(suspended(&daemon.json("/api/v1/queues")?, pid)?, [false, false, false]);
    assert_eq!(gauge()?, Some(0.0));
    drop((debugger, target));
    daemon.end()
}

#[test]
fn a_debugger_that_dies_lets_go_of_what_was_suspended_before_the_tracer() -> Result<()> {
    if !suspends() {
        return Ok(());
    }
    let mut target = Steered::having(&DEBUGGED)?;
    let mut debugger = attached(&target)?;
    let (pid, by) = (target.pid(), debugger.pid());
    debugger.act("snapshot")?;
    debugger.must("suspend 0 1")?;
    let mut stream = Stream::tracing(&NO_MQD)?;
    debugger.kill()?;
    let lines = events::so_far(&stream, &mut target)?;
    let found: Vec<Value> =
        of(&lines, "queue_create", pid).iter().map(|line| line["suspended"].clone()).collect();
    assert_eq!(found, [false, true, false]);
    let resumes = of(&lines, "queues_resumed", pid);
    let [resumed] = &resumes[..] else { panic!("{resumes:?}") };
    assert_eq!((&resumed["all"], &resumed["by_pid"]), (&json!(true), &json!(by)));
    assert_eq!(in_ps(pid)?, [false, false, false]);
    stream.interrupt()
}

/// 5.10 and 6.1.
#[test]
fn a_driver_without_a_debugger_does_not_say_that_nothing_is_suspended() -> Result<()> {
    if suspends() {
        return Ok(());
    }
    let daemon = Daemon::shared()?;
    let target = Steered::having(&["create aql"])?;
    assert_eq!(in_ps(target.pid())?, [Value::Null]);
    assert_eq!(suspended(&daemon.json("/api/v1/queues")?, target.pid())?, [Value::Null]);
    let gauge = daemon.scrape()?.sum("kfd_process_queues_suspended", &[]);
    assert_eq!(gauge, None);
    drop(target);
    daemon.end()
}
