//! Compares queues with the slots of the hardware.

use crate::attribute::{Gpu, Pool, Topology};
use crate::model::event::QueueType;
use crate::state::{Queue, Snapshot};
use std::collections::BTreeMap;

/// Properties of a live queue that determine its slot.
#[derive(Clone, Copy, Debug, PartialEq)]
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

/// The slots of one pool, requested and existing; `None` is "not known".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    pub pool: Pool,
    pub used: Option<u32>,
    pub slots: Option<u32>,
}

impl PoolUse {
    /// More queues are to run than there are slots.
    #[must_use]
    pub fn oversubscribed(&self) -> bool {
        self.used.zip(self.slots).is_some_and(|(used, slots)| used > slots)
    }

    /// The two counts; `?` is "not known".
    #[must_use]
    pub fn counts(&self) -> [String; 2] {
        [self.used, self.slots].map(|count| count.map_or_else(|| "?".to_owned(), |count| count.to_string()))
    }
}

/// Queues that take a slot ([`Pool::takes`]).
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// By gpu_id and pool.
    used: BTreeMap<(u32, Pool), u32>,
    /// Queues that may be in any pool, by gpu_id; without one they may be in any pool of any GPU.
    anywhere: BTreeMap<Option<u32>, u32>,
    /// There may be more queues than were counted.
    incomplete: bool,
}

impl Budget {
    #[must_use]
    pub fn of_snapshot(snapshot: &Snapshot, topology: &Topology) -> Self {
        // A process has many queues and few claims.
        let mut different: Vec<(Claim, u32)> = Vec::new();
        let mut budget = Budget::default();
        for process in snapshot.live() {
            for claim in process.queues.values().map(Claim::from) {
                match different.iter_mut().find(|(known, _)| *known == claim) {
                    Some((_, count)) => *count += 1,
                    None => different.push((claim, 1)),
                }
            }
            different.drain(..).for_each(|(claim, count)| budget.add(claim, count, topology));
        }
        budget
    }

    #[must_use]
    pub fn count(claims: impl Iterator<Item = Claim>, topology: &Topology) -> Self {
        let mut budget = Budget::default();
        claims.for_each(|claim| budget.add(claim, 1, topology));
        budget
    }

    /// There may be more queues: how many slots are in use is not known.
    #[must_use]
    pub fn incomplete(self) -> Self {
        Budget { incomplete: true, ..self }
    }

    fn add(&mut self, claim: Claim, count: u32, topology: &Topology) {
        if claim.queue_type.is_some_and(QueueType::is_drivers_own) {
            return;
        }
        let gpu = claim.gpu_id.map(|id| topology.gpu(id));
        let pool = gpu.flatten().and_then(|gpu| Pool::of(claim.queue_type, claim.sdma_engine_id, gpu));
        match (claim.gpu_id, pool) {
            (Some(gpu_id), Some(pool)) if pool.takes(claim.active) => {
                *self.used.entry((gpu_id, pool)).or_default() += count;
            }
            (Some(_), Some(_)) => {}
            (gpu_id, _) => *self.anywhere.entry(gpu_id).or_default() += count,
        }
    }

    /// Slots requested; `None` if the pool of a queue that may be on this GPU is not known, or not all queues are.
    #[must_use]
    pub fn used(&self, gpu: &Gpu, pool: Pool) -> Option<u32> {
        let known = self.used.get(&(gpu.gpu_id, pool)).copied().unwrap_or(0);
        (self.of_unknown_pool(gpu) == 0 && !self.incomplete).then_some(known)
    }

    /// Queues that may be on this GPU and whose pool is not known.
    fn of_unknown_pool(&self, gpu: &Gpu) -> u32 {
        [Some(gpu.gpu_id), None].iter().filter_map(|place| self.anywhere.get(place)).sum()
    }

    /// Each pool that the GPU has.
    #[must_use]
    pub fn pools(&self, gpu: &Gpu) -> Vec<PoolUse> {
        let slots = gpu.slots();
        let of = |pool: &Pool| PoolUse { pool: *pool, used: self.used(gpu, *pool), slots: slots.of(*pool) };
        let has = |one: &PoolUse| one.used.unwrap_or(0) > 0 || one.slots.unwrap_or(0) > 0;
        Pool::ALL.iter().map(of).filter(has).collect()
    }

    /// For example `gpu 3 (0000:c1:00.0, gfx942): 26 of 24 compute slots (oversubscribed), 3 of 16 SDMA
    /// slots`. Pools that the GPU does not have are omitted. Where the type of a queue is not known,
    /// `? of 24 compute slots, ? of 16 SDMA slots (types of 3 queues unknown)`.
    #[must_use]
    pub fn line(&self, gpu: &Gpu) -> String {
        let words = |one: &PoolUse| {
            let over = if one.oversubscribed() { " (oversubscribed)" } else { "" };
            let [used, slots] = one.counts();
            format!("{used} of {slots} {} slots{over}", one.pool.words())
        };
        let pools: Vec<String> = self.pools(gpu).iter().map(words).collect();
        let pools = if pools.is_empty() { "slots unknown".to_owned() } else { pools.join(", ") };
        let unknown = match self.of_unknown_pool(gpu) {
            _ if self.incomplete => " (not all queues are known)".to_owned(),
            0 => String::new(),
            1 => " (type of 1 queue unknown)".to_owned(),
            queues => format!(" (types of {queues} queues unknown)"),
        };
        format!("{}: {pools}{unknown}", gpu.label())
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
    fn a_queue_of_unknown_type_may_be_in_any_pool() {
        let gpu = topology().gpus.remove(0);
        let known = claim(QueueType::Compute, None);
        let unknown = Claim { queue_type: None, ..known };
        let expected = "gpu 0 (0000:c1:00.0, gfx942): ? of 24 compute slots, ? of 16 SDMA slots";
        assert_eq!(line(vec![known, unknown], &gpu), format!("{expected} (type of 1 queue unknown)"));
        let elsewhere = Claim { gpu_id: Some(9), ..unknown };
        assert!(line(vec![known, elsewhere], &gpu).contains(" 1 of 24 compute slots"));
        let anywhere = [claim(QueueType::Unknown(7), None), Claim { gpu_id: None, ..known }].to_vec();
        assert_eq!(line(anywhere, &gpu), format!("{expected} (types of 2 queues unknown)"));
        assert!(line(vec![claim(QueueType::Hiq, None)], &gpu).contains(" 0 of 24 compute slots"));
    }

    #[test]
    fn an_unknown_budget_is_not_invented() {
        let gpu = Gpu { num_cp_queues: None, num_sdma_engines: None, ..topology().gpus.remove(0) };
        assert_eq!(line(vec![], &gpu), "gpu 0 (0000:c1:00.0, gfx942): slots unknown");
        let one = line(vec![claim(QueueType::Compute, Some(true))], &gpu);
        assert_eq!(one, "gpu 0 (0000:c1:00.0, gfx942): 1 of ? compute slots");
    }
}
