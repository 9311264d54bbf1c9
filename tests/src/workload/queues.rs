//! Shared steps of several workloads: open the device, make a thunk's start-up calls, create queues.

use super::report;
use crate::kfd::client::NewQueue;
use crate::kfd::uapi::QueueType;
use crate::kfd::{Client, Gpu, Queue, topology};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::path::Path;

pub(crate) fn open() -> Result<Client> {
    let client = Client::open(Path::new("/dev/kfd")).context("open /dev/kfd")?;
    report::done("open", &json!({}))?;
    Ok(client)
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
