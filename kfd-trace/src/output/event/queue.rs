//! Queues: created, changed, destroyed; MQD writes; queues of DRM.

use super::context::Context;
use crate::model::event::{Origin, QueueFacts, QueueType};
use crate::model::incident::{MqdOp, QueueUpdate, UserQueueCall, UserQueueOp};
use crate::model::queue::priority_level;
use crate::output::activity::{self, ActivityFields};
use crate::output::controls::{self, cus_per_engine};
use crate::output::names::{self, hex};
use crate::output::queue_fields::QueueFields;
use crate::state::Change;
use crate::text::clock::span;
use crate::text::errno;
use crate::text::errno::{failure, result};
use bytesize::ByteSize;
use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};
use std::fmt::Write as _;

#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct CreateFields {
    gpu_id: Option<u32>,
    #[cfg_attr(test, schemars(flatten))]
    queue: QueueFields,
    active: Option<bool>,
    evicted: Option<bool>,
    suspended: Option<bool>,
    /// `ioctl`, `criu`, `standing` or `other`.
    origin: &'static str,
}

impl Serialize for CreateFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("CreateFields", QueueFields::COUNT + 5)?;
        object.serialize_field("gpu_id", &self.gpu_id)?;
        self.queue.add_to(&mut object)?;
        object.serialize_field("active", &self.active)?;
        object.serialize_field("evicted", &self.evicted)?;
        object.serialize_field("suspended", &self.suspended)?;
        object.serialize_field("origin", &self.origin)?;
        object.end()
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct UpdateFields {
    gpu_id: Option<u32>,
    #[serde(flatten)]
    queue: QueueFields,
    active: Option<bool>,
    evicted: Option<bool>,
    suspended: Option<bool>,
    /// Words of 32 bits in hex, the lowest first; `null` when the call sets none.
    cu_mask: Option<Vec<String>>,
    /// CUs that this mask enables, by XCC and shader engine; `null` when these are not known.
    cus_per_engine: Option<Vec<Vec<u32>>>,
    /// The priority before; `null` when it is the same, or was not known.
    priority_before: Option<u32>,
    /// `low`, `normal` or `high`.
    priority_before_level: Option<&'static str>,
    /// `null` when the return was not seen.
    result: Option<i32>,
    errno: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DestroyFields {
    gpu_id: Option<u32>,
    queue_id: u32,
    queue_type: Option<&'static str>,
    /// `null` for a queue that was not known before.
    cause: Option<&'static str>,
    lifetime_ns: Option<u64>,
    activity: Option<ActivityFields>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DestroyFailedFields {
    gpu_id: Option<u32>,
    queue_id: u32,
    result: i32,
    errno: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MqdFields {
    gpu_id: Option<u32>,
    /// `init`, `update` or `restore`.
    op: &'static str,
    queue_id: u32,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct UserQueueFields {
    errno: Option<String>,
    /// `AMDGPU_HW_IP_*`: 0 gfx, 1 compute, 2 SDMA.
    ip_type: u32,
    /// `create`, `free`, or `null` for another operation.
    op: Option<&'static str>,
    queue_id: u32,
    result: i32,
    ring_address: String,
    ring_size: u64,
}

pub(super) fn create_fields(queue: &QueueFacts) -> CreateFields {
    CreateFields {
        gpu_id: queue.gpu_id,
        queue: queue.into(),
        active: queue.active,
        evicted: queue.evicted,
        suspended: queue.suspended,
        origin: names::origin(queue.origin),
    }
}

pub(super) fn update_fields(update: &QueueUpdate, context: &Context<'_>) -> UpdateFields {
    let mask = update.cu_mask.as_ref();
    UpdateFields {
        gpu_id: update.now.gpu_id,
        queue: (&update.now).into(),
        active: update.now.active,
        evicted: update.now.evicted,
        suspended: update.now.suspended,
        cu_mask: mask.map(names::mask),
        cus_per_engine: mask.and_then(|mask| cus_per_engine(mask, &update.now, context.topology)),
        priority_before: context.priority_before,
        priority_before_level: context.priority_before.and_then(priority_level),
        result: update.errno.map(i32::saturating_neg),
        errno: update.errno.and_then(failure),
    }
}

pub(super) fn destroy_fields(
    queue_id: u32,
    gpu_id: Option<u32>,
    mono_ns: u64,
    context: &Context<'_>,
) -> DestroyFields {
    let ended = context.ended(queue_id);
    DestroyFields {
        gpu_id: gpu_id.or(ended.and_then(|queue| queue.facts.gpu_id)),
        queue_id,
        queue_type: ended.and_then(|queue| queue.facts.queue_type).map(QueueType::name),
        cause: ended.and_then(|queue| queue.end).map(|end| end.cause.name()),
        lifetime_ns: ended.and_then(|queue| queue.age_ns(mono_ns)),
        activity: ended.and_then(|queue| ActivityFields::of(&queue.facts, &queue.activity)),
    }
}

pub(super) fn destroy_failed_fields(queue_id: u32, gpu_id: Option<u32>, errno: i32) -> DestroyFailedFields {
    DestroyFailedFields { gpu_id, queue_id, result: errno.saturating_neg(), errno: failure(errno) }
}

pub(super) fn mqd_fields(queue_id: u32, gpu_id: Option<u32>, op: MqdOp) -> MqdFields {
    MqdFields { gpu_id, op: op.name(), queue_id }
}

pub(super) fn user_queue_fields(call: &UserQueueCall) -> UserQueueFields {
    UserQueueFields {
        errno: failure(call.errno),
        ip_type: call.ip_type,
        op: call.op.map(UserQueueOp::name),
        queue_id: call.queue_id,
        result: call.errno.saturating_neg(),
        ring_address: hex(call.ring_address),
        ring_size: call.ring_size,
    }
}

fn name(queue_id: u32, gpu_id: Option<u32>, context: &Context<'_>) -> String {
    format!("{} id={queue_id}", context.gpu(gpu_id))
}

/// A queue, and the priority that it had before, if it is another one now.
pub(super) fn create(queue: &QueueFacts, context: &Context<'_>) -> String {
    let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
    let mut text = context.gpu(queue.gpu_id);
    let _ = write!(text, " id={}", or_unknown(queue.queue_id.map(|id| id.to_string())));
    let _ = write!(text, " type={}", queue.queue_type.map_or("?", |kind| kind.name()));
    let _ = write!(text, " ring={}", or_unknown(queue.ring_address.map(|at| format!("{at:#x}"))));
    if let Some(size) = queue.ring_size {
        let _ = write!(text, " {}", ByteSize(size).display().iec());
    }
    for (name, value) in [("wptr", queue.write_pointer_address), ("rptr", queue.read_pointer_address)] {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value:#x}");
        }
    }
    if let Some(priority) = queue.priority {
        let before = context.priority_before.map(|before| format!("{} -> ", names::priority(before)));
        let _ = write!(text, " prio={}{}", before.unwrap_or_default(), names::priority(priority));
    }
    for (name, value) in [("percent", queue.percent), ("engine", queue.sdma_engine_id)] {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value}");
        }
    }
    if queue.evicted == Some(true) {
        text.push_str(" evicted");
    }
    match queue.origin {
        Origin::Ioctl => {}
        Origin::Criu => text.push_str(" by CRIU"),
        Origin::Standing => text.push_str(" existing"),
        Origin::Other => text.push_str(" outside of an ioctl"),
    }
    text
}

pub(super) fn update(update: &QueueUpdate, context: &Context<'_>) -> String {
    let mut text = create(&update.now, context);
    if let Some(mask) = &update.cu_mask {
        let _ = write!(text, " cu_mask={}", controls::mask(mask, &update.now, context.topology));
    }
    if update.mask_unread {
        text.push_str(" cu_mask=?");
    }
    text + &update.errno.map_or_else(|| " no return seen".to_owned(), result)
}

pub(super) fn destroy(queue_id: u32, gpu_id: Option<u32>, context: &Context<'_>) -> String {
    let Some(known) = context.ended(queue_id) else {
        return format!("{} not known before", name(queue_id, gpu_id, context));
    };
    let mut text = name(queue_id, known.facts.gpu_id.or(gpu_id), context);
    let _ = write!(text, " type={}", known.facts.queue_type.map_or("?", |kind| kind.name()));
    if let Some(end) = known.end {
        let _ = write!(text, " cause={}", end.cause.name());
        if let Some(age) = known.age_ns(end.at_ns) {
            let _ = write!(text, " lived={}", span(age));
        }
        if let Some(done) = activity::whole(&known.facts, &known.activity) {
            let _ = write!(text, " {done}");
        }
    }
    text
}

pub(super) fn destroy_failed(
    queue_id: u32,
    gpu_id: Option<u32>,
    errno: i32,
    context: &Context<'_>,
) -> String {
    format!("{} = -{}, the queue still exists", name(queue_id, gpu_id, context), errno::name(errno))
}

pub(super) fn mqd(queue_id: u32, gpu_id: Option<u32>, op: MqdOp, context: &Context<'_>) -> String {
    format!("{} {}", name(queue_id, gpu_id, context), op.name())
}

pub(super) fn user_queue(call: &UserQueueCall) -> String {
    let mut text =
        format!("{} id={} ip={}", call.op.map_or("?", UserQueueOp::name), call.queue_id, call.ip_type);
    if call.ring_address != 0 {
        let _ = write!(text, " ring={:#x} {} bytes", call.ring_address, call.ring_size);
    }
    text + &result(call.errno)
}

pub(super) fn create_brief(queue: &QueueFacts) -> Vec<Option<String>> {
    vec![
        queue.queue_id.map(|id| format!("queue {id}")),
        queue.queue_type.map(|kind| kind.name().to_owned()),
        Some(format!("origin {}", names::origin(queue.origin))),
    ]
}

pub(super) fn destroy_brief(queue_id: u32, mono_ns: u64, change: &Change) -> Vec<Option<String>> {
    let ended = change.ended.iter().find(|queue| queue.queue_id == queue_id);
    let born_ns = ended.and_then(|queue| queue.born_ns);
    vec![
        Some(format!("queue {queue_id}")),
        ended.and_then(|queue| queue.facts.queue_type).map(|kind| kind.name().to_owned()),
        ended.and_then(|queue| queue.end).map(|end| format!("cause {}", end.cause.name())),
        born_ns.map(|born_ns| format!("after {}", span(mono_ns.saturating_sub(born_ns)))),
    ]
}

pub(super) fn destroy_failed_brief(queue_id: u32, errno: i32) -> Vec<Option<String>> {
    vec![Some(format!("queue {queue_id}")), failure(errno), Some("it still exists".to_owned())]
}

pub(super) fn user_queue_brief(call: &UserQueueCall) -> Vec<Option<String>> {
    let op = call.op.map_or("another operation", UserQueueOp::name);
    vec![Some(format!("{op}: DRM user queue {}", call.queue_id)), failure(call.errno)]
}
