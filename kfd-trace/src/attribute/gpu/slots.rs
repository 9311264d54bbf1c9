//! How many queues the hardware of a GPU can hold at once, by pool.

use super::Gpu;
use crate::model::event::QueueType;

/// Queues of one pool compete for the same slots (kfd_device_queue_manager.c: `get_cp_queues_num`,
/// `get_num_sdma_queues`, `get_num_xgmi_sdma_queues`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pool {
    /// Compute, on the command processor.
    Cp,
    /// SDMA engines for PCIe.
    Sdma,
    /// SDMA engines for xGMI.
    SdmaXgmi,
}

impl Pool {
    /// Every pool.
    pub const ALL: &'static [Pool] = &[Pool::Cp, Pool::Sdma, Pool::SdmaXgmi];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Pool::Cp => "cp",
            Pool::Sdma => "sdma",
            Pool::SdmaXgmi => "sdma_xgmi",
        }
    }

    /// The name in text.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Pool::Cp => "compute",
            Pool::Sdma => "SDMA",
            Pool::SdmaXgmi => "xGMI SDMA",
        }
    }

    /// The pool of a queue on this GPU; `None` for the driver's own queues and for unknown types.
    #[must_use]
    pub fn of(queue_type: Option<QueueType>, sdma_engine_id: Option<u32>, gpu: &Gpu) -> Option<Pool> {
        Some(match queue_type? {
            QueueType::Compute | QueueType::ComputeAql => Pool::Cp,
            QueueType::Sdma => Pool::Sdma,
            QueueType::SdmaXgmi => Pool::SdmaXgmi,
            // The engines for xGMI are numbered after those for PCIe (`allocate_sdma_queue`).
            QueueType::SdmaByEngId if sdma_engine_id? < gpu.num_sdma_engines? => Pool::Sdma,
            QueueType::SdmaByEngId => Pool::SdmaXgmi,
            QueueType::Hiq | QueueType::Diq | QueueType::Unknown(_) => return None,
        })
    }

    /// Whether a queue takes a slot of its pool. A compute queue does while it is on the runlist: evicted
    /// queues and those with percent, ring or size 0 are not counted (`active_cp_queue_count`). If there are
    /// more than slots, they run in turns. An SDMA queue holds its slot from creation to destruction
    /// (`allocate_sdma_queue`): a create without a free slot fails. `active`: `None` is not known, and
    /// counts.
    #[must_use]
    pub fn takes(self, active: Option<bool>) -> bool {
        self != Pool::Cp || active != Some(false)
    }
}

/// Slots of each pool; `None`: not reported by this kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    pub cp: Option<u32>,
    pub sdma: Option<u32>,
    pub sdma_xgmi: Option<u32>,
}

impl Slots {
    #[must_use]
    pub fn of(self, pool: Pool) -> Option<u32> {
        match pool {
            Pool::Cp => self.cp,
            Pool::Sdma => self.sdma,
            Pool::SdmaXgmi => self.sdma_xgmi,
        }
    }
}

impl Gpu {
    /// The budget of this GPU.
    #[must_use]
    pub fn slots(&self) -> Slots {
        let queues = |engines: Option<u32>| engines?.checked_mul(self.num_sdma_queues_per_engine?);
        Slots {
            cp: self.num_cp_queues,
            sdma: queues(self.num_sdma_engines),
            sdma_xgmi: queues(self.num_sdma_xgmi_engines),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_the_drivers() {
        let gpu = Gpu {
            num_sdma_engines: Some(2),
            num_sdma_xgmi_engines: Some(6),
            num_sdma_queues_per_engine: Some(8),
            num_cp_queues: Some(24),
            ..Gpu::default()
        };
        assert_eq!(gpu.slots(), Slots { cp: Some(24), sdma: Some(16), sdma_xgmi: Some(48) });
        let by_engine = |engine| Pool::of(Some(QueueType::SdmaByEngId), engine, &gpu);
        assert_eq!(
            [by_engine(Some(1)), by_engine(Some(2)), by_engine(None)],
            [Some(Pool::Sdma), Some(Pool::SdmaXgmi), None]
        );
        assert_eq!(Pool::of(Some(QueueType::ComputeAql), None, &gpu), Some(Pool::Cp));
        assert_eq!(Pool::of(Some(QueueType::Hiq), None, &gpu), None);
        let incomplete = Gpu { num_sdma_queues_per_engine: None, ..gpu };
        assert_eq!(incomplete.slots().sdma, None);
    }

    #[test]
    fn only_compute_queues_leave_their_slot_while_they_live() {
        assert!(!Pool::Cp.takes(Some(false)) && Pool::Cp.takes(None) && Pool::Cp.takes(Some(true)));
        assert!(Pool::Sdma.takes(Some(false)) && Pool::SdmaXgmi.takes(Some(false)));
    }
}
