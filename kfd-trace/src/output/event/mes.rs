//! Requests to the firmware scheduler MES.

use super::context::Context;
use crate::model::mes::MesQueue;
use crate::model::runlist::Reason;
use crate::text::clock::latency;
use crate::text::errno::{failure, result};
use serde::Serialize;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MesQueueFields {
    errno: Option<String>,
    gpu_id: Option<u32>,
    /// Duration of the request, or until the driver gave up.
    latency_ns: u64,
    /// `add` or `remove`.
    op: &'static str,
    queue_id: u32,
    reason: Option<&'static str>,
}

pub(super) fn fields(change: &MesQueue) -> MesQueueFields {
    MesQueueFields {
        errno: failure(change.errno),
        gpu_id: change.gpu_id,
        latency_ns: change.latency_ns,
        op: change.op.name(),
        queue_id: change.queue_id,
        reason: change.reason.map(Reason::name),
    }
}

pub(super) fn change(change: &MesQueue, context: &Context<'_>) -> String {
    let (gpu, op, queue) = (context.gpu(change.gpu_id), change.op.name(), change.queue_id);
    let reason = change.reason.map_or("?", Reason::name);
    format!(
        "{gpu} {op} queue {queue} reason={reason} <{}>{}",
        latency(change.latency_ns),
        result(change.errno)
    )
}
