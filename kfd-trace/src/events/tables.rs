//! The contents of the BPF maps, as plain values: totals and counters read at a scrape or at the end of a
//! run.

use super::undecoded::{Undecoded, probe_name};
use crate::model::counters::Counters;
use crate::model::event::ProcessId;
use crate::model::ioctl;
use crate::model::missed::{MissCause, Missed};
use kfd_trace_common::counter::{ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::stat::IoctlStat;
use std::collections::BTreeMap;

/// One reading of all maps. Totals since the tracer started, summed over the CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// The return of `kfd_ioctl` itself is probed, so that calls are measured as their callers see them, those of
    /// WAIT_EVENTS included. Otherwise only the returns of handlers are, and WAIT_EVENTS is counted at its entry
    /// alone: whether one of its calls has returned is not known.
    pub whole_calls: bool,
    pub ioctls: Vec<IoctlRow>,
    pub errors: Vec<ErrorRow>,
    /// Calls that the driver works on; those of WAIT_EVENTS are in `waits`.
    pub in_flight: Vec<InFlightRow>,
    /// Threads that sleep in WAIT_EVENTS, for as long as their process wants. They are apart from the calls in
    /// flight, since an old one of these is stuck. Always empty without `whole_calls`.
    pub waits: Vec<InFlightRow>,
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

    /// These tables, with the calls that have not returned.
    #[must_use]
    pub fn with_open(self, open: Vec<InFlightRow>) -> Self {
        let (waits, in_flight) = open.into_iter().partition(|call| ioctl::nr(call.cmd) == ioctl::WAIT_EVENTS);
        Tables { in_flight, waits, ..self }
    }

    /// Closes calls that have ended: their returns were not seen.
    pub fn close(&mut self, over: impl Fn(&InFlightRow) -> bool) {
        let open = [&mut self.in_flight, &mut self.waits];
        for call in open.into_iter().flat_map(|calls| calls.extract_if(.., |call| over(call))) {
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
    use crate::state::samples::open_call;
    use kfd_trace_common::{counter, loss};
    use std::ops::Range;

    #[test]
    fn a_call_that_is_over_has_no_return_seen() {
        let row = |process| IoctlRow { process: ProcessId(process), cmd: 7, stat: IoctlStat::ZERO };
        let call = |process, tid| open_call(process, 7, tid, 5);
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

    const WAIT: u32 = 0xc018_4b0c;
    /// As a user space with another layout of the arguments passes it.
    const OTHER_WAIT: u32 = 0xc010_4b0c;

    fn open(cmd: u32, tids: Range<u32>) -> Vec<InFlightRow> {
        tids.map(|tid| open_call(1, cmd, tid, 5)).collect()
    }

    #[test]
    fn a_thread_that_sleeps_in_wait_events_is_not_in_a_call_that_the_driver_works_on() {
        let all = [open(WAIT, 0..300), open(7, 300..301), open(OTHER_WAIT, 301..302)].concat();
        let mut tables = Tables::default().with_open(all);
        assert_eq!(tables.in_flight, open(7, 300..301));
        assert_eq!(tables.waits, [open(WAIT, 0..300), open(OTHER_WAIT, 301..302)].concat());
        let stat = IoctlStat { entered: 300, ..IoctlStat::ZERO };
        tables.ioctls = vec![IoctlRow { process: ProcessId(1), cmd: WAIT, stat }];
        tables.close(|call| call.tid < 2);
        assert_eq!((tables.waits.len(), tables.ioctls[0].stat.no_return_seen), (299, 2));
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
            whole_calls: true,
            ..Tables::default().with_open([open(WAIT, 0..300), open(7, 300..301)].concat())
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
