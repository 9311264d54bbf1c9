//! Chooses the next operation: random, weighted, the same for the same seed and the same results.

use super::ledger::{Ledger, Process};
use super::op::{Change, Kind, NewQueue, Op, Owner};
use crate::kfd::uapi::QueueType;
use fastrand::Rng;
use std::iter::repeat_n;

/// At least 3 % of all operations each, that is 60 of 2,000.
pub const REQUIRED: [Kind; 9] = [
    Kind::Create,
    Kind::Update,
    Kind::CuMask,
    Kind::Evict,
    Kind::Restore,
    Kind::Destroy,
    Kind::Exit,
    Kind::Kill,
    Kind::Fork,
];

/// Weights of the other operations.
const WEIGHTS: [(Kind, usize); 13] = [
    (Kind::Start, 2),
    (Kind::Create, 34),
    (Kind::Update, 16),
    (Kind::CuMask, 8),
    (Kind::Destroy, 14),
    (Kind::Evict, 7),
    (Kind::Restore, 7),
    (Kind::TtmEvict, 3),
    (Kind::Fault, 1),
    (Kind::Fork, 3),
    (Kind::Close, 2),
    (Kind::Open, 1),
    (Kind::Context, 2),
];

/// Agents alive at a time.
const FEWEST: usize = 3;
const MOST: usize = 8;

/// No queue ever gets this id: a process has 1024 of them at most (KFD_MAX_NUM_OF_QUEUES_PER_PROCESS).
const NO_QUEUE: u32 = 2000;

#[derive(Debug)]
pub struct Plan {
    rng: Rng,
    /// Remaining operations, in this order where possible.
    left: Vec<Kind>,
    agents: u32,
    /// An agent that neither exits nor is killed.
    spared: Option<u32>,
}

impl Plan {
    /// `contexts`: whether the driver has secondary processes.
    pub fn new(seed: u64, operations: usize, contexts: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let each = (operations * 3).div_ceil(100);
        let mut left: Vec<Kind> = REQUIRED.iter().flat_map(|kind| repeat_n(*kind, each)).collect();
        let lot: Vec<Kind> = WEIGHTS
            .iter()
            .filter(|(kind, _)| contexts || *kind != Kind::Context)
            .flat_map(|(kind, weight)| repeat_n(*kind, *weight))
            .collect();
        left.extend((left.len()..operations).filter_map(|_| rng.choice(&lot).copied()));
        rng.shuffle(&mut left);
        Self { rng, left, agents: 0, spared: None }
    }

    /// A further plan for the same ledger; `spared` is an agent that stays alive.
    pub fn again(&self, seed: u64, operations: usize, contexts: bool, spared: u32) -> Self {
        Self { agents: self.agents, spared: Some(spared), ..Self::new(seed, operations, contexts) }
    }

    /// The next operation that the ledger's state allows, of the kinds `allowed`; `None` at the end.
    /// Operations that are impossible now come later, after operations that make them possible.
    pub fn next(&mut self, ledger: &Ledger, allowed: impl Fn(Kind) -> bool) -> Option<Op> {
        if self.left.is_empty() {
            return None;
        }
        let agents = ledger.processes().filter(|(owner, _)| owner.context.is_none()).count();
        if agents < FEWEST {
            return self.build(Kind::Start, ledger);
        }
        for at in 0..self.left.len() {
            let kind = self.left[at];
            if let Some(op) = allowed(kind).then(|| self.build(kind, ledger)).flatten() {
                self.left.remove(at);
                return Some(op);
            }
        }
        let required = self.left.iter().find(|kind| REQUIRED.contains(kind)).copied()?;
        towards(required).iter().find_map(|kind| self.build(*kind, ledger))
    }

    fn build(&mut self, kind: Kind, ledger: &Ledger) -> Option<Op> {
        let primary = |owner: Owner| owner.context.is_none();
        Some(match kind {
            Kind::Start => {
                if ledger.processes().filter(|(owner, _)| primary(*owner)).count() >= MOST {
                    return None;
                }
                self.agents += 1;
                Op::Start { agent: self.agents }
            }
            Kind::Create => {
                let owner = self.owner(ledger, |_, process| process.open)?;
                Op::Create { owner, new: self.new_queue(ledger)? }
            }
            Kind::Update => {
                let (owner, queue_id) = self.queue(ledger, |_| true)?;
                Op::Update { owner, queue_id, change: self.change() }
            }
            Kind::CuMask => {
                let (owner, queue_id) = self.queue(ledger, QueueType::is_compute)?;
                let words = self.rng.usize(1..=2);
                Op::CuMask { owner, queue_id, mask: (0..words).map(|_| self.rng.u32(1..)).collect() }
            }
            Kind::Destroy => {
                let (owner, queue_id) = self.queue(ledger, |_| true)?;
                Op::Destroy { owner, queue_id }
            }
            Kind::Evict => {
                Op::Evict { agent: self.bound(ledger, |process| refs(process).all(|refs| refs < 3))? }
            }
            Kind::Restore => Op::Restore { agent: self.bound(ledger, Process::restorable)? },
            // sysfs shows the end of the restore only for a GPU that is not evicted
            Kind::TtmEvict => Op::TtmEvict { agent: self.bound(ledger, Process::shows_restore)? },
            Kind::Fault => {
                let first = ledger.gpu_ids().first()?;
                let fits = |process: &Process| {
                    refs(process).all(|refs| refs < 2) && process.gpus.get(first).is_some_and(|gpu| gpu.vm)
                };
                Op::Fault { agent: self.bound(ledger, fits)? }
            }
            Kind::Fork => {
                Op::Fork { agent: self.owner(ledger, |owner, process| primary(owner) && process.open)?.agent }
            }
            Kind::Close => {
                let alone =
                    |agent: u32| ledger.processes().filter(|(owner, _)| owner.agent == agent).count() == 1;
                let closable = |owner: Owner, process: &Process| {
                    process.open && (owner.context.is_some() || alone(owner.agent))
                };
                Op::Close { owner: self.owner(ledger, closable)? }
            }
            Kind::Open => Op::Open {
                agent: self.owner(ledger, |owner, process| primary(owner) && !process.open)?.agent,
            },
            Kind::Context => Op::Context {
                agent: self.owner(ledger, |owner, process| primary(owner) && process.open)?.agent,
            },
            Kind::Exit => Op::Exit { agent: self.mortal(ledger)? },
            Kind::Kill => Op::Kill { agent: self.mortal(ledger)? },
        })
    }

    fn owner(&mut self, ledger: &Ledger, fits: impl Fn(Owner, &Process) -> bool) -> Option<Owner> {
        let fitting = ledger.processes().filter(|(owner, process)| fits(*owner, process));
        let owners: Vec<Owner> = fitting.map(|(owner, _)| owner).collect();
        self.rng.choice(owners)
    }

    fn mortal(&mut self, ledger: &Ledger) -> Option<u32> {
        let spared = self.spared;
        let mortal = |owner: Owner| owner.context.is_none() && Some(owner.agent) != spared;
        self.owner(ledger, |owner, _| mortal(owner)).map(|owner| owner.agent)
    }

    /// An agent whose primary process is bound to the GPUs.
    fn bound(&mut self, ledger: &Ledger, fits: impl Fn(&Process) -> bool) -> Option<u32> {
        let fits =
            |owner: Owner, process: &Process| owner.context.is_none() && process.bound && fits(process);
        self.owner(ledger, fits).map(|owner| owner.agent)
    }

    /// A live queue of an open device; one in ten is nonexistent.
    fn queue(&mut self, ledger: &Ledger, fits: impl Fn(QueueType) -> bool) -> Option<(Owner, u32)> {
        if self.rng.u32(..10) == 0 {
            return Some((self.owner(ledger, |_, process| process.open)?, NO_QUEUE));
        }
        let open = ledger.processes().filter(|(_, process)| process.open);
        let queues = open.flat_map(|(owner, process)| process.queues.iter().map(move |queue| (owner, queue)));
        let fitting = queues.filter(|(_, (_, queue))| fits(queue.queue_type));
        let ids: Vec<(Owner, u32)> = fitting.map(|(owner, (id, _))| (owner, *id)).collect();
        self.rng.choice(ids)
    }

    fn new_queue(&mut self, ledger: &Ledger) -> Option<NewQueue> {
        let queue_type = match self.rng.u32(..100) {
            ..76 => QueueType::ComputeAql,
            76..80 => QueueType::Compute,
            80..94 => QueueType::Sdma,
            94..97 => QueueType::SdmaXgmi,
            _ => QueueType::SdmaByEngId,
        };
        Some(NewQueue {
            gpu_id: self.rng.choice(ledger.gpu_ids().iter().copied())?,
            queue_type,
            priority: self.rng.u32(..=15),
            percent: self.percent(),
            ring_size: self.ring_size(),
            engine: self.rng.u32(..3),
            spoilt: self.rng.u32(..20) == 0,
        })
    }

    fn change(&mut self) -> Change {
        Change {
            priority: self.rng.u32(..=15),
            percent: self.percent(),
            ring_size: self.ring_size(),
            no_ring: self.rng.u32(..12) == 0,
        }
    }

    /// Mostly 100, as in real use; sometimes 0, which switches the queue off.
    fn percent(&mut self) -> u32 {
        match self.rng.u32(..10) {
            0 => 0,
            1..4 => self.rng.u32(1..100),
            _ => 100,
        }
    }

    /// 512 bytes, less than the driver's minimum, to 1 MiB.
    fn ring_size(&mut self) -> u32 {
        1 << self.rng.u32(9..=20)
    }
}

/// Operations that lead to a state in which `kind` is possible.
fn towards(kind: Kind) -> &'static [Kind] {
    match kind {
        Kind::Restore => &[Kind::Evict, Kind::Create, Kind::Open, Kind::Start],
        Kind::Evict => &[Kind::Restore, Kind::Create, Kind::Open, Kind::Start],
        _ => &[Kind::Create, Kind::Open, Kind::Start],
    }
}

/// In the order of the GPUs' ids.
fn refs(process: &Process) -> impl Iterator<Item = u32> {
    process.gpus.values().map(|gpu| gpu.refs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ledger::Vms;
    use crate::scenario::op::{Answer, Made};
    use std::collections::BTreeMap;

    /// A driver that accepts every operation.
    fn answer(op: &Op, next: u32) -> Answer {
        match op {
            Op::Start { agent } => Answer::Started { pid: 100 + agent },
            Op::Create { new, .. } if new.spoilt => Answer::Refused("EINVAL".to_owned()),
            Op::Create { .. } => {
                Answer::Created(Made { queue_id: next, ring: 1, write_pointer: 2, read_pointer: 3 })
            }
            Op::Context { .. } => Answer::Context { id: u64::from(next) },
            Op::Fork { .. } => Answer::Refused("EBADF".to_owned()),
            Op::Update { queue_id: NO_QUEUE, .. }
            | Op::CuMask { queue_id: NO_QUEUE, .. }
            | Op::Destroy { queue_id: NO_QUEUE, .. } => Answer::Refused("EFAULT".to_owned()),
            _ => Answer::Done,
        }
    }

    fn play(seed: u64, vms: Vms) -> Vec<Op> {
        let mut plan = Plan::new(seed, 2000, true);
        let mut ledger = Ledger::new(&[11, 22], vms, 1024);
        let mut ops = Vec::new();
        while let Some(op) = plan.next(&ledger, |_| true) {
            let next = u32::try_from(ops.len()).unwrap();
            ledger.apply(&op, &answer(&op, next)).unwrap();
            ops.push(op);
            assert!(ops.len() < 3000, "seed {seed}: no end: {:?} {ledger:?}", plan.left);
        }
        ops
    }

    #[test]
    fn every_required_kind_comes_often_enough_and_nothing_impossible_comes() {
        for seed in 0..20 {
            let ops = play(seed, if seed % 2 == 0 { Vms::Each } else { Vms::Together });
            let mut kinds = BTreeMap::<Kind, usize>::new();
            ops.iter().for_each(|op| *kinds.entry(op.kind()).or_default() += 1);
            assert!(ops.len() >= 2000 && ops.len() < 2400, "seed {seed}: {}", ops.len());
            for kind in REQUIRED {
                assert!(kinds[&kind] >= 60, "seed {seed}: {} of {kind:?}", kinds[&kind]);
            }
            assert_eq!(kinds.len(), WEIGHTS.len() + 2, "seed {seed}: {kinds:?}");
        }
    }

    #[test]
    fn a_further_plan_spares_one_and_uses_no_number_twice() {
        let mut ledger = Ledger::new(&[11, 22], Vms::Each, 1024);
        let mut plan = Plan::new(1, 0, false);
        let mut started = Vec::new();
        for round in 1..6 {
            plan = plan.again(round, 300, false, 1);
            let mut next = 0;
            while let Some(op) = plan.next(&ledger, |_| true) {
                next += 1;
                ledger.apply(&op, &answer(&op, u32::try_from(round).unwrap() * 1000 + next)).unwrap();
                match op {
                    Op::Start { agent } => started.push(agent),
                    Op::Exit { agent } | Op::Kill { agent } => assert_ne!(agent, 1),
                    _ => {}
                }
            }
        }
        assert!(started.len() > 50 && started.is_sorted_by(|a, b| a < b), "{started:?}");
        assert!(ledger.process(Owner::primary(1)).is_some());
    }

    #[test]
    fn a_seed_gives_one_scenario() {
        assert_eq!(play(7, Vms::Each), play(7, Vms::Each));
        assert_ne!(play(7, Vms::Each), play(8, Vms::Each));
    }
}
