//! A queue as records, ioctls and the driver's lists report it.

use serde::{Deserialize, Serialize};

/// What is known of a queue. `None` means that this kernel does not report the value, never 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueFacts {
    /// `None` if `queue_properties` could not be read: then all fields below are `None`, too.
    pub queue_id: Option<u32>,
    pub gpu_id: Option<u32>,
    pub queue_type: Option<QueueType>,
    /// GPU virtual address of the ring (user's view).
    pub ring_address: Option<u64>,
    /// Bytes.
    pub ring_size: Option<u64>,
    /// User address of the write pointer (AQL: `write_dispatch_id`).
    pub write_pointer_address: Option<u64>,
    /// User address of the read pointer.
    pub read_pointer_address: Option<u64>,
    /// Offset of the doorbell in the device's doorbell aperture, in dwords.
    pub doorbell_offset: Option<u32>,
    /// 0..=15.
    pub priority: Option<u32>,
    /// 0..=100.
    pub percent: Option<u32>,
    pub sdma_engine_id: Option<u32>,
    /// It is on the runlist: neither evicted nor suspended, and its ring, size and percent are not 0.
    pub active: Option<bool>,
    /// Its process is evicted from this GPU.
    pub evicted: Option<bool>,
    /// A debugger has suspended it. `None` also where the driver has no such debugger.
    pub suspended: Option<bool>,
    /// Created by the CREATE_QUEUE ioctl, by CRIU restore, or found as an existing queue.
    pub origin: Origin,
}

impl QueueFacts {
    /// A queue of which nothing is reported yet.
    #[must_use]
    pub fn unknown(origin: Origin) -> Self {
        QueueFacts {
            queue_id: None,
            gpu_id: None,
            queue_type: None,
            ring_address: None,
            ring_size: None,
            write_pointer_address: None,
            read_pointer_address: None,
            doorbell_offset: None,
            priority: None,
            percent: None,
            sdma_engine_id: None,
            active: None,
            evicted: None,
            suspended: None,
            origin,
        }
    }

    /// Fills in unreported fields; known ones stay, and so do id and origin.
    pub fn absorb(&mut self, other: &QueueFacts) {
        self.gpu_id = self.gpu_id.or(other.gpu_id);
        self.queue_type = QueueType::finer(self.queue_type, other.queue_type);
        self.ring_address = self.ring_address.or(other.ring_address);
        self.ring_size = self.ring_size.or(other.ring_size);
        self.write_pointer_address = self.write_pointer_address.or(other.write_pointer_address);
        self.read_pointer_address = self.read_pointer_address.or(other.read_pointer_address);
        self.doorbell_offset = self.doorbell_offset.or(other.doorbell_offset);
        self.priority = self.priority.or(other.priority);
        self.percent = self.percent.or(other.percent);
        self.sdma_engine_id = self.sdma_engine_id.or(other.sdma_engine_id);
        self.active = self.active.or(other.active);
        self.evicted = self.evicted.or(other.evicted);
        self.suspended = self.suspended.or(other.suspended);
    }
}

/// Bytes of the ring of ROCr's utility queue, the least that there is (amd_gpu_agent.cpp, `QueueUtility`). HIP's are
/// larger.
const RUNTIME_RING: u64 = 4096;

/// Whether this is the runtime's own queue, which none of its logs shows: on each GPU ROCr makes one with the smallest
/// ring before any other AQL queue (`GpuAgent::QueueCreate`). `of_process`: the live queues of the same process.
/// `None` where what it takes is not reported, and where several have such a ring: ROCr may have more of them (copies
/// without SDMA, sampling), or the application.
pub fn is_of_runtime<'a>(
    queue: &QueueFacts,
    mut of_process: impl Iterator<Item = &'a QueueFacts>,
) -> Option<bool> {
    if !may_be_of_runtime(queue) {
        return Some(false);
    }
    let (Some(QueueType::ComputeAql), Some(_), Some(gpu_id)) =
        (queue.queue_type, queue.ring_size, queue.gpu_id)
    else {
        return None;
    };
    let another = |other: &QueueFacts| {
        other.queue_id != queue.queue_id
            && other.gpu_id.is_none_or(|other| other == gpu_id)
            && may_be_of_runtime(other)
    };
    if of_process.any(another) { None } else { Some(true) }
}

/// What is reported does not rule it out. sysfs alone does not tell AQL from PM4.
fn may_be_of_runtime(queue: &QueueFacts) -> bool {
    let aql = |kind| matches!(kind, QueueType::ComputeAql | QueueType::Compute);
    queue.queue_type.is_none_or(aql) && queue.ring_size.is_none_or(|bytes| bytes == RUNTIME_RING)
}

/// What a priority of 0 to 15 is to the hardware (`pipe_priority_map`, kfd_mqd_manager.c): it decides between queues
/// whose waves compete for the same units. Up to 6.12 and in ROCm's drivers the number also orders the queues of
/// one level; later drivers use the level alone.
#[must_use]
pub const fn priority_level(priority: u32) -> Option<&'static str> {
    match priority {
        0..=6 => Some("low"),
        7..=10 => Some("normal"),
        11..=15 => Some("high"),
        _ => None,
    }
}

/// How a queue became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Ioctl,
    Criu,
    /// It existed before the tracer started.
    Standing,
    /// Created by neither ioctl.
    Other,
}

/// Kind of a queue: the kernel's enum, with AQL distinguished by the format field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueType {
    Compute,
    ComputeAql,
    Sdma,
    SdmaXgmi,
    SdmaByEngId,
    Hiq,
    Diq,
    /// A value that this kernel's own enum does not define.
    Unknown(u32),
}

impl QueueType {
    /// The type in the driver's own enum, which sysfs shows; the format of packets is elsewhere.
    #[must_use]
    pub fn of_driver(self) -> Self {
        if self == QueueType::ComputeAql { QueueType::Compute } else { self }
    }

    /// The driver's own queues, of no process.
    #[must_use]
    pub fn is_drivers_own(self) -> bool {
        matches!(self, QueueType::Hiq | QueueType::Diq)
    }

    /// Name in JSON and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueueType::Compute => "compute",
            QueueType::ComputeAql => "compute_aql",
            QueueType::Sdma => "sdma",
            QueueType::SdmaXgmi => "sdma_xgmi",
            QueueType::SdmaByEngId => "sdma_by_eng_id",
            QueueType::Hiq => "hiq",
            QueueType::Diq => "diq",
            QueueType::Unknown(_) => "unknown",
        }
    }

    /// The type of a name; `None` also of those that the driver's enum does not define.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = [
            QueueType::Compute,
            QueueType::ComputeAql,
            QueueType::Sdma,
            QueueType::SdmaXgmi,
            QueueType::SdmaByEngId,
            QueueType::Hiq,
            QueueType::Diq,
        ];
        all.into_iter().find(|kind| kind.name() == name)
    }

    /// The more specific of the sysfs type ([`Self::of_driver`]) and another type.
    #[must_use]
    pub fn finer(known: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (known, other) {
            (Some(QueueType::Compute) | None, Some(QueueType::ComputeAql)) => Some(QueueType::ComputeAql),
            (known, other) => known.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported() -> QueueFacts {
        QueueFacts {
            queue_id: Some(1),
            gpu_id: Some(2),
            queue_type: Some(QueueType::ComputeAql),
            ring_address: Some(3),
            ring_size: Some(4),
            write_pointer_address: Some(5),
            read_pointer_address: Some(6),
            doorbell_offset: Some(7),
            priority: Some(8),
            percent: Some(9),
            sdma_engine_id: Some(10),
            active: Some(true),
            evicted: Some(false),
            suspended: Some(false),
            origin: Origin::Ioctl,
        }
    }

    #[test]
    fn absorbing_fills_every_gap() {
        let mut queue = QueueFacts { queue_id: Some(1), ..QueueFacts::unknown(Origin::Standing) };
        queue.absorb(&reported());
        assert_eq!(queue, QueueFacts { origin: Origin::Standing, ..reported() });
    }

    #[test]
    fn absorbing_keeps_what_is_known_but_for_a_finer_type() {
        let other = QueueFacts {
            gpu_id: Some(99),
            queue_type: Some(QueueType::Compute),
            ring_address: Some(99),
            active: Some(false),
            evicted: Some(true),
            suspended: Some(true),
            origin: Origin::Standing,
            ..reported()
        };
        let mut queue = reported();
        queue.absorb(&other);
        assert_eq!(queue, reported());
        let mut coarse = other.clone();
        coarse.absorb(&reported());
        assert_eq!(coarse, QueueFacts { queue_type: Some(QueueType::ComputeAql), ..other });
    }

    #[test]
    fn the_only_aql_queue_of_a_gpu_with_the_smallest_ring_is_the_runtimes() {
        let queue = |queue_id, gpu_id, queue_type, ring_size| QueueFacts {
            queue_id: Some(queue_id),
            gpu_id: Some(gpu_id),
            queue_type,
            ring_size: Some(ring_size),
            ..QueueFacts::unknown(Origin::Standing)
        };
        let aql = Some(QueueType::ComputeAql);
        let all = [
            queue(0, 7, Some(QueueType::Sdma), 4096),
            queue(1, 7, aql, 1 << 20),
            queue(2, 7, aql, 4096),
            queue(3, 8, aql, 4096),
            queue(4, 8, aql, 4096),
            queue(5, 9, Some(QueueType::Compute), 4096),
            queue(6, 9, aql, 4096),
            queue(7, 9, None, 1 << 20),
            QueueFacts { ring_size: None, ..queue(8, 10, aql, 0) },
        ];
        let marks = all.each_ref().map(|queue| is_of_runtime(queue, all.iter()));
        let [no, yes] = [false, true].map(Some);
        assert_eq!(marks, [no, no, yes, None, None, None, None, no, None]);
    }
}
