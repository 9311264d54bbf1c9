//! The nodes of a simulated fleet: what runs on one at a moment. In: shape, number of the node, time. Out: its GPUs and
//! processes. Pure: the same moment always shows the same, whoever scrapes.

use clap::ValueEnum;
use std::time::Duration;

/// `--metrics.linger` and `--metrics.max-processes` of the daemon, as they are by default.
pub(super) const LINGER_MS: u64 = 300_000;
const MOST_PROCESSES: usize = 200;

/// Time begins here, so that there were processes before.
pub(super) const EPOCH_MS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Shape {
    /// 8 GPUs, no process
    Idle,
    /// 8 GPUs, a process of 12 hours on each
    Training,
    /// 64 partitions of 8 chips, each with a process of an hour in a namespace of its own
    Cpx,
    /// 8 GPUs, 32 processes that live for a minute; those that ended within the linger have series, too
    Jobs,
    /// 30 % idle, 60 % training, 8 % CPX, 2 % short jobs
    Mix,
}

impl Shape {
    pub(super) const ALL: [Shape; 4] = [Shape::Idle, Shape::Training, Shape::Cpx, Shape::Jobs];

    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Idle => "idle",
            Shape::Training => "training",
            Shape::Cpx => "CPX",
            Shape::Jobs => "short jobs",
            Shape::Mix => "mix",
        }
    }

    /// The shape of one node: of a mix, another one for each.
    fn of_node(self, index: u64) -> Shape {
        match (self, index * 37 % 100) {
            (Shape::Mix, 0..30) => Shape::Idle,
            (Shape::Mix, 30..90) => Shape::Training,
            (Shape::Mix, 90..98) => Shape::Cpx,
            (Shape::Mix, _) => Shape::Jobs,
            (shape, _) => shape,
        }
    }

    pub(super) fn gpus(self) -> u64 {
        if self == Shape::Cpx { 64 } else { 8 }
    }

    /// Processes that live at once.
    pub(super) fn processes(self) -> u64 {
        match self {
            Shape::Idle | Shape::Mix => 0,
            Shape::Training => 8,
            Shape::Cpx => 64,
            Shape::Jobs => 32,
        }
    }

    /// How long a process lives; then another one takes its place.
    pub(super) fn life(self) -> Duration {
        Duration::from_secs(match self {
            Shape::Idle | Shape::Mix | Shape::Training => 12 * 3600,
            Shape::Cpx => 3600,
            Shape::Jobs => 60,
        })
    }
}

/// A node of the fleet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) index: u64,
    pub(super) shape: Shape,
}

/// A process that has series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Unique on the node: `kfd_process`.
    pub(super) id: u64,
    /// Its place: the next process there is its successor, in the same pod and namespace.
    pub(super) slot: u64,
    pub(super) gpu: u64,
    /// Now, or at its end.
    pub(super) age_ms: u64,
}

/// What there is at a moment.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) live: Vec<Process>,
    /// Within the linger.
    pub(super) ended: Vec<Process>,
    /// Processes with no series, because there are too many.
    pub(super) dropped: usize,
    /// Since [`EPOCH_MS`], or before it and still there.
    pub(super) created: u64,
    pub(super) deaths: u64,
}

impl Node {
    pub(super) fn new(index: u64, of: Shape) -> Self {
        Node { index, shape: of.of_node(index) }
    }

    /// Milliseconds since [`EPOCH_MS`].
    pub(super) fn world(self, elapsed_ms: u64) -> World {
        let (slots, life) = (self.shape.processes(), millis(self.shape.life()));
        let mut world = World::default();
        for slot in 0..slots {
            // Each node, and each slot of it, begins at another moment.
            let shift = (life * slot / slots + hash(self.index) % life) % life;
            let now = EPOCH_MS + elapsed_ms + shift;
            let (generation, age_ms) = (now / life, now % life);
            let process = |generation: u64, age_ms| Process {
                id: generation * slots + slot + 1,
                slot,
                gpu: slot % self.shape.gpus(),
                age_ms,
            };
            world.live.push(process(generation, age_ms));
            let lingers = (1..=generation).take_while(|back| age_ms + (back - 1) * life < LINGER_MS);
            world.ended.extend(lingers.map(|back| process(generation - back, life)));
            let deaths = generation - (EPOCH_MS + shift) / life;
            world.deaths += deaths;
            world.created += deaths + 1;
        }
        let room = MOST_PROCESSES.saturating_sub(world.live.len());
        world.ended.sort_by_key(|process| std::cmp::Reverse(process.id));
        world.dropped = world.ended.len().saturating_sub(room);
        world.ended.truncate(room);
        world
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// splitmix64: numbers that look random and are the same in each run.
pub(super) fn hash(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_place_has_one_process_after_the_other() {
        let node = Node::new(3, Shape::Jobs);
        let ids = |elapsed_ms| -> BTreeSet<u64> {
            node.world(elapsed_ms).live.iter().map(|process| process.id).collect()
        };
        let (now, soon, later) = (ids(0), ids(30_000), ids(60_000));
        assert_eq!(now.len(), 32);
        // Half of them ended in half of a life, and all in a whole one.
        assert!((15..=17).contains(&now.intersection(&soon).count()), "{}", now.intersection(&soon).count());
        assert!(now.is_disjoint(&later));
        let world = node.world(3_600_000);
        assert_eq!(world.deaths, 32 * 60);
        assert_eq!(world.created, world.deaths + 32);
    }

    #[test]
    fn the_ended_linger_for_five_minutes_and_there_are_not_too_many() {
        let world = Node::new(0, Shape::Jobs).world(1_234);
        assert_eq!((world.live.len(), world.ended.len(), world.dropped), (32, 160, 0));
        let now: BTreeSet<u64> = world.live.iter().chain(&world.ended).map(|process| process.id).collect();
        assert_eq!(now.len(), 192);
        assert!(world.ended.iter().all(|process| process.age_ms == 60_000));
        // Of those that live for 12 hours hardly one has just ended.
        let lingering = (0..100).map(|index| Node::new(index, Shape::Training).world(0).ended.len());
        assert!(lingering.sum::<usize>() < 20);
    }

    #[test]
    fn a_mix_has_all_shapes() {
        let of = |wanted| (0..1000).filter(|index| Node::new(*index, Shape::Mix).shape == wanted).count();
        assert_eq!(Shape::ALL.map(of), [300, 600, 80, 20]);
        assert_eq!(Node::new(77, Shape::Cpx).shape, Shape::Cpx);
    }
}
