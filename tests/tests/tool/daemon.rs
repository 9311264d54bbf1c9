//! The daemon's pages, its start with existing queues, and its end.

use anyhow::Result;
use kfd_trace_tests::harness::tracer::{FEW, run};
use kfd_trace_tests::harness::{Daemon, Workload};

#[test]
fn its_pages_answer() -> Result<()> {
    // every family is present
    let mut daemon = Daemon::ready(&[])?;
    let workload = Workload::ready(&["hold"])?;
    for (path, status, word) in
        [("/-/healthy", 200, "healthy"), ("/-/ready", 200, "ready"), ("/nowhere", 404, "")]
    {
        let response = daemon.get(path)?;
        assert_eq!((response.status, response.body.trim()), (status, word), "{path}");
    }
    daemon
        .scrape_until("the queues", |metrics| (metrics.sum("kfd_queues", &[]) == Some(2.0)).then_some(()))?;
    let landing = daemon.get("/")?;
    assert!(landing.head.to_ascii_lowercase().contains("content-type: text/html"), "{}", landing.head);
    for text in ["<a href=\"metrics\">", "compute_aql", &format!(">{}</a>", workload.pid())] {
        assert!(landing.body.contains(text), "{text}: {}", landing.body);
    }
    assert_eq!(daemon.get("/static/page.js")?.status, 200);
    let events = daemon.json(&format!("/api/v1/events?event=queue_create&pid={}", workload.pid()))?;
    assert_eq!(events["matched"], 2, "{events}");
    let refused = daemon.get("/api/v1/events?since=yesterday")?;
    assert_eq!((refused.status, refused.body.contains("since is")), (400, true), "{refused:?}");
    let metrics = daemon.get("/metrics")?;
    assert!(metrics.head.contains("text/plain; version=0.0.4"), "{}", metrics.head);
    let parsed = daemon.scrape()?;
    let names = parsed.samples.keys().map(|(name, _)| name.as_str());
    for name in names {
        let base =
            ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(parsed.with_help.contains(base) && parsed.types.contains_key(base), "{name}");
    }
    daemon.stop()?;
    assert!(daemon.stderr().ends_with("kfd-trace: stopped\n"), "{}", daemon.stderr());
    Ok(())
}

#[test]
fn a_port_in_use_is_one_line() -> Result<()> {
    let daemon = Daemon::shared()?;
    let address = daemon.address.to_string();
    let output = run(&["daemon", "--web.listen-address", &address])?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(&address) && stderr.contains("--web.listen-address"), "{stderr}");
    daemon.end()
}

#[test]
fn standing_queues_are_adopted_and_their_end_is_seen() -> Result<()> {
    let mut workload = Workload::ready(&["hold", "--aql=2", "--sdma=1"])?;
    let mut daemon = Daemon::quick(&FEW)?;
    let metrics = daemon.scrape()?;
    assert_eq!(metrics.sum("kfd_queues", &[("queue_type", "compute_aql")]), Some(2.0));
    assert_eq!(metrics.sum("kfd_queues", &[("queue_type", "sdma")]), Some(1.0));
    assert_eq!(metrics.sum("kfd_trace_queues_adopted_total", &[]), Some(3.0));
    assert_eq!(metrics.sum("kfd_queues_created_total", &[]), Some(0.0), "their birth was not seen");
    assert_eq!(metrics.sum("kfd_processes", &[]), Some(1.0));
    assert_eq!(metrics.sum("kfd_process_info", &[("pid", &workload.pid().to_string())]), Some(1.0));

    workload.finish()?;
    let metrics = daemon.scrape_until("their end", |metrics| {
        (metrics.sum("kfd_queues", &[]) == Some(0.0)).then(|| metrics.clone())
    })?;
    assert_eq!(metrics.sum("kfd_queues_destroyed_total", &[("cause", "ioctl")]), Some(3.0));
    assert_eq!(metrics.sum("kfd_trace_state_anomalies_total", &[]), Some(0.0));
    daemon.scrape_until("the end of the process", |metrics| {
        (metrics.sum("kfd_processes_ended_total", &[]) == Some(1.0)).then_some(())
    })?;
    daemon.stop()
}
