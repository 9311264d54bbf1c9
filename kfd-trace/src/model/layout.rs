//! This kernel's layout of `struct queue_properties`, and the values of its enums.

use super::event::{Origin, QueueFacts, QueueType};
use super::ioctl;

/// One member: offset from the start of `queue_properties`, and size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyField {
    pub offset: u32,
    pub size: u32,
}

macro_rules! layout {
    ($($(#[$doc:meta])* $field:ident = $member:literal,)*) => {
        /// Members of `queue_properties` (kfd_priv.h) that are shown; `None` if this kernel does not have
        /// one.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct QueueLayout {
            $($(#[$doc])* pub $field: Option<PropertyField>,)*
            /// `enum kfd_queue_type` of this kernel: the numbers differ between versions.
            pub types: Vec<(u32, QueueType)>,
            /// `KFD_QUEUE_FORMAT_AQL` of this kernel.
            pub format_aql: Option<u32>,
        }

        impl QueueLayout {
            /// Fills the members from a lookup in `queue_properties`.
            #[must_use]
            pub fn from_members(lookup: impl Fn(&str) -> Option<PropertyField>) -> Self {
                Self { $($field: lookup($member),)* types: Vec::new(), format_aql: None }
            }
        }
    };
}

layout! {
    kind = "type",
    format = "format",
    queue_id = "queue_id",
    ring_address = "queue_address",
    ring_size = "queue_size",
    priority = "priority",
    percent = "queue_percent",
    read_pointer = "read_ptr",
    write_pointer = "write_ptr",
    doorbell = "doorbell_off",
    sdma_engine_id = "sdma_engine_id",
    is_active = "is_active",
    is_evicted = "is_evicted",
    is_suspended = "is_suspended",
}

/// The driver's name of a queue type, and ours.
const TYPES: [(&str, QueueType); 6] = [
    ("KFD_QUEUE_TYPE_COMPUTE", QueueType::Compute),
    ("KFD_QUEUE_TYPE_SDMA", QueueType::Sdma),
    ("KFD_QUEUE_TYPE_HIQ", QueueType::Hiq),
    ("KFD_QUEUE_TYPE_DIQ", QueueType::Diq),
    ("KFD_QUEUE_TYPE_SDMA_XGMI", QueueType::SdmaXgmi),
    ("KFD_QUEUE_TYPE_SDMA_BY_ENG_ID", QueueType::SdmaByEngId),
];

const CREATE_QUEUE: u8 = 0x02;
const CRIU_OP: u8 = 0x22;

impl QueueLayout {
    /// Sets the values of this kernel's enums `kfd_queue_type` and `kfd_queue_format`.
    #[must_use]
    pub fn with_enums(mut self, types: &[(String, i64)], formats: &[(String, i64)]) -> Self {
        let ours = |name: &str| TYPES.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours);
        let known = types.iter().filter_map(|(name, value)| Some((u32::try_from(*value).ok()?, ours(name)?)));
        self.types = known.collect();
        let aql = formats.iter().find(|(name, _)| name == "KFD_QUEUE_FORMAT_AQL");
        self.format_aql = aql.and_then(|(_, value)| u32::try_from(*value).ok());
        self
    }

    /// The type for a number of this kernel's enum; sysfs shows these numbers, too. Without the enum, numbers
    /// that only one type of user queues has in any driver (`enum kfd_queue_type` in kfd_priv.h, with and
    /// without DIQ).
    #[must_use]
    pub fn queue_type(&self, raw: u32) -> QueueType {
        if self.types.is_empty() {
            return match raw {
                0 => QueueType::Compute,
                1 => QueueType::Sdma,
                // DIQ in older drivers, whose queues belong to no process.
                3 => QueueType::SdmaXgmi,
                // SDMA_XGMI, or without DIQ SDMA_BY_ENG_ID.
                raw => QueueType::Unknown(raw),
            };
        }
        self.types.iter().find(|(value, _)| *value == raw).map_or(QueueType::Unknown(raw), |(_, kind)| *kind)
    }

    /// The number of a type in this kernel's enum, if it has it.
    #[must_use]
    pub fn raw_type(&self, queue_type: QueueType) -> Option<u32> {
        self.types.iter().find(|(_, kind)| *kind == queue_type).map(|(value, _)| *value)
    }

    /// Decodes the bytes of a `queue_properties`; `ioctl` is the command that created the queue, 0 for none.
    #[must_use]
    pub fn queue(&self, properties: &[u8], gpu_id: Option<u32>, ioctl: u32) -> QueueFacts {
        let long = |place| number(properties, place);
        let short = |place| long(place).and_then(|value| u32::try_from(value).ok());
        let compute_aql = self.format_aql.is_some() && short(self.format) == self.format_aql;
        let queue_type = short(self.kind).map(|raw| match self.queue_type(raw) {
            QueueType::Compute if compute_aql => QueueType::ComputeAql,
            other => other,
        });
        QueueFacts {
            queue_id: short(self.queue_id),
            gpu_id,
            queue_type,
            ring_address: long(self.ring_address),
            ring_size: long(self.ring_size),
            write_pointer_address: long(self.write_pointer),
            read_pointer_address: long(self.read_pointer),
            doorbell_offset: short(self.doorbell),
            priority: short(self.priority),
            percent: short(self.percent),
            sdma_engine_id: short(self.sdma_engine_id),
            active: short(self.is_active).map(|flag| flag != 0),
            evicted: short(self.is_evicted).map(|flag| flag != 0),
            suspended: short(self.is_suspended).map(|flag| flag != 0),
            origin: match ioctl::nr(ioctl) {
                CREATE_QUEUE => Origin::Ioctl,
                CRIU_OP => Origin::Criu,
                _ => Origin::Other,
            },
        }
    }
}

/// A little-endian number of 1, 2, 4 or 8 bytes; `None` outside the given bytes.
fn number(bytes: &[u8], place: Option<PropertyField>) -> Option<u64> {
    let PropertyField { offset, size } = place?;
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    let source = bytes.get(start..end)?;
    let mut value = [0; 8];
    value.get_mut(..source.len())?.copy_from_slice(source);
    Some(u64::from_le_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> QueueLayout {
        let place = |member: &str| {
            let offset = match member {
                "type" => 0,
                "format" => 4,
                "queue_id" => 8,
                "queue_address" => 16,
                _ => return None,
            };
            Some(PropertyField { offset, size: if member == "queue_address" { 8 } else { 4 } })
        };
        let names =
            |list: &[(&str, i64)]| list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<Vec<_>>();
        QueueLayout::from_members(place).with_enums(
            &names(&[
                ("KFD_QUEUE_TYPE_COMPUTE", 0),
                ("KFD_QUEUE_TYPE_SDMA_XGMI", 3),
                ("KFD_QUEUE_TYPE_NEW", 9),
            ]),
            &names(&[("KFD_QUEUE_FORMAT_PM4", 0), ("KFD_QUEUE_FORMAT_AQL", 1)]),
        )
    }

    #[test]
    fn the_number_of_a_type_is_this_kernels() {
        assert_eq!(layout().raw_type(QueueType::SdmaXgmi), Some(3));
        assert_eq!(layout().raw_type(QueueType::Diq), None);
    }

    fn properties(kind: u32, format: u32) -> Vec<u8> {
        let words = [kind, format, 3, 0, 0xbeef_0000, 0x7f];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn aql_is_reported_by_the_format() {
        let queue = |kind, format| layout().queue(&properties(kind, format), Some(77), 0xc060_4b02);
        assert_eq!(queue(0, 1).queue_type, Some(QueueType::ComputeAql));
        assert_eq!(queue(0, 0).queue_type, Some(QueueType::Compute));
        assert_eq!(queue(3, 1).queue_type, Some(QueueType::SdmaXgmi));
        assert_eq!(queue(9, 1).queue_type, Some(QueueType::Unknown(9)));
        let queue = queue(0, 1);
        assert_eq!((queue.queue_id, queue.gpu_id, queue.origin), (Some(3), Some(77), Origin::Ioctl));
        assert_eq!(queue.ring_address, Some(0x7f_beef_0000));
        assert_eq!(queue.priority, None, "a member missing in the layout is not reported");
    }

    #[test]
    fn bytes_that_are_not_there_are_not_reported() {
        let queue = layout().queue(&properties(0, 1)[..12], None, 0);
        assert_eq!((queue.queue_id, queue.ring_address, queue.origin), (Some(3), None, Origin::Other));
        let queue = layout().queue(&[], None, 0);
        assert_eq!((queue.queue_id, queue.queue_type), (None, None));
    }
}
