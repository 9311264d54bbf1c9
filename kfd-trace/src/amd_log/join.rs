//! Joins queues of the log with queues of KFD by addresses and time. The PID is not used: in the log it is
//! the container's.
//!
//! HWq is the ring's address. SWq is the write pointer's less 0x38 (`hsa_queue_t` begins `amd_queue_t`, whose
//! `write_dispatch_id` is there: rocr, inc/amd_hsa_queue.h). Both clocks are CLOCK_MONOTONIC.

use super::recorded::Recorded;
use super::rows::QueueRow;
use serde::{Serialize, Serializer};
use std::collections::HashMap;

/// Offset of `write_dispatch_id` from `hsa_queue_t`, bytes.
const WRITE_DISPATCH_ID: u64 = 0x38;

/// SWq of a queue with this write pointer.
pub(crate) fn software_queue(write_pointer: u64) -> Option<u64> {
    write_pointer.checked_sub(WRITE_DISPATCH_ID)
}

/// Join result of one queue of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinResult {
    Joined,
    /// No KFD queue has its addresses.
    NotFound,
    /// A ring matches, but its write pointer is not SWq + 0x38.
    PointerDiffers,
    /// The addresses match a queue that lived at another time.
    OtherTime,
    /// Several queues have its addresses and may have lived then.
    Ambiguous,
}

impl JoinResult {
    /// Name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            JoinResult::Joined => "joined",
            JoinResult::NotFound => "not_found",
            JoinResult::PointerDiffers => "pointer_differs",
            JoinResult::OtherTime => "other_time",
            JoinResult::Ambiguous => "ambiguous",
        }
    }
}

impl Serialize for JoinResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Returns the verdict for each row, and the index of its queue.
#[must_use]
pub fn join(rows: &[QueueRow], recorded: &[Recorded]) -> Vec<(JoinResult, Option<usize>)> {
    let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, queue) in recorded.iter().enumerate() {
        let software = queue.write_pointer.and_then(software_queue);
        for address in [queue.ring, software].into_iter().flatten() {
            places.entry(address).or_default().push(index);
        }
    }
    rows.iter().map(|row| one(row, &places, recorded)).collect()
}

fn one(
    row: &QueueRow,
    places: &HashMap<u64, Vec<usize>>,
    recorded: &[Recorded],
) -> (JoinResult, Option<usize>) {
    let at = row.any_address().and_then(|address| places.get(&address)).map_or(&[][..], Vec::as_slice);
    let there: Vec<usize> = at.iter().copied().filter(|index| has_ring(row, &recorded[*index])).collect();
    let same: Vec<usize> =
        there.iter().copied().filter(|index| has_pointer(row, &recorded[*index])).collect();
    let mut then = same.iter().copied().filter(|index| lived(row, &recorded[*index]));
    match (then.next(), then.next()) {
        (Some(index), None) => (JoinResult::Joined, Some(index)),
        (Some(_), Some(_)) => (JoinResult::Ambiguous, None),
        (None, _) if !same.is_empty() => (JoinResult::OtherTime, None),
        (None, _) if !there.is_empty() => (JoinResult::PointerDiffers, None),
        (None, _) => (JoinResult::NotFound, None),
    }
}

fn has_ring(row: &QueueRow, queue: &Recorded) -> bool {
    row.hwq.is_none_or(|hwq| queue.ring == Some(hwq))
}

fn has_pointer(row: &QueueRow, queue: &Recorded) -> bool {
    row.swq
        .is_none_or(|swq| queue.write_pointer.is_none_or(|at| Some(at) == swq.checked_add(WRITE_DISPATCH_ID)))
}

/// Whether the lifetimes match: every line that names a queue is written while KFD has it, between the two
/// ioctls.
fn lived(row: &QueueRow, queue: &Recorded) -> bool {
    let ended = row.steps.deleted > 0 && row.steps.deleted >= row.created;
    if queue.live && ended {
        return false;
    }
    let Some((first, last)) = row.span.0 else { return true };
    queue.created_us.is_none_or(|created| created <= first)
        && queue.ended_us.is_none_or(|ended| last <= ended)
}

/// For each process with a joined queue, the number of its queues that the log does not name. ROCr's own
/// queues (its utility queue, and those of its copies) are never in the log.
#[must_use]
pub fn unnamed(recorded: &[Recorded], joined: &[(JoinResult, Option<usize>)]) -> Vec<(u32, usize)> {
    let named: Vec<usize> = joined.iter().filter_map(|(_, index)| *index).collect();
    let mut pids: Vec<u32> = named.iter().filter_map(|index| recorded[*index].kfd.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let mut counts: HashMap<u32, usize> = HashMap::new();
    let named: std::collections::HashSet<usize> = named.into_iter().collect();
    for (index, queue) in recorded.iter().enumerate() {
        if let Some(pid) = queue.kfd.pid.filter(|_| !named.contains(&index)) {
            *counts.entry(pid).or_default() += 1;
        }
    }
    pids.into_iter().map(|pid| (pid, counts.get(&pid).copied().unwrap_or(0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amd_log::queues::Span;
    use crate::amd_log::recorded::KfdQueue;

    fn row() -> QueueRow {
        let span = Span(Some((100, 200)));
        QueueRow { id: Some(7), hwq: Some(0x2000), swq: Some(0x1000), span, ..QueueRow::default() }
    }

    fn of(pid: u32) -> KfdQueue {
        KfdQueue { pid: Some(pid), ..KfdQueue::default() }
    }

    fn queue() -> Recorded {
        Recorded { kfd: of(40), ring: Some(0x2000), write_pointer: Some(0x1038), ..Recorded::default() }
    }

    fn verdict(row: &QueueRow, queues: &[Recorded]) -> JoinResult {
        join(std::slice::from_ref(row), queues)[0].0
    }

    #[test]
    fn addresses_join_whatever_the_pids() {
        assert_eq!(join(&[row()], &[Recorded::default(), queue()]), [(JoinResult::Joined, Some(1))]);
        assert_eq!(verdict(&QueueRow { swq: None, ..row() }, &[queue()]), JoinResult::Joined, "of 5.x");
        assert_eq!(
            verdict(&QueueRow { hwq: None, ..row() }, &[queue()]),
            JoinResult::Joined,
            "a birth of 5.x"
        );
        let alone = QueueRow { hwq: None, swq: None, address: Some(0x1000), ..row() };
        assert_eq!(verdict(&alone, &[queue()]), JoinResult::Joined);
        assert_eq!(verdict(&row(), &[]), JoinResult::NotFound);
        let other = Recorded { write_pointer: Some(0x1040), ..queue() };
        assert_eq!(verdict(&row(), &[other]), JoinResult::PointerDiffers);
        assert_eq!(verdict(&row(), &[queue(), queue()]), JoinResult::Ambiguous);
    }

    #[test]
    fn time_distinguishes_reused_addresses() {
        let life = |created_us, ended_us| Recorded { created_us, ended_us, ..queue() };
        let (before, then, after) =
            (life(Some(10), Some(99)), life(Some(99), Some(201)), life(Some(202), None));
        assert_eq!(join(&[row()], &[before.clone(), then, after.clone()])[0], (JoinResult::Joined, Some(1)));
        assert_eq!(verdict(&row(), &[before, after]), JoinResult::OtherTime);
        assert_eq!(verdict(&row(), &[life(Some(100), Some(200))]), JoinResult::Joined, "to the microsecond");
        assert_eq!(verdict(&row(), &[life(Some(101), Some(200))]), JoinResult::OtherTime);
        assert_eq!(verdict(&row(), &[life(Some(100), Some(199))]), JoinResult::OtherTime);
        let mut deleted = row();
        deleted.steps.deleted = 1;
        assert_eq!(verdict(&deleted, &[Recorded { live: true, ..queue() }]), JoinResult::OtherTime);
        deleted.created = 2;
        assert_eq!(
            verdict(&deleted, &[Recorded { live: true, ..queue() }]),
            JoinResult::Joined,
            "it came again"
        );
    }

    #[test]
    fn queues_that_the_log_does_not_name_are_counted() {
        let own = Recorded { ring: Some(0x9000), write_pointer: None, ..queue() };
        let all = [queue(), own, Recorded { kfd: of(41), ..Recorded::default() }];
        assert_eq!(unnamed(&all, &join(&[row()], &all)), [(40, 1)]);
    }
}
