//! `kfd-trace ps`: its columns, and the ages of queues with and without a daemon.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::tracer::{FEW, run, run_json};
use kfd_trace_tests::harness::{Daemon, Steered};
use serde_json::Value;

fn row(ps: &Value, pid: u32) -> Result<Value> {
    let queues = ps["queues"].as_array().context("queues")?;
    queues.iter().find(|row| row["pid"] == pid).cloned().context("the row of the queue")
}

#[test]
fn a_usual_row_fits_a_hundred_columns_and_wide_has_the_rest() -> Result<()> {
    let mut workload = Steered::having(&["create aql"])?;
    let pid = workload.pid().to_string();
    let text = |args: &[&str]| -> Result<(String, String)> {
        let text = String::from_utf8(run(args)?.stdout)?;
        let own = text.lines().find(|line| line.split_whitespace().next() == Some(&pid));
        Ok((text.lines().next().context("a heading")?.to_owned(), own.context("its row")?.to_owned()))
    };
    let (heading, own) = text(&["ps"])?;
    assert!(heading.len() <= 100 && own.len() <= 100, "{heading}\n{own}");
    assert!(["COMM", "GPU", "QUEUE", "TYPE", "STATE", "AGE"].iter().all(|name| heading.contains(name)));
    assert!(!heading.contains("RING") && !heading.contains("SOURCE"), "all sources agree: {heading}");
    // No daemon has seen its creation: only the start of its process is known.
    assert!(own.contains('<') && own.contains(" gpu 0 "), "{own}");
    let (heading, own) = text(&["ps", "--wide"])?;
    assert!(
        ["NSPID", "RING", "SIZE", "WPTR", "RPTR", "PRIO", "SOURCE"].iter().all(|name| heading.contains(name))
    );
    assert!(own.contains("kernel+sysfs") && own.contains("0x"), "{own}");
    workload.finish().map(drop)
}

#[test]
fn the_runtimes_own_queue_is_marked() -> Result<()> {
    let mut workload = Steered::having(&["create sdma", "create aql", "create aql ring=4096"])?;
    let mut daemon = Daemon::quick(&FEW)?;
    let marks = |document: &Value| -> Result<Vec<Value>> {
        let queues = document["queues"].as_array().context("queues")?.iter();
        Ok(queues.filter(|row| row["pid"] == workload.pid()).map(|row| row["of_runtime"].clone()).collect())
    };
    let expected = [false, false, true].map(Value::Bool);
    assert_eq!(marks(&run_json(&["ps", "--json"])?.pop().context("one object")?)?, expected);
    assert_eq!(marks(&daemon.json("/api/v1/queues")?)?, expected);
    let text = String::from_utf8(run(&["ps"])?.stdout)?;
    assert_eq!(text.matches("runtime_aql").count(), 1, "{text}");
    daemon.stop()?;
    workload.finish().map(drop)
}

#[test]
fn a_running_daemon_adds_the_age_of_a_queue_and_its_kfd_process() -> Result<()> {
    let found = Steered::having(&["create aql"])?;
    let daemon = Daemon::quick(&[])?;
    let mut seen = Steered::having(&["create aql"])?;
    let url = format!("http://{}", daemon.address);
    daemon.scrape_until("both queues", |metrics| {
        (metrics.sum("kfd_queues", &[]).is_some_and(|queues| queues >= 2.0)).then_some(())
    })?;
    let ps = run_json(&["ps", "--json", "--ages-from", &url])?.pop().context("one object")?;
    let (found, own) = (row(&ps, found.pid())?, row(&ps, seen.pid())?);
    let (age, of_process) = (own["age_ns"].as_u64(), own["process_age_ns"].as_u64());
    // Both are read some milliseconds apart.
    assert!(age > Some(0) && age < of_process.map(|ns| ns + 1_000_000_000), "{own}");
    assert!(own["kfd_process"].is_string(), "{own}");
    // It was there before the daemon: its creation was not seen.
    assert_eq!(found["age_ns"], Value::Null, "{found}");
    assert!(found["process_age_ns"].as_u64() > of_process && found["kfd_process"].is_string(), "{found}");

    let nowhere = run(&["ps", "--ages-from", "http://127.0.0.1:9"])?;
    assert!(nowhere.status.success(), "the table is shown without it");
    let stderr = String::from_utf8(nowhere.stderr)?;
    assert!(
        stderr.contains("no ages of queues: http://127.0.0.1:9: it refuses the connection; "),
        "{stderr}"
    );
    seen.finish().map(drop)
}
