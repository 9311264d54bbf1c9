//! What the BPF maps hold, as plain values: sums and counters read at a scrape or at the end of a run.

use super::event::ProcessId;
use crate::missed::{Cause, Missed};
use kfd_trace_common::counter::{self, ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::stat::IoctlStat;
use std::collections::BTreeMap;

/// One reading of all maps. Totals since the tracer's start, summed over the CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    pub ioctls: Vec<IoctlRow>,
    pub errors: Vec<ErrorRow>,
    pub in_flight: Vec<InFlightRow>,
    pub crowded: Crowded,
    pub counters: Counters,
    /// What the kernel left out, of each probe that is or was attached.
    pub missed: BTreeMap<ProbeId, Missed>,
}

/// Entries of the hash maps that take what finds no place at hand, and of the places themselves: they can run full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowded {
    /// Pairs of process and command.
    pub ioctls: usize,
    /// Triples with an errno.
    pub errors: usize,
    /// Calls under way.
    pub in_flight: usize,
    /// Threads that have a seat.
    pub seats: usize,
}

impl Tables {
    /// What did not reach the state, each under its name, none of them 0: records that found the ring buffer full, what the
    /// kernel left out of each probe, what the programs could not do, and records that could not be decoded, which are
    /// counted by their reason outside of the maps.
    #[must_use]
    pub fn missing(&self, decode_errors: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
        let lost = Kind::ALL
            .iter()
            .map(|kind| (format!("records lost, {}", kind.name()), self.counters.lost(*kind)));
        let left_out = self.missed.iter().flat_map(|(probe, missed)| {
            let name = |cause: Cause| format!("{}, {}", cause.name().replace('_', " "), probe.name());
            Cause::ALL.into_iter().map(move |cause| (name(cause), missed.of(cause).unwrap_or(0)))
        });
        let trouble = Trouble::ALL
            .iter()
            .map(|trouble| (format!("trouble, {}", trouble.name()), self.counters.trouble(*trouble)));
        let not_decoded =
            decode_errors.iter().map(|(reason, count)| (format!("records not decoded, {reason}"), *count));
        let all = lost.chain(left_out).chain(trouble).chain(not_decoded);
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Calls that are over: their returns were not seen.
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
    /// As user space gave it.
    pub cmd: u32,
    pub stat: IoctlStat,
}

/// How often one process's calls of one command ended in one errno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    pub process: ProcessId,
    pub cmd: u32,
    /// Positive.
    pub errno: i32,
    pub count: u64,
}

/// A call that entered `kfd_ioctl` and has not been seen to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightRow {
    pub process: ProcessId,
    /// tgid of the owner.
    pub tgid: u32,
    /// tgid and tid of the thread that calls, which is another process's where CRIU calls for the owner.
    pub caller_tgid: u32,
    pub tid: u32,
    pub cmd: u32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub entered_ns: u64,
}

/// The programs' own counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub Vec<u64>);

impl Counters {
    /// Those of an object that was loaded and is gone count on.
    pub fn add(&mut self, other: &Counters) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own += other;
        }
    }

    fn at(&self, index: u32) -> u64 {
        usize::try_from(index).ok().and_then(|index| self.0.get(index)).copied().unwrap_or(0)
    }

    /// How often a probe's program ran.
    #[must_use]
    pub fn hits(&self, probe: ProbeId) -> u64 {
        self.at(counter::hits(probe))
    }

    /// How often something could not be done.
    #[must_use]
    pub fn trouble(&self, trouble: Trouble) -> u64 {
        self.at(counter::trouble(trouble))
    }

    /// Records that reached the ring buffer.
    #[must_use]
    pub fn sent(&self, kind: Kind) -> u64 {
        self.at(counter::sent(kind))
    }

    /// Records that found the ring buffer full.
    #[must_use]
    pub fn lost(&self, kind: Kind) -> u64 {
        self.at(counter::lost(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn all_that_is_missing_is_named_and_nothing_else() {
        let mut counters = vec![0; counter::COUNTERS as usize];
        counters[counter::lost(Kind::Open) as usize] = 1;
        counters[counter::sent(Kind::Close) as usize] = 100;
        counters[counter::hits(ProbeId::Open) as usize] = 100;
        counters[counter::trouble(Trouble::ArgsUnreadable) as usize] = 2;
        let missed = Missed { program_skipped: Some(0), probe_missed: Some(3) };
        let tables = Tables {
            counters: Counters(counters),
            missed: [(ProbeId::Open, missed), (ProbeId::Ioctl, Missed::default())].into(),
            ..Tables::default()
        };
        let missing = tables.missing(&[("kind", 0), ("size", 4)].into());
        let expected = [
            ("records lost, open", 1),
            ("trouble, args_unreadable", 2),
            ("probe missed, open", 3),
            ("records not decoded, size", 4),
        ];
        assert_eq!(missing, expected.map(|(name, count)| (name.to_owned(), count)).into());
    }

    #[test]
    fn counters_add_up() {
        let mut sum = Counters::default();
        sum.add(&Counters(vec![1, 2]));
        sum.add(&Counters(vec![10, 20, 30]));
        sum.add(&Counters(vec![100]));
        assert_eq!(sum, Counters(vec![111, 22, 30]));
    }
}
