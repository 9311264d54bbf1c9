//! Fields of events between a queue's creation and its end, and of events of its GPU.

use super::{create, failed};
use crate::model::event::Body;
use crate::model::incident::{Eviction, MqdOp, QueueUpdate, Trigger, UserQueueCall, VmFault};
use crate::output::event::context::Context;
use crate::output::names::{self, hex};
use serde_json::{Value, json};

/// `None` for kinds whose fields are defined elsewhere.
pub(crate) fn fields(body: &Body, context: &Context<'_>) -> Option<Value> {
    Some(match body {
        Body::QueueUpdate(update) => queue_update(update),
        Body::MqdWrite { queue_id, gpu_id, op } => mqd_write(*queue_id, *gpu_id, *op),
        Body::Evict(eviction) => evicted(eviction),
        Body::Restore(eviction) => restored(eviction, context),
        Body::VmFault(fault) => vm_fault(fault),
        Body::GpuResetBegin { gpu_id } | Body::HwsHang { gpu_id } => {
            json!({ "gpu_id": gpu_id, "hit_pids": context.hit })
        }
        Body::GpuResetEnd { gpu_id } => {
            json!({ "gpu_id": gpu_id, "hit_pids": context.hit, "reset_ns": context.lasted_ns })
        }
        Body::UserQueue(call) => user_queue(call),
        _ => return None,
    })
}

fn queue_update(update: &QueueUpdate) -> Value {
    let mut fields = serde_json::to_value(create(&update.now)).unwrap_or_default();
    if let Value::Object(fields) = &mut fields {
        fields.remove("origin");
        fields.insert("cu_mask".to_owned(), json!(update.cu_mask.as_ref().map(names::mask)));
        fields.insert("result".to_owned(), json!(update.errno.saturating_neg()));
        fields.insert("errno".to_owned(), json!(failed(update.errno)));
    }
    fields
}

fn mqd_write(queue_id: u32, gpu_id: Option<u32>, op: MqdOp) -> Value {
    json!({ "gpu_id": gpu_id, "queue_id": queue_id, "op": op.name() })
}

fn evicted(eviction: &Eviction) -> Value {
    json!({
        "gpu_id": eviction.gpu_id,
        "trigger": eviction.trigger.map(Trigger::name),
        "latency_ns": eviction.latency_ns,
        "errno": failed(eviction.errno),
    })
}

fn restored(eviction: &Eviction, context: &Context<'_>) -> Value {
    json!({
        "gpu_id": eviction.gpu_id,
        "evicted_ns": context.lasted_ns,
        "latency_ns": eviction.latency_ns,
        "errno": failed(eviction.errno),
    })
}

fn vm_fault(fault: &VmFault) -> Value {
    let access = fault.access;
    json!({
        "gpu_id": fault.gpu_id,
        "address": access.map(|access| hex(access.address)),
        "not_present": access.map(|access| access.not_present),
        "read_only": access.map(|access| access.read_only),
        "no_execute": access.map(|access| access.no_execute),
    })
}

fn user_queue(call: &UserQueueCall) -> Value {
    json!({
        "op": call.op,
        "queue_id": call.queue_id,
        "ip_type": call.ip_type,
        "ring_address": hex(call.ring_address),
        "ring_size": call.ring_size,
        "result": call.errno.saturating_neg(),
        "errno": failed(call.errno),
    })
}
