//! Shared steps of several workloads: open the device, make a thunk's start-up calls, create queues.

use super::report;
use crate::kfd::client::NewQueue;
use crate::kfd::uapi::QueueType;
use crate::kfd::{Client, Gpu, Queue, topology};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Once;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait for the end of an earlier life. It takes milliseconds; a container's own /proc may show
/// this process under the PID of another one, whose folder stays.
const EARLIER_LIFE: Duration = Duration::from_secs(10);

pub(crate) fn open() -> Result<Client> {
    static FIRST: Once = Once::new();
    FIRST.call_once(wait_for_earlier_life);
    let client = Client::open(Path::new("/dev/kfd")).context("open /dev/kfd")?;
    report::done("open", &json!({}))?;
    Ok(client)
}

/// Waits until the driver has freed the KFD process that this PID had before exec.
///
/// kfd_process.c:kfd_create_process drains the work queue of releases, but mmu_notifier_put adds a release to
/// it only after an SRCU grace period. A program that opens the device earlier gets no sysfs folder, because
/// the old one still has its name, and 6.12 then warns at the end of each of its queues (kobject_put of an
/// object that kfd_procfs_add_queue never initialised).
fn wait_for_earlier_life() {
    let Ok(pid) = fs::read_link("/proc/self") else { return };
    let folder = Path::new("/sys/class/kfd/kfd/proc").join(pid);
    let begin = Instant::now();
    while folder.exists() && begin.elapsed() < EARLIER_LIFE {
        sleep(Duration::from_millis(1));
    }
}

/// The GPUs of the machine, at least one.
pub(crate) fn gpus() -> Result<Vec<Gpu>> {
    let gpus = topology::gpus(Path::new("/sys"))?;
    if gpus.is_empty() {
        bail!("no GPU in /sys/class/kfd/kfd/topology: kfdsim is not loaded, or no amdgpu device is there");
    }
    Ok(gpus)
}

/// GET_VERSION, then GET_PROCESS_APERTURES_NEW twice: first for the number, then for the apertures.
pub(crate) fn greet(client: &mut Client) -> Result<()> {
    let version = client.version();
    report::call("version", client, version_detail(version))?;
    apertures(client)
}

pub(crate) fn version_detail<E>(version: Result<crate::kfd::uapi::GetVersion, E>) -> serde_json::Value {
    version.map_or_else(|_| json!({}), |v| json!({"major": v.major_version, "minor": v.minor_version}))
}

pub(crate) fn apertures(client: &mut Client) -> Result<()> {
    let count = client.aperture_count();
    report::call("apertures", client, json!({"gpus": count.ok()}))?;
    let Ok(count) = count else { return Ok(()) };
    let list = client.apertures(count);
    let ids = list.map(|list| list.iter().map(|a| a.gpu_id).collect::<Vec<_>>());
    report::call("apertures", client, json!({"gpu_ids": ids.ok()}))
}

/// Creates a queue, which must succeed.
pub(crate) fn make(client: &mut Client, queue_type: QueueType, gpu: &Gpu) -> Result<Queue> {
    let new = NewQueue::new(queue_type, gpu).context("map memory for a queue")?;
    let created = client.create_queue(new, false);
    let detail = created.as_ref().map_or_else(|_| json!({}), |queue| report::queue(queue, queue_type));
    report::call("create", client, detail)?;
    created.with_context(|| format!("create a queue on GPU {}", gpu.gpu_id))
}

pub(crate) fn destroy(client: &mut Client, queue_id: u32) -> Result<()> {
    // a failure is in the line; the caller continues with the next one
    let _ = client.destroy_queue(queue_id);
    report::call("destroy", client, json!({"queue_id": queue_id}))
}
