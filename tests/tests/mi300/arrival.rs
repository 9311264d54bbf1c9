//! GPUs that appear under running tracers, of a generation not present before.

use anyhow::{Context, Result};
use kfd_trace_tests::harness::driver::shape_of;
use kfd_trace_tests::harness::mqd_calls::{MqdCalls, traced};
use kfd_trace_tests::harness::stage::{Types, VmKernel};
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::workload::reshape;
use kfd_trace_tests::harness::{Daemon, Steered, Stream, events, nodes};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;

/// Replaces the stage's GPUs with another generation, until this is dropped.
struct Vega {
    before: String,
}

impl Vega {
    fn begin() -> Result<Self> {
        let before = shape_of("mi300")?;
        reshape("gfx=901 xccs=1 parts=1 gpus=2 sched_policy=0")?;
        Ok(Vega { before })
    }
}

impl Drop for Vega {
    fn drop(&mut self) {
        if let Err(error) = reshape(&self.before) {
            eprintln!("{error:#}");
        }
    }
}

const ADDED: &str = "a GPU was added";

#[test]
fn they_are_named_and_their_mqd_writes_are_traced() -> Result<()> {
    let vega = Vega::begin()?;
    let mut daemon = Daemon::ready(&["--verbose"])?;
    let mut stream = Stream::tracing(&["--verbose"])?;
    drop(vega);
    // The shipped table does not have what shows which functions the GPUs use (struct mqd_manager): all are probed
    // from the start.
    if VmKernel::from_env()?.types != Types::Table {
        daemon.wait_stderr(ADDED, SOON)?;
        stream.wait_stderr(ADDED, SOON)?;
    }

    let witness = MqdCalls::start()?;
    let mut workload = Steered::having(&["create aql", "update 0 50", "create aql gpu=1"])?;
    let lines = events::so_far(&stream, &mut workload)?;
    let writes = traced(&events::all(&lines, "mqd_write"));
    assert_eq!(writes, witness.reported()?.writes());
    assert!(writes.len() >= 3, "{writes:?}");

    let gpu_ids =
        nodes(Path::new("/sys"))?.iter().map(|node| node.gpu_id.to_string()).collect::<BTreeSet<_>>();
    // the daemon reads the topology every ten seconds
    daemon.scrape_until("the GPUs that came to be named, and no others", |metrics| {
        let named = metrics.series("kfd_gpu_info").map(|(labels, _)| labels["gpu_id"].clone());
        (named.collect::<BTreeSet<_>>() == gpu_ids).then_some(())
    })?;
    let counted = daemon.scrape()?.sum("kfd_mqd_writes_total", &[]).context("MQD writes")?;
    assert_eq!(counted, f64::from(u32::try_from(writes.len())?));
    workload.finish()?;
    assert_eq!(stream.finish()?["lost"], json!({}));
    daemon.stop()
}
