//! What was counted at earlier moments: the sparklines.

use super::Moment;
use crate::output::load::Load;
use std::collections::{BTreeMap, VecDeque};

/// Points that are kept: more than any terminal has columns for.
const POINTS: usize = 240;

/// GPUs that are kept.
const GPUS: usize = 4_096;

/// By gpu_id.
#[derive(Clone, Debug, Default)]
pub struct Trends {
    gpus: BTreeMap<u32, Trend>,
}

/// Of one GPU, the latest last; `None` is "not known".
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trend {
    pub(super) packets: VecDeque<Option<u64>>,
    pub(super) evictions: VecDeque<Option<u64>>,
    /// Evictions until the last point.
    counted: Option<u64>,
}

impl Trends {
    /// Adds a point per GPU.
    pub fn add(&mut self, moment: &Moment) {
        let loads = Load::by_gpu(moment.snapshot.queues().map(|(_, queue)| queue));
        // A daemon that is watched may have others each time.
        if self.gpus.len() > GPUS {
            self.gpus.clear();
        }
        for gpu in &moment.topology.gpus {
            let load = loads.get(&gpu.gpu_id).copied().unwrap_or_default();
            let trend = self.gpus.entry(gpu.gpu_id).or_default();
            if moment.is_old() {
                push(&mut trend.packets, None);
                push(&mut trend.evictions, None);
                trend.counted = None;
                continue;
            }
            let before = trend.counted;
            trend.counted = evictions(moment, gpu.gpu_id);
            let more = trend.counted.zip(before).and_then(|(now, before)| now.checked_sub(before));
            push(&mut trend.packets, packets(moment, &load).map(rounded));
            push(&mut trend.evictions, more);
        }
    }

    pub(super) fn of(&self, gpu_id: u32) -> Option<&Trend> {
        self.gpus.get(&gpu_id)
    }
}

/// Packets per second on a GPU: 0 if it is known to have no queue.
pub(super) fn packets(moment: &Moment, load: &Load) -> Option<f64> {
    let none =
        load.queues == 0 && moment.sight.queues && moment.sample.is_some_and(|interval| !interval.is_zero());
    load.packets_per_second().or(none.then_some(0.0))
}

/// Evictions of processes from a GPU since the tracer began.
pub(super) fn evictions(moment: &Moment, gpu_id: u32) -> Option<u64> {
    moment.sight.evictions.then(|| moment.snapshot.totals.evictions_of(gpu_id))
}

fn push(points: &mut VecDeque<Option<u64>>, point: Option<u64>) {
    if points.len() == POINTS {
        points.pop_front();
    }
    points.push_back(point);
}

/// A bar is at least one pixel high if there is anything at all.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate: not negative")]
fn rounded(rate: f64) -> u64 {
    rate.ceil() as u64
}
