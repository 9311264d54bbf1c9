//! Input of a summary: the records behind it, and what is missing from it.

use crate::attribute::Topology;
use crate::events::tables::Tables;
use crate::events::undecoded::Undecoded;
use crate::model::ioctl::{self, Named};
use crate::model::missed::MissCause;
use crate::state::{IoctlTotals, Snapshot};
use kfd_trace_common::kind::Kind;
use std::collections::BTreeMap;

/// Input of a summary.
#[derive(Clone, Copy, Debug)]
pub struct SummaryInput<'a> {
    pub snapshot: &'a Snapshot,
    pub topology: &'a Topology,
    /// The maps at the end of the trace.
    pub tables: &'a Tables,
    /// Sums of processes whose rows were removed from the maps.
    pub retired: &'a IoctlTotals,
    pub undecoded: &'a Undecoded,
    /// Event lines for which the output had no room, by kind.
    pub dropped: &'a BTreeMap<&'static str, u64>,
    /// The driver's ioctls that have a name.
    pub named: Named,
    /// Queues were sampled.
    pub sampled: bool,
    /// Duration of the trace, nanoseconds.
    pub duration_ns: u64,
}

impl SummaryInput<'_> {
    /// Records that reached the ring buffer, by kind; only values other than 0.
    pub(super) fn sent(&self) -> BTreeMap<&'static str, u64> {
        let sent = Kind::ALL.iter().map(|kind| (kind.name(), self.tables.counters.sent(*kind)));
        sent.filter(|(_, count)| *count > 0).collect()
    }

    /// What is missing, by name; only values other than 0.
    pub(super) fn lost(&self, all: &IoctlTotals) -> BTreeMap<String, u64> {
        let mut lost = self.tables.missing(self.undecoded);
        let mut add = |name: String, count: u64| {
            if count > 0 {
                *lost.entry(name).or_default() += count;
            }
        };
        for (kind, count) in self.dropped {
            add(format!("lines dropped, {kind}"), *count);
        }
        for (anomaly, count) in &self.snapshot.totals.anomalies {
            add(format!("inconsistent records, {}", anomaly.name()), *count);
        }
        // A thread that sleeps in WAIT_EVENTS waits: that is no loss.
        for row in &self.tables.in_flight {
            add(format!("still in flight, {}", self.named.name(row.cmd)), 1);
        }
        for (nr, sum) in all.iter() {
            let name = self.named.name(u32::from(nr));
            add(format!("no return seen, {name}"), sum.stat.no_return_seen);
            let open = self.tables.in_flight.iter().chain(&self.tables.waits);
            let open = open.filter(|row| ioctl::nr(row.cmd) == nr).count();
            add(format!("missed return, {name}"), all.missed(nr, open));
        }
        lost
    }

    /// Threads that sleep in WAIT_EVENTS; `None` where its return is not probed.
    pub(super) fn event_waits(&self) -> Option<usize> {
        self.tables.whole_calls.then_some(self.tables.waits.len())
    }

    /// Causes of misses that this kernel counts for no probe.
    pub(super) fn not_counted(&self) -> Vec<&'static str> {
        let counted = |cause| self.tables.missed.values().any(|missed| missed.of(cause).is_some());
        MissCause::ALL.into_iter().filter(|cause| !counted(*cause)).map(MissCause::name).collect()
    }
}

/// Calls of WAIT_EVENTS, where its return is not probed.
pub(super) fn not_measured(all: &IoctlTotals) -> BTreeMap<String, u64> {
    let calls = Some(all.not_measured()).filter(|calls| *calls > 0);
    calls.map(|calls| (Named::default().name(u32::from(ioctl::WAIT_EVENTS)), calls)).into_iter().collect()
}
