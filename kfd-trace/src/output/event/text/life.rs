//! Lines of events between a queue's creation and its end, and of events of its GPU.

use super::{gpu, latency, queue, queue_create, span};
use crate::model::event::Body;
use crate::model::incident::{Eviction, QueueUpdate, Trigger, UserQueueCall, VmFault};
use crate::output::event::context::Context;
use crate::text::errno;
use std::fmt::Write as _;

/// `None` for kinds whose line is defined elsewhere.
pub(crate) fn detail(body: &Body, context: &Context<'_>) -> Option<String> {
    Some(match body {
        Body::QueueUpdate(update) => queue_update(update, context),
        Body::MqdWrite { queue_id, gpu_id, op } => {
            format!("{} {}", queue(*queue_id, *gpu_id, context), op.name())
        }
        Body::Evict(eviction) => evicted(eviction, context),
        Body::Restore(eviction) => restored(eviction, context),
        Body::VmFault(fault) => vm_fault(fault, context),
        Body::GpuResetBegin { gpu_id } => format!("{} begins{}", gpu(*gpu_id, context), hit(context)),
        Body::GpuResetEnd { gpu_id } => {
            let took = context.lasted_ns.map_or_else(String::new, |ns| format!(" after {}", span(ns)));
            format!("{} ends{took}{}", gpu(*gpu_id, context), hit(context))
        }
        Body::HwsHang { gpu_id } => {
            format!("{} the scheduler does not answer{}", gpu(*gpu_id, context), hit(context))
        }
        Body::UserQueue(call) => user_queue(call),
        _ => return None,
    })
}

/// The processes that have queues on the GPU.
fn hit(context: &Context<'_>) -> String {
    if context.hit.is_empty() {
        return ", nobody has queues on it".to_owned();
    }
    let pids: Vec<String> = context.hit.iter().map(u32::to_string).collect();
    format!(", hits pid {}", pids.join(" "))
}

fn queue_update(update: &QueueUpdate, context: &Context<'_>) -> String {
    let mut text = queue_create(&update.now, context);
    if let Some(mask) = &update.cu_mask {
        let _ = write!(text, " cu_mask={} of {} CUs", mask.enabled(), 32 * mask.words.len());
    }
    text += &failed(update.errno);
    text
}

fn failed(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(" = -{}", errno::name(errno)) }
}

fn evicted(eviction: &Eviction, context: &Context<'_>) -> String {
    let trigger = eviction.trigger.map_or("?", Trigger::name);
    let (gpu, errno) = (gpu(eviction.gpu_id, context), failed(eviction.errno));
    format!("{gpu} trigger={trigger} <{}>{errno}", latency(eviction.latency_ns))
}

fn restored(eviction: &Eviction, context: &Context<'_>) -> String {
    let after = context.lasted_ns.map_or_else(|| "after ?".to_owned(), |ns| format!("after {}", span(ns)));
    let (gpu, errno) = (gpu(eviction.gpu_id, context), failed(eviction.errno));
    format!("{gpu} {after} <{}>{errno}", latency(eviction.latency_ns))
}

fn vm_fault(fault: &VmFault, context: &Context<'_>) -> String {
    let mut text = gpu(fault.gpu_id, context);
    let Some(access) = fault.access else { return text + " address not told" };
    let _ = write!(text, " address={:#x}", access.address);
    for (told, word) in [
        (access.not_present, "not present"),
        (access.read_only, "read only"),
        (access.no_execute, "no execute"),
    ] {
        if told {
            let _ = write!(text, ", {word}");
        }
    }
    text
}

fn user_queue(call: &UserQueueCall) -> String {
    let op = call.op.unwrap_or("?");
    let mut text = format!("{op} id={} ip={}", call.queue_id, call.ip_type);
    if call.ring_address != 0 {
        let _ = write!(text, " ring={:#x} {} bytes", call.ring_address, call.ring_size);
    }
    text + &failed(call.errno)
}
