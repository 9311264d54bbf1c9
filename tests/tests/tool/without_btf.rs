//! A kernel without BTF of the driver: ioctls are traced, the rest is reported as missing.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::other_sysfs::{without_btf, without_types};
use kfd_trace_tests::harness::tracer::{run, run_json};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Stream, Workload, counts};
use serde_json::{Value, json};

#[test]
fn ioctls_are_traced_and_the_rest_is_said_to_be_missing() -> Result<()> {
    let root = without_btf()?;
    let mut stream = Stream::tracing(&without_types(&root).each_ref().map(String::as_str))?;
    let stderr = stream.stderr();
    assert!(stderr.lines().any(|line| line.contains("not seen") && line.contains("queues")), "{stderr}");
    let (workload, truth) =
        Workload::run(&["script", "version", "create aql", "create aql bad", "unknown 0x82", "destroy 0"])?;
    let expected = workload.ioctls();
    let events = stream.wait_lines("an event for each ioctl", SOON, |lines| {
        let events: Vec<Value> = lines.iter().filter(|line| line["event"] == "ioctl").cloned().collect();
        (events.len() >= expected.len()).then_some(events)
    })?;
    let without_times = |lines: &[Value]| -> Vec<Value> {
        lines.iter().map(|line| json!([line["nr"], line["errno"]])).collect()
    };
    assert_eq!(without_times(&events), without_times(&expected));
    assert!(events.iter().all(|event| event["pid"] == workload.pid()), "{events:?}");
    let create = &events[1];
    assert_eq!(create["args"]["ring_base_address"], workload.queues()[0]["ring"], "{create}");
    let births = stream.events("queue_create");
    assert_eq!(births.len(), 1, "of the one that succeeded: {births:?}");
    assert_eq!(births[0]["ring_address"], workload.queues()[0]["ring"]);
    assert_eq!(births[0]["doorbell_offset"], Value::Null, "only the driver knows it");
    let summary = stream.finish()?;
    assert_eq!(counts::summary_calls(&summary)?, counts::calls(&truth));
    Ok(())
}

#[test]
fn status_names_what_is_missing() -> Result<()> {
    let root = without_btf()?;
    let [sysfs, drivers] = without_types(&root);
    let status = run_json(&["status", "--json", &sysfs, &drivers])?.pop().context("one object")?;
    let verdict = |status: &Value, probe: &str| -> Value {
        let probes = status["probes"].as_array().into_iter().flatten();
        probes.filter(|row| row["probe"] == probe).map(|row| row["verdict"].clone()).collect()
    };
    assert_eq!(verdict(&status, "ioctl"), json!(["attached"]));
    assert_eq!(verdict(&status, "queue_add"), json!(["missing_fields"]));
    let limit = status["findings"].as_array().into_iter().flatten().find(|f| f["severity"] == "limits");
    let what = limit.context("a finding")?["what"].to_string();
    assert!(what.contains("no types of the driver"), "{what}");
    // with its BTF everything is available
    let whole = run_json(&["status", "--json"])?.pop().context("one object")?;
    assert_eq!(verdict(&whole, "queue_add"), json!(["attached"]));
    Ok(())
}

#[test]
fn ps_and_daemon_fall_back_to_sysfs() -> Result<()> {
    let root = without_btf()?;
    let [sysfs, drivers] = without_types(&root);
    let workload = Workload::ready(&["hold"])?;
    let output = run(&["ps", "--json", &sysfs, &drivers])?;
    let stderr = String::from_utf8(output.stderr)?;
    assert!(output.status.success() && stderr.contains("no addresses"), "{stderr}");
    let ps: Value = serde_json::from_slice(&output.stdout)?;
    let rows = ps["queues"].as_array().context("queues")?;
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter().all(|row| row["pid"] == workload.pid() && row["sources"] == json!(["sysfs"])),
        "{rows:?}"
    );

    let mut daemon = Daemon::quick(&without_types(&root).each_ref().map(String::as_str))?;
    let metrics = daemon.scrape()?;
    assert_eq!(metrics.sum("kfd_queues", &[]), Some(2.0));
    assert_eq!(metrics.sum("kfd_queues_created_total", &[]), Some(0.0), "they stood before");
    assert_eq!(metrics.sum("kfd_mqd_writes_total", &[]), None, "not seen is not 0");
    assert_eq!(metrics.sum("kfd_trace_probe_attached", &[("probe", "queue_add")]), Some(0.0));
    daemon.stop()
}
