//! Which queues moved between two samples.
//!
//! In: two reports of one machine. Out: the later one, with each queue's answer. Pure.

use super::mqds::MqdKind;
use super::report::{HwReport, QueueRow};
use std::collections::BTreeMap;
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
        // `None`: several are alike.
        let mut earlier: BTreeMap<_, Option<&QueueRow>> = BTreeMap::new();
        for row in &before.queues {
            earlier.entry(key(row)).and_modify(|one| *one = None).or_insert(Some(row));
        }
        for row in &mut self.queues {
            row.moved = earlier.get(&key(row)).copied().flatten().and_then(|earlier| moved(earlier, row));
        }
    }
}

type Key<'a> = (Option<u32>, u32, Option<MqdKind>, Option<u64>, Option<(u32, u32)>, &'a [u64]);

fn key(row: &QueueRow) -> Key<'_> {
    (row.pid, row.gpu_id, row.kind, row.ring, row.engine, &row.mqds)
}
