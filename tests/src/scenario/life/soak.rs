//! A long time: rounds of random lives, with rests between, under one tracer that runs throughout.
//!
//! Each round ends with a rest: all agents but one have ended, and that one, which lives from begin to end,
//! has no queue. Then the tracer's resource use is sampled: none of it may depend on how long it has run.

use super::{Life, World, settings};
use crate::harness::footprint::Footprint;
use crate::scenario::flat::{self, Sample};
use crate::scenario::ledger::Ledger;
use crate::scenario::op::{Op, Owner};
use anyhow::{Context, Result, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The agent that lives throughout.
const VETERAN: u32 = 1;
/// Upper limit of a round.
const PERIOD: Duration = Duration::from_secs(60);
/// Enough for several samples in the second and in the last quarter.
const SAMPLES: u32 = 12;
const OPERATIONS_PER_SECOND: u64 = 1;
const LAST_OPERATIONS: usize = 50;
/// How long the tracer reports a process that has ended (`StateLimits::linger_ns`), and how late it may be.
const LINGER: Duration = Duration::from_secs(300);
const LATE: Duration = Duration::from_secs(5);

/// Plays rounds for this long, or a little longer if they are slow, and prints one line per sample.
///
/// # Errors
/// A difference between ledger, sysfs and tracer ([`super::Differs`]), or memory that does not stop growing.
pub fn soak(life: Life, minutes: u32) -> Result<()> {
    let _settings = settings(life.vms)?;
    let length = PERIOD * minutes;
    let period = PERIOD.min(length / SAMPLES);
    let mut soak = Soak { world: World::new(life)?, begin: Instant::now(), step: 0 };
    let mut samples = Vec::new();
    println!("\n{}", flat::heading());
    for round in 1..=length.as_secs() / period.as_secs() {
        let begin = Instant::now();
        soak.round(round, period).with_context(|| soak.place(round))?;
        // a round that took longer is sampled late
        sleep(period.saturating_sub(begin.elapsed()));
        let sample = soak.sample().with_context(|| soak.place(round))?;
        println!("{}", sample.row());
        samples.push(sample);
    }
    soak.end(length).with_context(|| format!("at the end{}", soak.world.troubles()))?;
    let grown = flat::grown(&samples);
    ensure!(grown.is_empty(), "{}", grown.join("\n"));
    let minutes = soak.begin.elapsed().as_secs_f64() / 60.0;
    println!("{}\n{minutes:.1} minutes: state, ledger and sysfs agree, memory is flat", soak.world.outcome);
    Ok(())
}

struct Soak {
    world: World,
    begin: Instant,
    step: usize,
}

impl Soak {
    fn place(&self, round: u64) -> String {
        format!("round {round}, after operation {}{}", self.step, self.world.troubles())
    }

    fn plan(&mut self, round: u64, operations: usize) {
        let Life { seed, contexts, .. } = self.world.life;
        let seed = seed.wrapping_mul(10_000).wrapping_add(round);
        self.world.plan = self.world.plan.again(seed, operations, contexts, VETERAN);
    }

    /// Random operations, a comparison of all, and a rest.
    fn round(&mut self, round: u64, period: Duration) -> Result<()> {
        self.plan(round, usize::try_from(period.as_secs() * OPERATIONS_PER_SECOND)?);
        self.world.operate(&mut self.step)?;
        self.world.compare()?;
        rest(&self.world.ledger).iter().try_for_each(|op| self.world.act(op))?;
        self.world.compare()
    }

    fn sample(&self) -> Result<Sample> {
        let world = &self.world;
        let Footprint { resident, anonymous, threads, descriptors, maps, map_memory, .. } =
            Footprint::of(world.daemon.pid())?;
        let metrics = world.daemon.scrape()?;
        let number = |name: &str, labels: &[(&str, &str)]| -> Result<u64> {
            let value = metrics.sum(name, labels).with_context(|| format!("no {name} {labels:?}"))?;
            format!("{value}").parse().with_context(|| format!("{name} {value}"))
        };
        let rows = |map: &str| number("kfd_trace_map_entries", &[("map", map)]);
        let remembered = number("kfd_trace_processes_remembered", &[])?;
        let fresh = [LINGER - LATE, LINGER + LATE].map(|age| ended_within(&world.ended, Instant::now(), age));
        ensure!(
            (fresh[0]..=fresh[1]).contains(&remembered),
            "{remembered} ended processes are remembered, {fresh:?} ended in the last {LINGER:?}"
        );
        let figures = [
            resident,
            anonymous,
            threads,
            descriptors,
            maps,
            map_memory,
            rows("ioctl_stats")?,
            rows("ioctl_errors")?,
            rows("in_flight")?,
        ];
        Ok(Sample { at: self.begin.elapsed(), operations: self.step, remembered, figures })
    }

    /// After a sufficiently long run, everything that has ended is forgotten in the end; then processes are
    /// started once more for the last sample.
    fn end(&mut self, length: Duration) -> Result<()> {
        if length >= 4 * LINGER {
            self.world.act(&Op::Exit { agent: VETERAN })?;
            self.world.compare()?;
            sleep(LINGER + LATE);
            let Sample { remembered, figures, .. } = self.sample()?;
            let [.., ioctls, errors, in_flight] = figures;
            let left = [remembered, ioctls, errors, in_flight];
            ensure!(
                left == [0; 4],
                "processes, rows of ioctls and errors, calls in flight are left: {left:?}"
            );
        }
        self.plan(0, LAST_OPERATIONS);
        self.world.operate(&mut self.step)?;
        self.world.end()
    }
}

/// The operations that end all agents but one, and the queues and contexts of that one.
fn rest(ledger: &Ledger) -> Vec<Op> {
    let veteran = Owner::primary(VETERAN);
    let mut ops = Vec::new();
    for (owner, _) in ledger.processes() {
        match owner.context {
            None if owner != veteran => ops.push(Op::Exit { agent: owner.agent }),
            Some(_) if owner.agent == VETERAN => ops.push(Op::Close { owner }),
            _ => {}
        }
    }
    if let Some(process) = ledger.process(veteran) {
        ops.extend((!process.open).then_some(Op::Open { agent: VETERAN }));
        ops.extend(process.queues.keys().map(|queue_id| Op::Destroy { owner: veteran, queue_id: *queue_id }));
    }
    ops
}

fn ended_within(ended: &[Instant], now: Instant, age: Duration) -> u64 {
    ended.iter().map(|at| u64::from(now.duration_since(*at) <= age)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kfd::uapi::QueueType;
    use crate::scenario::ledger::Vms;
    use crate::scenario::op::{Answer, Made, NewQueue};

    #[test]
    fn a_rest_leaves_one_process_without_queues() {
        let mut ledger = Ledger::new(&[11], Vms::Each, 1024);
        let new = NewQueue {
            gpu_id: 11,
            queue_type: QueueType::Sdma,
            priority: 7,
            percent: 100,
            ring_size: 4096,
            engine: 0,
            spoilt: false,
        };
        for agent in [VETERAN, 2, 3] {
            ledger.apply(&Op::Start { agent }, &Answer::Started { pid: 100 + agent }).unwrap();
            ledger.apply(&Op::Context { agent }, &Answer::Context { id: 1 }).unwrap();
            let owner = Owner::primary(agent);
            let made = Made { queue_id: agent, ring: 1, write_pointer: 2, read_pointer: 3 };
            ledger.apply(&Op::Create { owner, new }, &Answer::Created(made)).unwrap();
            ledger.apply(&Op::Close { owner }, &Answer::Done).unwrap();
        }
        for op in rest(&ledger) {
            ledger.apply(&op, &Answer::Done).unwrap();
        }
        let left: Vec<_> = ledger.processes().collect();
        assert_eq!(left.len(), 1);
        assert!(left[0].0 == Owner::primary(VETERAN) && left[0].1.open && left[0].1.queues.is_empty());
        assert_eq!(rest(&ledger), []);
    }

    #[test]
    fn ends_are_counted_by_their_age() {
        let begin = Instant::now();
        let ended = [0, 10, 20].map(|second| begin + Duration::from_secs(second));
        let now = begin + Duration::from_secs(25);
        let counts = [4, 5, 15, 25].map(|age| ended_within(&ended, now, Duration::from_secs(age)));
        assert_eq!(counts, [0, 1, 2, 3]);
    }
}
