//! Fields of a queue in JSON, shared by events, `ps` and the API.

use super::names::Hex;
use crate::model::event::{QueueFacts, QueueType};
use crate::model::queue::priority_level;
use serde::Serialize;

/// Flattened into the objects that describe a queue; `null` is "not known". `gpu_id`, `active`, `evicted`
/// and `suspended` are separate fields of those objects.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct QueueFields {
    queue_id: Option<u32>,
    queue_type: Option<&'static str>,
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    ring_address: Option<Hex>,
    ring_size: Option<u64>,
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    write_pointer_address: Option<Hex>,
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    read_pointer_address: Option<Hex>,
    doorbell_offset: Option<u32>,
    priority: Option<u32>,
    /// `low`, `normal` or `high`.
    priority_level: Option<&'static str>,
    percent: Option<u32>,
    sdma_engine_id: Option<u32>,
}

impl From<&QueueFacts> for QueueFields {
    fn from(queue: &QueueFacts) -> Self {
        QueueFields {
            queue_id: queue.queue_id,
            queue_type: queue.queue_type.map(QueueType::name),
            ring_address: queue.ring_address.map(Hex),
            ring_size: queue.ring_size,
            write_pointer_address: queue.write_pointer_address.map(Hex),
            read_pointer_address: queue.read_pointer_address.map(Hex),
            doorbell_offset: queue.doorbell_offset,
            priority: queue.priority,
            priority_level: queue.priority.and_then(priority_level),
            percent: queue.percent,
            sdma_engine_id: queue.sdma_engine_id,
        }
    }
}
