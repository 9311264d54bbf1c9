//! The data kept from one comparison with the driver's lists to the next.

use crate::model::event::ProcessId;
use crate::state::{FoundDifference, ProcessKey};
use crate::tracer::inventory::InventoryReader;
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a suspicion lasts after its last reason, nanoseconds: what changed then must have settled, be
/// found, and be found again.
pub(super) const SUSPICION_NS: u64 = 5_000_000_000;

/// The data kept from scan to scan.
#[derive(Default)]
pub(crate) struct Pending {
    /// `None` while the driver is not loaded.
    pub(in crate::tracer) reader: Option<Arc<InventoryReader>>,
    pub(super) ticks: u32,
    /// Until then every tick begins a scan, CLOCK_MONOTONIC nanoseconds.
    pub(super) until_ns: u64,
    /// At the last tick.
    pub(super) missing: Missing,
    pub(super) found: BTreeSet<FoundDifference>,
    /// Consecutive walks that broke off.
    pub(super) broken_walks: u32,
    /// Live rows whose processes were gone from the lists of the last scan.
    pub(super) unlisted: BTreeSet<ProcessKey>,
    /// Processes whose release is over, and was not seen to return.
    pub(in crate::tracer) released: BTreeSet<ProcessId>,
}

/// What was missed until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// Lost records, plus what could not be recorded.
    pub(super) lost: u64,
    /// Runs of the probes of [`LIVES`] that the kernel skipped, as far as it counts them (6.7).
    pub(super) skipped: u64,
    /// Records that could not be decoded, those of earlier loadings of the driver among them.
    pub(super) undecoded: u64,
}

/// Probes by whose miss a row goes on, or never begins. What a missed entry or return of these leaves over is not
/// counted otherwise before it is found.
pub(super) const LIVES: [ProbeId; 5] = [
    ProbeId::QueueAdd,
    ProbeId::QueueDel,
    ProbeId::NotifierRelease,
    ProbeId::WqRelease,
    ProbeId::WqReleaseReturn,
];

impl Pending {
    /// Counts what was missed since the last tick: from then on the driver's lists are compared each second. Returns how
    /// many events, and whether records of memory may be among them.
    pub(super) fn suspect(&mut self, missing: Missing, now_ns: u64) -> (u64, bool) {
        let before = std::mem::replace(&mut self.missing, missing);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let events = since(missing.lost, before.lost) + since(missing.skipped, before.skipped);
        if events > 0 {
            self.until_ns = now_ns + SUSPICION_NS;
        }
        let records = (missing.lost, missing.undecoded) != (before.lost, before.undecoded);
        (events, records)
    }

    pub(crate) fn new(reader: Arc<InventoryReader>, undecoded: u64) -> Self {
        let missing = Missing { undecoded, ..Missing::default() };
        Pending { reader: Some(reader), missing, ..Pending::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_missed_makes_the_lists_be_compared() {
        let mut pending = Pending::default();
        let none = Missing::default();
        assert_eq!((pending.suspect(none, 7), pending.until_ns), ((0, false), 0));
        let skipped = Missing { skipped: 2, ..none };
        assert_eq!((pending.suspect(skipped, 7), pending.until_ns), ((2, false), 7 + SUSPICION_NS));
        assert_eq!((pending.suspect(skipped, 9), pending.until_ns), ((0, false), 7 + SUSPICION_NS));
        let lost = Missing { lost: 3, ..skipped };
        assert_eq!((pending.suspect(lost, 9), pending.until_ns), ((3, true), 9 + SUSPICION_NS));
        assert_eq!(pending.suspect(Missing { undecoded: 1, ..lost }, 9), (0, true));
    }
}
