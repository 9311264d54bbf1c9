//! Many processes and queues at random, some without an identity of their own: what is written of them is what the
//! library's encoder writes ([`World::text`] compares).

use super::*;
use crate::model::incident::{Eviction, Trigger, VmFault};
use crate::model::inventory::Listed;
use crate::model::memory::samples::{GTT, VRAM, allocated, imported};
use crate::model::pointers::{Counts, Unmeasured};
use crate::state::{ProcessKey, Sample, Source};

/// xorshift64: the same sequence in every run.
struct Random(u64);

impl Random {
    fn small(&mut self, limit: u64) -> u32 {
        u32::try_from(self.below(limit)).expect("small")
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.small(of.len() as u64) as usize]
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(4) > 0).then_some(value)
    }

    fn queue(&mut self) -> QueueFacts {
        let gpu_id = self.one(&[9, 10, 100, 58_000, 58_017]);
        let queue_type = self.one(&[QueueType::Compute, QueueType::ComputeAql, QueueType::Sdma]);
        QueueFacts {
            gpu_id: self.maybe(gpu_id),
            queue_type: self.maybe(queue_type),
            sdma_engine_id: self.maybe(1),
            ..facts(self.small(12))
        }
    }

    fn body(&mut self) -> Body {
        let gpu_id = Some(self.one(&[9, 100, 58_017]));
        match self.below(14) {
            0 => seen(false),
            1 => Body::MmRelease,
            2 => Body::ProcessRelease,
            3 => Body::VmFault(VmFault { gpu_id: self.maybe(9), access: None }),
            4 => Body::Evict(Eviction { gpu_id, trigger: Some(Trigger::Ttm), errno: 0, latency_ns: 5 }),
            5 => Body::Restore(Eviction { gpu_id, trigger: None, errno: 0, latency_ns: 5 }),
            6 => destroy(self.small(12)),
            12 => allocated(self.below(9), self.one(&[9, 100, 58_017]), 4096, self.one(&[VRAM, GTT])),
            13 => imported(self.below(9), self.one(&[9, 100])),
            _ => Body::QueueCreate(self.queue()),
        }
    }

    /// Contexts of few PIDs, which have no numbers, with names that have to be escaped or sort before a quote.
    fn adopted(&mut self, state: &mut State) {
        let comm = self.one(&["train", "a\"b\\c\nd\u{9b}", "train !", ""]);
        let context_id = self.small(3);
        let process = Listed {
            tgid: self.one(&[7, 70, 4321]),
            context_id: self.maybe(context_id),
            comm: self.maybe(comm.to_owned()),
            vram: (0..self.below(3)).map(|_| (self.one(&[9, 100, 7]), self.below(2) * 4096)).collect(),
            ..Listed::default()
        };
        let at_ns = 1 + self.below(1_000);
        let key = state.adopt_process(at_ns, &process, Source::Sysfs);
        (0..self.below(5)).for_each(|_| state.adopt_queue(key, at_ns, &self.queue(), Source::Sysfs));
    }

    fn sampled(&mut self, state: &mut State, samples: &mut SampleTotals) {
        let at_ns = 2_000_000_000 + self.below(900_000_000);
        let most = self.one(&[5, 1 << 40, 1 << 60]);
        let mut all = Vec::new();
        for target in state.sought() {
            for queue in &target.queues {
                let counts = Counts { submitted: most + self.below(most), retired: self.below(most) };
                let reading = self.maybe(counts).ok_or(Unmeasured::Denied);
                let (key, queue_id, since_ns) = (target.key, queue.queue_id, queue.since_ns);
                all.push(Sample { key, queue_id, since_ns, reading, at_ns });
            }
        }
        samples.take(state, &all, 1_000, at_ns);
    }
}

fn crowd(seed: u64) -> World {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::new(State::new(StateLimits::default()));
    (0..random.below(10)).for_each(|_| random.adopted(&mut world.state));
    for at_ns in 0..random.below(150) {
        let process = 1 + random.small(12);
        let body = random.body();
        world.state.apply(&event(1_000 + at_ns * 1_000_000, process.into(), 60 + process, body));
    }
    for _ in 0..random.below(3) {
        random.sampled(&mut world.state, &mut world.samples);
    }
    let rows = (0..random.below(30)).map(|_| {
        let cmd = random.one(&[CREATE, DESTROY, WAIT, 0xc058_4b02, 0xc000_4bf0]);
        ioctl_row(1 + random.below(12), cmd, random.below(1_000), 1_500)
    });
    world.tables.ioctls = rows.collect();
    let [queues, processes] = [random.small(40), 1 + random.small(20)].map(|most| most as usize);
    world.detail.queues = random.maybe(queues);
    world.detail.processes = random.maybe(processes);
    if random.below(4) == 0 {
        world.probes.retain(|probe| probe.id != ProbeId::QueueDel);
        world.sysfs = Some(world.state.snapshot());
    }
    world
}

#[test]
fn any_crowd_is_written_as_the_encoder_writes_it() {
    for seed in 0..60 {
        crowd(seed).text();
    }
}

#[test]
fn contexts_that_cannot_be_distinguished_are_summed() {
    let mut world = World::new(State::new(StateLimits::default()));
    for (context_id, queue_id) in [(None, 1), (Some(1), 1), (Some(2), 2)] {
        let process = Listed { tgid: 7, context_id, ..Listed::default() };
        let key = world.state.adopt_process(5, &process, Source::Sysfs);
        assert!(matches!(key, ProcessKey::Adopted(_)));
        world.state.adopt_queue(key, 5, &facts(queue_id), Source::Sysfs);
    }
    world.detail.queues = Some(10);
    let labels = r#"pid="7",kfd_process="",comm="",gpu_id="58270""#;
    let queues = format!("kfd_process_queues{{{labels},queue_type=\"compute_aql\"}}");
    assert_eq!(world.value(&queues), Some(3.0));
    assert_eq!(world.value(&format!("kfd_process_evictions_total{{{labels}}}")), Some(0.0));
    assert_eq!(world.value(&format!("kfd_queue_priority{{{labels},queue_id=\"1\"}}")), Some(7.0));
    assert_eq!(world.text().matches("kfd_process_info{").count(), 1);
}
