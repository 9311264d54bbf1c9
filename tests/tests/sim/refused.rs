//! Calls that `kfd_ioctl` refuses before any handler runs, and the call that sleeps: by the return of `kfd_ioctl`, and
//! without tracefs by its rules.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::other_sysfs::{flag, lacking};
use kfd_trace_tests::harness::tracer::NO_MQD;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, JsonLines, Stream, Workload, counts, driver_has};
use serde_json::{Value, json};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

const NOBODY: u32 = 65534;

/// The events of one ioctl number.
fn calls(stream: &JsonLines, nr: u8, wanted: usize) -> Result<Vec<Value>> {
    stream.wait_lines("its events", SOON, |lines| {
        let calls: Vec<_> =
            lines.iter().filter(|line| line["event"] == "ioctl" && line["nr"] == nr).cloned().collect();
        (calls.len() >= wanted).then_some(calls)
    })
}

/// How an event reports the end of its call.
fn ending(event: &Value) -> Value {
    json!([event["outcome"], event["errno"], event["measured"], event["latency_ns"].is_null()])
}

#[test]
fn a_forked_child_on_its_parents_descriptor() -> Result<()> {
    let stream = Stream::shared()?;
    let (workload, _) = Workload::run(&["script", "version", "fork-ioctl"])?;
    let reply = workload.operations("fork-ioctl").pop().context("fork-ioctl")?;
    assert_eq!(reply["errno"], "EBADF", "the driver's own word");
    let calls = calls(&stream, 0x01, 2)?;
    assert_eq!(ending(&calls[0]), json!(["returned", null, true, false]));
    assert_eq!(ending(&calls[1]), json!(["returned", "EBADF", true, false]));
    assert_eq!((&calls[1]["pid"], &calls[1]["task_pid"]), (&json!(workload.pid()), &reply["child"]));
    stream.end()
}

#[test]
fn criu_by_who_may_not() -> Result<()> {
    set_permissions("/dev/kfd", Permissions::from_mode(0o666))?;
    let stream = Stream::shared()?;
    let mut nobody = Workload::spawn_as(NOBODY, &["script", "criu", "version"])?;
    nobody.finish()?;
    let (root, _) = Workload::run(&["script", "criu"])?;
    let calls = calls(&stream, 0x22, 2)?;
    for (workload, call) in [&nobody, &root].into_iter().zip(&calls) {
        let reply = workload.operations("criu").pop().context("criu")?;
        assert_eq!((&call["pid"], &call["errno"]), (&json!(workload.pid()), &reply["errno"]), "{call}");
    }
    let endings = if driver_has("kfd_ioctl_criu") {
        // root reaches the handler
        ["EACCES", "EINVAL"]
    } else {
        ["ENOTTY"; 2]
    };
    let endings = endings.map(|errno| json!(["returned", errno, true, false]));
    assert_eq!([ending(&calls[0]), ending(&calls[1])], endings);
    let seen = stream.events("process_seen");
    let uids: Vec<&Value> = seen.iter().map(|line| &line["uid"]).collect();
    assert_eq!(uids, [&json!(NOBODY), &json!(0)]);
    stream.end()
}

#[test]
fn numbers_that_the_driver_does_not_have() -> Result<()> {
    let stream = Stream::shared()?;
    // The first is ROCm's.
    let all = [(0x82, "unknown 0x82"), (0x7f, "unknown 0x7f 8"), (0, "unknown 0 8")];
    let unknown = if counts::has_old_debugger() { &all[1..] } else { &all };
    let operations: Vec<&str> = unknown.iter().map(|(_, operation)| *operation).collect();
    let (workload, _) = Workload::run(&[&["script"], &*operations].concat())?;
    assert_eq!(workload.ioctls().len(), unknown.len());
    for ((nr, _), reply) in unknown.iter().zip(workload.ioctls()) {
        let errno = counts::no_command();
        assert_eq!(reply["errno"], errno, "the driver's own word");
        let call = calls(&stream, *nr, 1)?.remove(0);
        assert_eq!(ending(&call), json!(["returned", errno, true, false]));
        assert_eq!(call["args"], Value::Null);
    }
    stream.end()
}

#[test]
fn without_tracefs_the_rules_of_the_driver_say_what_it_refuses() -> Result<()> {
    set_permissions("/dev/kfd", Permissions::from_mode(0o666))?;
    let sysfs = lacking(&["kernel/tracing", "kernel/debug"])?;
    let sysfs_flag = flag(&sysfs);
    let mut stream = Stream::tracing(&[&["--attach=single", &*sysfs_flag][..], &NO_MQD].concat())?;
    let mut nobody = Workload::spawn_as(NOBODY, &["script", "criu"])?;
    nobody.finish()?;
    // The last one waits for no event.
    let (workload, _) =
        Workload::run(&["script", "version", "fork-ioctl", "criu", "unknown 0x7f 8", "unknown 0x0c 24"])?;
    let reply = workload.operations("fork-ioctl").pop().context("fork-ioctl")?;
    let version = calls(&stream, 0x01, 2)?;
    assert_eq!(ending(&version[0]), json!(["returned", null, true, false]));
    assert_eq!(ending(&version[1]), json!(["refused", "EBADF", true, true]));
    assert_eq!((&version[1]["pid"], &version[1]["task_pid"]), (&json!(workload.pid()), &reply["child"]));
    let endings = if driver_has("kfd_ioctl_criu") {
        [json!(["refused", "EACCES", true, true]), json!(["returned", "EINVAL", true, false])]
    } else {
        [(); 2].map(|()| json!(["refused", "ENOTTY", true, true]))
    };
    let criu = calls(&stream, 0x22, 2)?;
    assert_eq!([ending(&criu[0]), ending(&criu[1])], endings);
    let unknown = calls(&stream, 0x7f, 1)?;
    assert_eq!(ending(&unknown[0]), json!(["refused", counts::no_command(), true, true]));
    let waits = calls(&stream, 0x0c, 1)?;
    assert_eq!(ending(&waits[0]), json!(["not_measured", null, false, true]));
    let summary = stream.finish()?;
    assert_eq!((&summary["not_measured"], &summary["lost"]), (&json!({"WAIT_EVENTS": 1}), &json!({})));
    Ok(())
}

#[test]
fn waiting_is_measured() -> Result<()> {
    let daemon = Daemon::shared()?;
    let mut stream = Stream::tracing(&NO_MQD)?;
    // no event to wait for, a timeout of zero: it returns at once
    let (_, truth) = Workload::run(&["script", "unknown 0x0c 24", "unknown 0x0c 24", "version"])?;
    assert_eq!(counts::calls(&truth)["WAIT_EVENTS"], 2);
    for call in calls(&stream, 0x0c, 2)? {
        assert_eq!(ending(&call), json!(["returned", null, true, false]));
        assert_eq!(call["result"], 0);
    }
    let summary = stream.finish()?;
    assert_eq!((&summary["not_measured"], &summary["lost"]), (&json!({}), &json!({})));

    let metrics = daemon.scrape()?;
    let waits = [("ioctl", "WAIT_EVENTS")];
    assert_eq!(metrics.sum("kfd_ioctls_total", &waits), Some(2.0));
    assert_eq!(metrics.sum("kfd_ioctls_not_measured_total", &waits), Some(0.0));
    assert_eq!(metrics.sum("kfd_event_wait_duration_seconds_count", &[]), Some(2.0));
    assert_eq!(metrics.sum("kfd_event_waits_in_flight", &[]), Some(0.0));
    for of_work in ["kfd_ioctl_duration_seconds_count", "kfd_ioctl_errors_total", "kfd_ioctls_in_flight"] {
        assert_eq!(metrics.sum(of_work, &waits), None, "{of_work}: a wait is not work");
    }
    daemon.end()
}
