//! A kernel without BTF of the driver: ioctls are traced, the rest is reported as missing.

use super::listing::{Rows, of_workload, rows, wrong};
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::other_sysfs::{VERSION, lacking, without_btf, without_types};
use kfd_trace_tests::harness::tracer::{run, run_json};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Steered, Stream, Workload, counts};
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

/// Several of a kind and size, of which one has the id of an earlier one, so that ids say nothing about their order.
const ALIKE: [&str; 9] = [
    "create aql",
    "create aql",
    "create sdma",
    "create aql",
    "create sdma",
    "destroy 0",
    "create aql",
    "create compute gpu=1",
    "create aql gpu=1",
];

/// The rows of a process, compared with its own words of the queues that still exist.
fn check_addresses(shown: &Rows, workload: &Steered) -> Result<()> {
    // Of two queues with one id it has the later one.
    let truth = of_workload(workload)?;
    ensure!(wrong(shown, &truth).is_empty(), "{:?}", wrong(shown, &truth));
    for (id, row) in shown {
        ensure!(row["sources"] == json!(["sysfs", "debugfs"]), "{row}");
        // The driver writes the write pointer of a compute queue alone (v9).
        let is_compute = truth[id]["queue_type"].as_str().is_some_and(|kind| kind.contains("compute"));
        let known =
            [("ring_address", true), ("read_pointer_address", true), ("write_pointer_address", is_compute)];
        for (name, known) in known {
            ensure!(row[name].is_string() == known, "{name}: {row}");
        }
        ensure!(row["active"].is_null() && row["percent"].is_null(), "no MQD states it: {row}");
    }
    Ok(())
}

#[test]
fn existing_queues_have_their_addresses_from_debugfs() -> Result<()> {
    let root = without_btf()?;
    let [sysfs, drivers] = without_types(&root);
    let mut workload = Steered::having(&ALIKE)?;
    let mut other = Steered::having(&["create aql", "create aql"])?;
    let output = run(&["ps", "--json", &sysfs, &drivers])?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.success() && stderr.contains("addresses from debugfs: "), "{stderr}");
    ensure!(stderr.lines().count() == 1, "{stderr}");
    let ps: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(ps["asked"] == json!(["sysfs", "debugfs"]), "{}", ps["asked"]);
    for workload in [&workload, &other] {
        let shown = rows(&ps, workload.pid())?;
        ensure!(!shown.is_empty(), "{ps}");
        check_addresses(&shown, workload)?;
    }
    // Doorbells and engines are as the kernel's own table has them.
    let truth = rows(&run_json(&["ps", "--json"])?[0], workload.pid())?;
    let shown = rows(&ps, workload.pid())?;
    ensure!(wrong(&shown, &truth).is_empty(), "{:?}", wrong(&shown, &truth));
    let doorbells = shown.values().filter(|row| row["doorbell_offset"].is_u64()).count();
    ensure!(doorbells == 7, "{shown:?}");

    let mut daemon = Daemon::quick(&without_types(&root).each_ref().map(String::as_str))?;
    let listed = daemon.json("/api/v1/queues")?;
    for workload in [&workload, &other] {
        check_addresses(&rows(&listed, workload.pid())?, workload)?;
    }
    let stderr = daemon.stderr();
    ensure!(!stderr.contains("no addresses"), "{stderr}");
    daemon.stop()?;
    workload.finish()?;
    other.finish().map(drop)
}

#[test]
fn ps_and_daemon_fall_back_to_sysfs() -> Result<()> {
    let root = lacking(&["kernel/btf/amdgpu", VERSION, "kernel/debug"])?;
    let [sysfs, drivers] = without_types(&root);
    let workload = Workload::ready(&["hold"])?;
    let output = run(&["ps", "--json", &sysfs, &drivers])?;
    let stderr = String::from_utf8(output.stderr)?;
    assert!(output.status.success() && stderr.contains("no addresses"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let ps: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(ps["asked"], json!(["sysfs"]));
    let rows = ps["queues"].as_array().context("queues")?;
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter().all(|row| row["pid"] == workload.pid() && row["sources"] == json!(["sysfs"])),
        "{rows:?}"
    );

    let mut daemon = Daemon::quick(&without_types(&root).each_ref().map(String::as_str))?;
    assert!(daemon.stderr().contains("existing queues have no addresses: "), "{}", daemon.stderr());
    let metrics = daemon.scrape()?;
    assert_eq!(metrics.sum("kfd_queues", &[]), Some(2.0));
    assert_eq!(metrics.sum("kfd_queues_created_total", &[]), Some(0.0), "they stood before");
    assert_eq!(metrics.sum("kfd_mqd_writes_total", &[]), None, "not seen is not 0");
    assert_eq!(metrics.sum("kfd_trace_probe_attached", &[("probe", "queue_add")]), Some(0.0));
    daemon.stop()
}
