//! What sysfs lists of the driver, to compare its structures with. In: two readings. Out: whether they agree in something,
//! and what they have in common. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// What sysfs lists of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// PASID by tgid; `None` where sysfs does not show one.
    pub processes: BTreeMap<u32, Option<u32>>,
    pub queues: BTreeMap<(u32, u32), ListedQueue>,
    /// `None`: the topology cannot be read whole (the device cgroup hides GPUs).
    pub gpu_ids: Option<BTreeSet<u32>>,
}

/// A queue in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedQueue {
    pub gpu_id: Option<u32>,
    pub size: Option<u64>,
    /// A number of the driver's `enum kfd_queue_type`.
    pub queue_type: Option<u32>,
    /// Distinguishes it from an earlier queue of its id; `None`: a copy of sysfs does not.
    pub birth: Option<u64>,
}

/// What a mismatch is drawn from beside kernel memory: where that has changed meanwhile, it proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rests {
    Memory,
    Processes,
    Gpus,
    QueuesOf(u32),
}

impl Listing {
    pub(super) fn has_gpu(&self, gpu_id: u32) -> bool {
        self.gpu_ids.as_ref().is_none_or(|all| all.contains(&gpu_id))
    }

    /// Whether two readings agree in what a mismatch rests on.
    #[must_use]
    pub fn agrees(&self, other: &Self, rests: Rests) -> bool {
        match rests {
            Rests::Memory => true,
            Rests::Processes => self.processes == other.processes,
            Rests::Gpus => self.gpu_ids == other.gpu_ids,
            Rests::QueuesOf(tgid) => {
                let own = (tgid, 0)..=(tgid, u32::MAX);
                self.queues.range(own.clone()).eq(other.queues.range(own))
            }
        }
    }

    /// What two readings have in common; a process or a GPU need only be in one of them.
    #[must_use]
    pub fn common(before: Self, mut after: Self) -> Self {
        after.queues.retain(|key, queue| before.queues.get(key) == Some(queue));
        let pasids = before.processes.into_iter().filter(|(tgid, _)| !after.processes.contains_key(tgid));
        let pasids: Vec<_> = pasids.collect();
        after.processes.extend(pasids);
        after.gpu_ids = after.gpu_ids.zip(before.gpu_ids).map(|(after, before)| &after | &before);
        after
    }
}
