//! Parts and ends of evictions, independent of the driver functions that do them.

use super::events::{self, gpu_id, of};
use super::functions::driver_has;
use super::wait::SOON;
use super::workload::{Workload, kfdsim};
use super::{JsonLines, Steered};
use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An AQL and an SDMA queue on each of the two GPUs.
pub const ON_BOTH: [&str; 4] = ["create aql", "create sdma", "create aql gpu=1", "create sdma gpu=1"];

/// The reason of an eviction that is not a fault, as events have it: `null` where `kfd_process_evict_queues` is
/// not passed one. Drivers that report it in SMI events are.
pub fn trigger(name: &str) -> Value {
    if driver_has("kfd_smi_event_queue_eviction") { json!(name) } else { Value::Null }
}

/// The GPUs of some events, each of them once.
///
/// # Panics
/// When a GPU has several of them.
pub fn gpus(lines: &[Value]) -> BTreeSet<u64> {
    let gpus: BTreeSet<u64> = lines.iter().map(gpu_id).collect();
    assert_eq!(gpus.len(), lines.len(), "one for each GPU: {lines:?}");
    gpus
}

/// The GPUs that a process has queues on.
pub fn own_gpus(workload: &Workload) -> BTreeSet<u64> {
    workload.queues().iter().map(gpu_id).collect()
}

/// Checks that neither an eviction nor a restore of this process is reported.
///
/// # Panics
/// When one is.
pub fn spared(lines: &[Value], pid: u32) {
    for event in ["evict", "restore"] {
        assert_eq!(of(lines, event, pid), Vec::<Value>::new());
    }
}

/// Kills a process with [`ON_BOTH`] while it is evicted: all of its queues end with it, and none is restored.
///
/// # Errors
/// When this cannot be set up, or its end is not reported.
///
/// # Panics
/// When something else is reported.
pub fn death_while_evicted(stream: &JsonLines) -> Result<()> {
    let mut workload = Steered::having(&ON_BOTH)?;
    let pid = workload.pid();
    kfdsim("quiesce", pid)?;
    workload.signal(Signal::SIGKILL)?;
    workload.wait_exit(SOON)?;
    events::wait(stream, "process_release", pid, 1)?;
    let lines = stream.lines();
    assert_eq!(gpus(&of(&lines, "evict", pid)).len(), 2);
    assert_eq!(of(&lines, "restore", pid), Vec::<Value>::new());
    let ends = of(&lines, "queue_destroy", pid);
    assert_eq!(ends.len(), 4);
    assert!(ends.iter().all(|end| end["cause"] == "process_death"), "{ends:?}");
    Ok(())
}
