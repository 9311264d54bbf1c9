//! The contents of the BPF maps, as plain values: totals and counters read at a scrape or at the end of a
//! run.

use super::undecoded::{Undecoded, probe_name};
use crate::model::counters::Counters;
use crate::model::event::ProcessId;
use crate::model::missed::{MissCause, Missed};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::stat::IoctlStat;
use std::collections::BTreeMap;

/// One reading of all maps. Totals since the tracer started, summed over the CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    pub ioctls: Vec<IoctlRow>,
    pub errors: Vec<ErrorRow>,
    pub in_flight: Vec<InFlightRow>,
    pub crowded: Crowded,
    pub counters: Counters,
    /// Calls that the kernel skipped, for each probe that is or was attached.
    pub missed: BTreeMap<ProbeId, Missed>,
}

/// Cause of a probe's losses: records that found the ring buffer full.
pub const RING_FULL: &str = "ring_full";

/// Records that could not be decoded.
pub const NOT_DECODED: &str = "not_decoded";

/// Entries in use of the hash maps for what has no slot of its own, and of the slots themselves: both can run
/// full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowded {
    /// Pairs of process and command.
    pub ioctls: usize,
    /// Triples with an errno.
    pub errors: usize,
    /// Calls in flight.
    pub in_flight: usize,
    /// Threads that have a slot.
    pub slots: usize,
}

impl Tables {
    /// What did not reach the state, each under a name that ends in the probe's name, all above 0: records
    /// that found the ring buffer full, calls that the kernel skipped, what the programs could not do, and
    /// records that could not be decoded, which are counted outside the maps.
    #[must_use]
    pub fn missing(&self, undecoded: &Undecoded) -> BTreeMap<String, u64> {
        let mut missing = BTreeMap::new();
        let mut add = |what: &str, which: &str, probe: &str, count: u64| {
            if count > 0 {
                missing.insert(format!("{what}, {which}, {probe}"), count);
            }
        };
        for probe in ProbeId::ALL {
            for kind in Kind::ALL {
                add("records lost", kind.name(), probe.name(), self.counters.lost_of(*probe, *kind));
            }
            for trouble in Trouble::ALL {
                add("trouble", trouble.name(), probe.name(), self.counters.trouble_of(*probe, *trouble));
            }
        }
        for (reason, probe, count) in undecoded.iter() {
            add("records not decoded", reason, probe_name(probe), count);
        }
        for (probe, missed) in &self.missed {
            for (cause, count) in
                MissCause::ALL.into_iter().filter_map(|cause| Some((cause, missed.of(cause)?)))
            {
                if count > 0 {
                    missing.insert(format!("{}, {}", cause.name().replace('_', " "), probe.name()), count);
                }
            }
        }
        missing
    }

    /// Losses of what a probe's program reported or could have reported, by cause, all above 0:
    /// [`RING_FULL`], [`NOT_DECODED`] and the names of [`Trouble`].
    #[must_use]
    pub fn losses_of(&self, probe: ProbeId, undecoded: &Undecoded) -> BTreeMap<&'static str, u64> {
        let records = [(RING_FULL, self.counters.lost_by(probe)), (NOT_DECODED, undecoded.of(Some(probe)))];
        let troubles = self.counters.troubles_of(probe).map(|(trouble, count)| (trouble.name(), count));
        records.into_iter().filter(|(_, count)| *count > 0).chain(troubles).collect()
    }

    /// Closes calls that have ended: their returns were not seen.
    pub fn close(&mut self, over: impl Fn(&InFlightRow) -> bool) {
        for call in self.in_flight.extract_if(.., |call| over(call)) {
            let row = self.ioctls.iter_mut().find(|row| (row.process, row.cmd) == (call.process, call.cmd));
            if let Some(row) = row {
                row.stat.no_return_seen += 1;
            }
        }
    }
}

/// One process's calls of one command.
#[derive(Clone, Debug, PartialEq)]
pub struct IoctlRow {
    pub process: ProcessId,
    /// As passed by user space.
    pub cmd: u32,
    pub stat: IoctlStat,
}

/// How often one process's calls of one command returned one errno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    pub process: ProcessId,
    pub cmd: u32,
    /// Positive.
    pub errno: i32,
    pub count: u64,
}

/// A call that entered `kfd_ioctl` and whose return was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightRow {
    pub process: ProcessId,
    /// tgid of the owner.
    pub tgid: u32,
    /// tgid and tid of the calling thread; it belongs to another process where CRIU calls for the owner.
    pub caller_tgid: u32,
    pub tid: u32,
    pub cmd: u32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub entered_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::decode::{DecodeError, Undecodable};
    use crate::model::counters::samples::counters;
    use kfd_trace_common::{counter, loss};

    #[test]
    fn a_call_that_is_over_has_no_return_seen() {
        let row = |process| IoctlRow { process: ProcessId(process), cmd: 7, stat: IoctlStat::ZERO };
        let call = |process, tid| InFlightRow {
            process: ProcessId(process),
            tgid: 1,
            caller_tgid: 1,
            tid,
            cmd: 7,
            entered_ns: 5,
        };
        let mut tables = Tables {
            ioctls: vec![row(1), row(2)],
            in_flight: vec![call(1, 10), call(2, 20), call(2, 21)],
            ..Tables::default()
        };
        tables.close(|call| call.tid != 20);
        assert_eq!(tables.in_flight, [call(2, 20)]);
        let not_seen: Vec<_> = tables.ioctls.iter().map(|row| row.stat.no_return_seen).collect();
        assert_eq!(not_seen, [1, 1]);
    }

    /// One loss of each kind, of three probes and of no probe.
    fn losing() -> (Tables, Undecoded) {
        let counted = [(counter::sent(Kind::Close), 100), (counter::hits(ProbeId::Open), 100)];
        let losses = [
            (loss::lost(ProbeId::Open, Kind::Open), 1),
            (loss::lost(ProbeId::QueueAdd, Kind::ProcessSeen), 5),
            (loss::lost(ProbeId::QueueAdd, Kind::QueueCreate), 6),
            (loss::trouble(ProbeId::QueueAdd, Trouble::QueueUnreadable), 2),
        ];
        let missed = Missed { program_skipped: Some(0), probe_missed: Some(3) };
        let tables = Tables {
            counters: counters(&counted, &losses),
            missed: [(ProbeId::Open, missed), (ProbeId::Ioctl, Missed::default())].into(),
            ..Tables::default()
        };
        let mut undecoded = Undecoded::default();
        for probe in [Some(ProbeId::Open), Some(ProbeId::Open), None] {
            undecoded.count(&Undecodable { error: DecodeError::Kind(99), probe });
        }
        (tables, undecoded)
    }

    #[test]
    fn all_that_is_missing_is_named_and_nothing_else() {
        let (tables, undecoded) = losing();
        let expected = [
            ("records lost, open, open", 1),
            ("records lost, process_seen, queue_add", 5),
            ("records lost, queue_create, queue_add", 6),
            ("trouble, queue_unreadable, queue_add", 2),
            ("probe missed, open", 3),
            ("records not decoded, kind, open", 2),
            ("records not decoded, kind, unknown", 1),
        ];
        assert_eq!(tables.missing(&undecoded), expected.map(|(name, count)| (name.to_owned(), count)).into());
        assert_eq!(Tables::default().missing(&Undecoded::default()), BTreeMap::new());
    }

    #[test]
    fn a_probe_has_its_own_losses() {
        let (tables, undecoded) = losing();
        let of = |probe| tables.losses_of(probe, &undecoded);
        assert_eq!(of(ProbeId::Open), [(RING_FULL, 1), (NOT_DECODED, 2)].into());
        assert_eq!(of(ProbeId::QueueAdd), [(RING_FULL, 11), ("queue_unreadable", 2)].into());
        assert_eq!(of(ProbeId::Ioctl), [].into());
    }
}
