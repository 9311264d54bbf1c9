//! Ioctls one by one: the stream reports each as the workload saw it, and the metrics count the same.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, JsonLines, Metrics, Stream, Workload, counts};
use serde_json::{Value, json};

const OPERATIONS: [&str; 14] = [
    "version",
    "apertures",
    "create aql",
    "create sdma gpu=1",
    "create aql bad",
    "create aql bad-type",
    "create aql old",
    "destroy 77",
    "update 0 0",
    "cu-mask 0",
    "memory-policy",
    "unknown 0x82",
    "unknown 0x60 16",
    "destroy 0",
];

fn script() -> [&'static str; OPERATIONS.len() + 1] {
    let mut words = ["script"; OPERATIONS.len() + 1];
    words[1..].copy_from_slice(&OPERATIONS);
    words
}

/// The ioctl events of the whole script, once all have arrived.
fn ioctl_events(stream: &JsonLines, wanted: usize) -> Result<Vec<Value>> {
    stream.wait_lines("an event for each ioctl", SOON, |lines| {
        let events: Vec<_> = lines.iter().filter(|line| line["event"] == "ioctl").cloned().collect();
        (events.len() >= wanted).then_some(events)
    })
}

#[test]
fn the_stream_shows_every_ioctl() -> Result<()> {
    let mut stream = Stream::tracing(&[])?;
    let (workload, counts) = Workload::run(&script())?;
    let truth = workload.ioctls();
    let events = ioctl_events(&stream, truth.len())?;
    assert_eq!(events.len(), truth.len(), "{events:?}");
    for (event, issued) in events.iter().zip(&truth) {
        assert_eq!(event["pid"], workload.pid(), "{event}");
        assert_eq!(event["cmd"], format!("{:#010x}", issued["cmd"].as_u64().context("cmd")?), "{event}");
        assert_eq!(event["ioctl"], counts::ioctl_name(issued["nr"].as_u64().context("nr")?), "{event}");
        assert_eq!(event["errno"], issued["errno"], "{event}");
        let succeeded = event["result"].as_i64().context("a result")? >= 0;
        assert_eq!(succeeded, issued["errno"].is_null(), "{event}");
        latency_fits(event, issued)?;
        arguments_fit(event, issued)?;
    }
    assert!(truth.iter().any(|issued| issued["errno"] == "EINVAL"), "nothing went wrong: {truth:?}");

    let summary = stream.finish()?;
    assert_eq!(counts::summary_calls(&summary)?, counts::calls(&counts));
    assert_eq!(summary["lost"], json!({}));
    Ok(())
}

/// The latency is within the caller's measurement of its call.
fn latency_fits(event: &Value, issued: &Value) -> Result<()> {
    assert_eq!(event["outcome"], "returned", "{event}");
    let latency = event["latency_ns"].as_u64().with_context(|| format!("no latency: {event}"))?;
    assert!(latency > 0 && latency <= issued["ns"].as_u64().context("ns")?, "{event} {issued}");
    Ok(())
}

/// The kernel's copy of the arguments holds what the workload passed and received.
fn arguments_fit(event: &Value, issued: &Value) -> Result<()> {
    let args = &event["args"];
    let same = |pairs: &[(&str, &str)]| {
        for (argument, line) in pairs.iter().filter(|(_, line)| issued.get(line).is_some()) {
            assert_eq!(args[*argument], issued[*line], "{argument}: {event} {issued}");
        }
    };
    match event["ioctl"].as_str().context("a name")? {
        "GET_VERSION" => same(&[("major_version", "major"), ("minor_version", "minor")]),
        "CREATE_QUEUE" => {
            same(&[("gpu_id", "gpu_id"), ("ring_size", "ring_size"), ("ring_base_address", "ring")]);
            same(&[
                ("write_pointer_address", "wptr"),
                ("read_pointer_address", "rptr"),
                ("queue_id", "queue_id"),
            ]);
            assert!(args["ring_base_address"].is_string(), "{event}");
        }
        "DESTROY_QUEUE" | "SET_CU_MASK" => same(&[("queue_id", "queue_id")]),
        "UPDATE_QUEUE" => same(&[("queue_id", "queue_id"), ("queue_percentage", "percent")]),
        "SET_MEMORY_POLICY" => same(&[("gpu_id", "gpu_id")]),
        "GET_PROCESS_APERTURES_NEW" => same(&[("num_of_nodes", "gpus")]),
        // ROCm's has a handler, and no arguments that are decoded.
        "DBG_TRAP_DEPRECATED" => assert_eq!(args, &json!({}), "{event}"),
        _ => assert_eq!(args, &Value::Null, "{event}"),
    }
    Ok(())
}

#[test]
fn the_metrics_count_as_the_workload_did() -> Result<()> {
    let daemon = Daemon::shared()?;
    let (workload, truth) = Workload::run(&script())?;
    // Sums are read directly, but their process is known from a record.
    let pid = workload.pid().to_string();
    let own = |metrics: &Metrics| metrics.sum("kfd_process_ioctls_total", &[("pid", &pid)]);
    let metrics =
        daemon.scrape_until("the process", |metrics| own(metrics).is_some().then(|| metrics.clone()))?;
    assert_eq!(counts::by_label(&metrics, "kfd_ioctls_total", "ioctl")?, counts::calls(&truth));
    assert_eq!(counts::metric_errors(&metrics)?, counts::errors(&truth));
    let of_process = own(&metrics);
    assert_eq!(of_process, metrics.sum("kfd_ioctls_total", &[]));
    // Also those that are refused before a handler.
    let measured = counts::by_label(&metrics, "kfd_ioctl_duration_seconds_count", "ioctl")?;
    assert_eq!(measured.values().sum::<u64>(), counts::total(&truth));
    assert_eq!(metrics.sum("kfd_ioctls_no_return_seen_total", &[]), Some(0.0));
    daemon.end()
}

#[test]
fn a_header_of_another_age_is_reported() -> Result<()> {
    let stream = Stream::shared()?;
    let (workload, _) = Workload::run(&["script", "create aql", "create aql old", "version"])?;
    // kfd_ioctl_create_queue_args grew from 88 to 96 bytes with UAPI 1.17, as the driver itself reports.
    let version = workload.operations("version").pop().context("its version")?;
    let minor = version["minor"].as_u64().with_context(|| version.to_string())?;
    let (own, mismatching) = if minor < 17 { (88, "96") } else { (96, "88") };
    assert_eq!(workload.queues().len(), 2, "the driver takes both sizes");
    let events = ioctl_events(&stream, 3)?;
    for event in &events {
        let size = event["size"].as_u64().context("size")?;
        let expected = (event["ioctl"] == "CREATE_QUEUE" && size != own)
            .then(|| json!({"user_size": size, "kernel_size": own}));
        assert_eq!(event["abi_mismatch"], json!(expected), "{event}");
    }
    let reported = events.iter().filter(|event| !event["abi_mismatch"].is_null());
    let sizes: Vec<String> = reported.map(|event| event["size"].to_string()).collect();
    assert_eq!(sizes, [mismatching]);
    stream.end()
}
