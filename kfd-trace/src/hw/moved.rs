//! Which queues moved between two samples.
//!
//! In: two reports of one machine. Out: the later one, with each queue's answer. Pure.

use super::report::{HwReport, QueueRow};
use std::time::Duration;

/// `None`: not known, as where the queue was on no hardware in one of the samples.
fn moved(before: &QueueRow, after: &QueueRow) -> Option<bool> {
    let live = |row: &QueueRow| !row.slots.is_empty() && row.active_slots() == row.pointers.len();
    if !live(before) || !live(after) || before.slots.len() != after.slots.len() {
        return None;
    }
    let pairs = before.pointers.iter().zip(&after.pointers);
    let each: Vec<Option<bool>> = pairs
        .map(|(before, after)| match (before.read(), after.read()) {
            (Some(before), Some(after)) => Some(before != after),
            _ => (before.rptr != after.rptr).then_some(true),
        })
        .collect();
    match each.contains(&Some(true)) {
        true => Some(true),
        false => each.iter().all(Option::is_some).then_some(false),
    }
}

impl HwReport {
    /// Marks which queues moved since `before`, a report of `interval` earlier. A queue is recognized by its process, ring
    /// and MQDs.
    pub fn compare(&mut self, before: &HwReport, interval: Duration) {
        self.interval = Some(interval);
        for row in &mut self.queues {
            let key = |row: &QueueRow| (row.pid, row.gpu_id, row.kind, row.ring, row.engine);
            let same = |other: &&QueueRow| key(other) == key(row) && other.mqds == row.mqds;
            let mut earlier = before.queues.iter().filter(same);
            row.moved = match (earlier.next(), earlier.next()) {
                (Some(earlier), None) => moved(earlier, row),
                _ => None,
            };
        }
    }
}
