//! Compares queues with the slots of the hardware.

use crate::attribute::{Gpu, Pool, Topology};
use crate::model::event::QueueType;
use crate::state::{Queue, Snapshot};
use std::collections::BTreeMap;

/// Properties of a live queue that determine its slot.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub gpu_id: Option<u32>,
    pub queue_type: Option<QueueType>,
    pub sdma_engine_id: Option<u32>,
    pub active: Option<bool>,
}

impl From<&Queue> for Claim {
    fn from(queue: &Queue) -> Self {
        let facts = &queue.facts;
        Claim {
            gpu_id: facts.gpu_id,
            queue_type: facts.queue_type,
            sdma_engine_id: facts.sdma_engine_id,
            active: facts.active,
        }
    }
}

/// Queues that take a slot ([`Pool::takes`]), by gpu_id and pool.
#[derive(Clone, Debug, Default)]
pub struct Budget(BTreeMap<(u32, Pool), u32>);

impl Budget {
    #[must_use]
    pub fn of_snapshot(snapshot: &Snapshot, topology: &Topology) -> Self {
        Self::count(snapshot.queues().map(|(_, queue)| queue.into()), topology)
    }

    #[must_use]
    pub fn count(claims: impl Iterator<Item = Claim>, topology: &Topology) -> Self {
        let mut used = BTreeMap::new();
        for claim in claims {
            let Some(gpu) = claim.gpu_id.and_then(|id| topology.gpu(id)) else { continue };
            let pool = Pool::of(claim.queue_type, claim.sdma_engine_id, gpu);
            if let Some(pool) = pool.filter(|pool| pool.takes(claim.active)) {
                *used.entry((gpu.gpu_id, pool)).or_default() += 1;
            }
        }
        Budget(used)
    }

    /// Slots requested.
    #[must_use]
    pub fn used(&self, gpu: &Gpu, pool: Pool) -> u32 {
        self.0.get(&(gpu.gpu_id, pool)).copied().unwrap_or(0)
    }

    /// For example `gpu 3 (0000:c1:00.0, gfx942): 26 of 24 compute slots (oversubscribed), 3 of 16 SDMA
    /// slots`. Pools that the GPU does not have are omitted.
    #[must_use]
    pub fn line(&self, gpu: &Gpu) -> String {
        let slots = gpu.slots();
        let pool = |pool: &Pool| {
            let (used, slots) = (self.used(gpu, *pool), slots.of(*pool));
            let over = if slots.is_some_and(|slots| used > slots) { " (oversubscribed)" } else { "" };
            match slots {
                Some(0) if used == 0 => None,
                None if used == 0 => None,
                Some(slots) => Some(format!("{used} of {slots} {} slots{over}", pool.words())),
                None => Some(format!("{used} of ? {} slots", pool.words())),
            }
        };
        let pools: Vec<String> = Pool::ALL.iter().filter_map(pool).collect();
        let pools = if pools.is_empty() { "slots unknown".to_owned() } else { pools.join(", ") };
        format!("{}: {pools}", gpu.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples::topology;

    fn claim(queue_type: QueueType, active: Option<bool>) -> Claim {
        Claim { gpu_id: Some(58270), queue_type: Some(queue_type), sdma_engine_id: None, active }
    }

    fn line(claims: Vec<Claim>, gpu: &Gpu) -> String {
        Budget::count(claims.into_iter(), &Topology { gpus: vec![gpu.clone()], errors: vec![] }).line(gpu)
    }

    #[test]
    fn more_active_compute_queues_than_slots_is_oversubscribed() {
        let gpu = topology().gpus.remove(0);
        let active = |count| vec![claim(QueueType::ComputeAql, Some(true)); count];
        let expected = "gpu 0 (0000:c1:00.0, gfx942): 24 of 24 compute slots, 0 of 16 SDMA slots";
        assert_eq!(line(active(24), &gpu), expected);
        let mut claims = active(25);
        claims.extend([claim(QueueType::Compute, None), claim(QueueType::Compute, Some(false))]);
        claims.extend([claim(QueueType::Sdma, Some(false)), Claim { gpu_id: Some(9), ..claims[0] }]);
        let expected =
            "gpu 0 (0000:c1:00.0, gfx942): 26 of 24 compute slots (oversubscribed), 1 of 16 SDMA slots";
        assert_eq!(line(claims, &gpu), expected);
    }

    #[test]
    fn an_unknown_budget_is_not_invented() {
        let gpu = Gpu { num_cp_queues: None, num_sdma_engines: None, ..topology().gpus.remove(0) };
        assert_eq!(line(vec![], &gpu), "gpu 0 (0000:c1:00.0, gfx942): slots unknown");
        let one = line(vec![claim(QueueType::Compute, Some(true))], &gpu);
        assert_eq!(one, "gpu 0 (0000:c1:00.0, gfx942): 1 of ? compute slots");
    }
}
