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
        for row in &self.tables.in_flight {
            add(format!("still in flight, {}", self.named.name(row.cmd)), 1);
        }
        for (nr, sum) in all.iter() {
            let name = self.named.name(u32::from(nr));
            add(format!("no return seen, {name}"), sum.stat.no_return_seen);
            if nr != ioctl::WAIT_EVENTS {
                let in_flight = self.tables.in_flight.iter().filter(|row| ioctl::nr(row.cmd) == nr).count();
                let in_flight = u64::try_from(in_flight).unwrap_or(u64::MAX);
                add(format!("missed return, {name}"), sum.unexplained(in_flight));
            }
        }
        lost
    }

    /// Causes of misses that this kernel counts for no probe.
    pub(super) fn not_counted(&self) -> Vec<&'static str> {
        let counted = |cause| self.tables.missed.values().any(|missed| missed.of(cause).is_some());
        MissCause::ALL.into_iter().filter(|cause| !counted(*cause)).map(MissCause::name).collect()
    }
}

/// WAIT_EVENTS sleeps, so its return is not probed.
pub(super) fn not_measured(all: &IoctlTotals) -> BTreeMap<String, u64> {
    let calls = all.get(ioctl::WAIT_EVENTS).map_or(0, |sum| sum.unexplained(0));
    let name = Named::default().name(u32::from(ioctl::WAIT_EVENTS));
    BTreeMap::from([(name, calls)]).into_iter().filter(|(_, calls)| *calls > 0).collect()
}
