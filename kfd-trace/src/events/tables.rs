//! What the BPF maps hold, as plain values: sums and counters read at a scrape or at the end of a run.

use super::event::ProcessId;
use crate::missed::Missed;
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
    /// What the kernel left out, of each attached probe.
    pub missed: BTreeMap<ProbeId, Missed>,
}

/// Entries of the hash maps that take what finds no place at hand, and that can run full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowded {
    /// Pairs of process and command.
    pub ioctls: usize,
    /// Triples with an errno.
    pub errors: usize,
    /// Calls under way.
    pub in_flight: usize,
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
    pub tid: u32,
    pub cmd: u32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub entered_ns: u64,
}

/// The programs' own counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub Vec<u64>);

impl Counters {
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
