//! Fields of a queue in JSON, shared by events, `ps` and the API.

use super::names::Hex;
use crate::model::event::{QueueFacts, QueueType};
use crate::model::queue::priority_level;
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// Flattened into the objects that describe a queue; `null` is "not known". `gpu_id`, `active`, `evicted`
/// and `suspended` are separate fields of those objects.
#[derive(Debug, Default)]
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

impl QueueFields {
    /// How many there are.
    pub(super) const COUNT: usize = 11;

    /// Adds them to an object: an event that adds its own ones so takes half of what it takes by serde's `flatten`.
    pub(super) fn add_to<O: SerializeStruct>(&self, object: &mut O) -> Result<(), O::Error> {
        object.serialize_field("queue_id", &self.queue_id)?;
        object.serialize_field("queue_type", &self.queue_type)?;
        object.serialize_field("ring_address", &self.ring_address)?;
        object.serialize_field("ring_size", &self.ring_size)?;
        object.serialize_field("write_pointer_address", &self.write_pointer_address)?;
        object.serialize_field("read_pointer_address", &self.read_pointer_address)?;
        object.serialize_field("doorbell_offset", &self.doorbell_offset)?;
        object.serialize_field("priority", &self.priority)?;
        object.serialize_field("priority_level", &self.priority_level)?;
        object.serialize_field("percent", &self.percent)?;
        object.serialize_field("sdma_engine_id", &self.sdma_engine_id)
    }
}

impl Serialize for QueueFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("QueueFields", Self::COUNT)?;
        self.add_to(&mut object)?;
        object.end()
    }
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
