//! The daemon records under the unit's confinement, with the drop-in of deploy/systemd.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::Steered;
use kfd_trace_tests::harness::service::{Changed, command, journal, scrape_until, tracing};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread::sleep;
use std::time::Duration;

const DROP_IN: &str = include_str!("../../../deploy/systemd/record.conf");
const FOLDER: &str = "/var/lib/kfd-trace-recordings";

#[test]
fn an_unprivileged_confined_daemon_records_where_the_drop_in_lets_it() -> Result<()> {
    tracing()?;
    let (_, settings) = DROP_IN.split_once("[Service]\n").context("settings")?;
    let changed = Changed::with("record", settings)?;
    tracing()?;
    let mut workload = Steered::having(&["create aql"])?;
    scrape_until("a recording", |metrics| metrics.sum("kfd_trace_recording_up", &[]).filter(|up| *up > 0.0))
        .with_context(|| journal().unwrap_or_default())?;
    // What is written once a second.
    sleep(Duration::from_secs(3));
    workload.must("destroy 0")?;
    changed.undo()?;
    tracing()?;
    let mode = |path: &str| Ok::<_, anyhow::Error>(fs::metadata(path)?.permissions().mode() & 0o777);
    ensure!(mode(&fs::canonicalize(FOLDER)?.to_string_lossy())? == 0o700, "the daemon's alone");
    let lines = command("kfd-trace", &["replay", FOLDER, "--json", "--pid", &workload.pid().to_string()])?;
    let events: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for event in ["queue_create", "queue_destroy"] {
        ensure!(events.iter().any(|line| line["event"] == event), "no {event}: {lines}");
    }
    fs::remove_dir_all(fs::canonicalize(FOLDER)?)?;
    workload.finish().map(drop)
}
