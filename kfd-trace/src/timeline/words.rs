//! What is written beside an event: names of GPUs, and all that the stream shows of it.

use crate::model::event::Event;
use crate::output::event::context::Context;
use crate::output::event::json;
use crate::recording::Replay;
use crate::state::Change;
use serde_json::Value;

pub(super) fn label(replay: &Replay, gpu_id: Option<u32>) -> String {
    let Some(id) = gpu_id else { return "gpu ?".to_owned() };
    replay.topology.label(id).unwrap_or_else(|| format!("gpu_id={id}"))
}

/// The same without its address.
pub(super) fn short(replay: &Replay, gpu_id: Option<u32>) -> String {
    let known = gpu_id.and_then(|id| replay.topology.gpu(id)).map(|gpu| format!("gpu {}", gpu.index));
    known.unwrap_or_else(|| label(replay, gpu_id))
}

/// What the stream shows of an event, without what its place in the trace shows.
pub(super) fn about(replay: &Replay, event: &Event, change: &Change) -> Value {
    let context = Context::of_replay(replay, event, change);
    let mut about = serde_json::to_value(json::line(event, &context)).unwrap_or_default();
    if let Value::Object(fields) = &mut about {
        for name in ["schema", "ts", "mono_ns", "event", "comm"] {
            fields.remove(name);
        }
    }
    about
}
