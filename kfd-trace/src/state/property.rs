//! Random event sequences: the totals balance after each one, and none ever decreases.

use super::samples::{create, destroy, event, facts, seen};
use super::{Source, State, StateLimits, Totals};
use crate::model::event::{Body, Event, ProcessId};
use crate::model::incident::{Eviction, MqdOp, QueueUpdate};
use crate::model::inventory::Listed;

/// xorshift64: the same sequence in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn below32(&mut self, limit: u32) -> u32 {
        u32::try_from(self.below(u64::from(limit))).expect("below a u32")
    }

    fn body(&mut self) -> Body {
        let queue_id = self.below32(4);
        match self.below(20) {
            0 => seen(self.below(2) == 0),
            1 => Body::MmRelease,
            2 => Body::ProcessRelease,
            3 => Body::Close,
            4 => Body::Open { errno: [0, 22][usize::from(self.below(2) == 0)], comm: "train".into() },
            5 | 6 => Body::QueueDestroyFailed { queue_id, gpu_id: None, errno: 62 },
            7..=11 => create(queue_id),
            16 => Body::Evict(self.eviction()),
            17 => Body::Restore(self.eviction()),
            18 => Body::QueueUpdate(QueueUpdate {
                now: facts(queue_id),
                cu_mask: None,
                mask_unread: false,
                errno: Some(0),
            }),
            19 => Body::MqdWrite { queue_id, gpu_id: None, op: MqdOp::ALL[usize::from(self.below(2) == 0)] },
            _ => destroy(queue_id),
        }
    }

    fn eviction(&mut self) -> Eviction {
        let gpu_id = Some([58270, 7][usize::from(self.below(2) == 0)]);
        Eviction { gpu_id, trigger: None, errno: 0, latency_ns: 3 }
    }

    fn event(&mut self, now: u64) -> Event {
        // Numbers are never reused: later events come from later processes.
        let process = 1 + now / 400 + self.below(6);
        // Two processes share a tgid, as with secondary contexts and reused PIDs.
        let tgid = 100 + u32::try_from(process / 2 % 7).expect("small");
        let mut event = event(now, process, tgid, self.body());
        event.in_ioctl =
            [None, Some(0xc008_4b03), Some(0xc060_4b02)][usize::try_from(self.below(3)).expect("small")];
        if self.below(20) == 0 {
            event.process = None;
        }
        event
    }
}

fn numbers(totals: &Totals) -> Vec<u64> {
    let Totals {
        processes_created,
        processes_standing,
        processes_ended,
        opens,
        open_errors,
        closes,
        queues_created: _,
        queues_destroyed: _,
        queues_revived: _,
        queues_adopted,
        queues_born_later,
        queue_updates,
        mqd_writes,
        evictions,
        restores,
        evicted_ns,
        differences,
        comparisons,
        anomalies,
    } = totals;
    let mut all = vec![*processes_created, *processes_standing, *processes_ended, *opens, *closes];
    all.extend([*queues_adopted, *queues_born_later, totals.created(), totals.destroyed(), totals.revived()]);
    all.extend::<[u64; 3]>([
        open_errors.values().sum(),
        queue_updates.values().sum(),
        mqd_writes.values().flat_map(|writes| MqdOp::ALL.iter().map(|op| writes.of(*op))).sum(),
    ]);
    all.extend::<[u64; 3]>([evictions.values().sum(), restores.values().sum(), evicted_ns.values().sum()]);
    all.push(differences.values().sum());
    all.push(comparisons.values().sum());
    all.extend(super::Anomaly::ALL.iter().map(|name| anomalies.get(name).copied().unwrap_or(0)));
    all
}

fn balances(state: &State) -> (u64, u64) {
    let totals = state.totals();
    let live = u64::try_from(state.snapshot().queues().count()).expect("a count");
    (
        totals.created() + totals.queues_adopted + totals.revived(),
        totals.destroyed() + totals.queues_born_later + live,
    )
}

#[test]
fn the_books_balance_whatever_comes() {
    let mut tried = (0, 0);
    for seed in 1..=40_u64 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
        let limits = StateLimits { processes: 6, ended_processes: 2, linger_ns: 500, ended_queues: 2 };
        let mut state = State::new(limits);
        state.start_tape();
        let mut before = numbers(state.totals());
        for step in 0..400_u64 {
            let now = step * 10;
            match random.below(24) {
                0 => {
                    let tgid = 100 + random.below32(7);
                    let found = Listed { tgid, ..Listed::default() };
                    let read_at = now.saturating_sub(random.below(100));
                    let key = state.adopt_process(read_at, &found, Source::Sysfs);
                    state.adopt_queue(key, read_at, &facts(random.below32(4)), Source::Sysfs);
                }
                1 => drop(state.gone(ProcessId(1 + now / 400 + random.below(6)).into(), now)),
                2 => drop(state.expire(now)),
                _ => drop(state.apply(&random.event(now))),
            }
            let (created, ended) = balances(&state);
            assert_eq!(created, ended, "seed {seed} step {step}: {:?}", state.totals());
            let after = numbers(state.totals());
            assert!(before.iter().zip(&after).all(|(old, new)| old <= new), "seed {seed} step {step}");
            before = after;
            assert!(state.snapshot().processes.len() <= limits.processes, "seed {seed} step {step}");
        }
        let mut again = State::new(limits);
        state.take_tape().into_iter().for_each(|input| again.play(input, &mut Vec::new()));
        assert_eq!(again.totals(), state.totals(), "seed {seed}: the tape made another state");
        assert!(
            again.rows == state.rows && again.ended == state.ended,
            "seed {seed}: the tape made other rows"
        );
        tried = (tried.0 + state.totals().created(), tried.1 + state.totals().revived());
    }
    assert!(tried.0 > 1_000 && tried.1 > 50, "too little happened: {tried:?}");
}
