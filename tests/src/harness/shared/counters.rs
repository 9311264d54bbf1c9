//! The counters of a running tracer, read from its BPF maps: records sent, lost, and failed operations. The
//! daemon exports these as metrics, but a stream reports them only in its summary.

use crate::harness::bpf_maps;
use crate::harness::mapped::Mapped;
use anyhow::Result;
use kfd_trace_common::counter::{self, ProbeId, STRIDE, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::loss;
use std::collections::BTreeMap;

pub(super) struct Counters {
    /// One part of [`STRIDE`] words per CPU (kfd-trace-ebpf/src/counters.rs).
    counted: Mapped,
    /// One part for all CPUs (kfd-trace-ebpf/src/losses.rs).
    losses: Mapped,
}

/// Since the tracer started, by the names of the metrics; none of them 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Records that reached the ring buffer, by kind.
    pub(super) sent: BTreeMap<&'static str, u64>,
    /// Records that found it full, by kind, and operations that the programs could not do.
    pub(super) missing: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Counters of this process.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let mapped = |name| {
            let (map, entries) = bpf_maps::find(pid, name)?;
            Mapped::new(&map, entries)
        };
        Ok(Self { counted: mapped("COUNTERS")?, losses: mapped("LOSSES")? })
    }

    fn of_all_probes(&self, index: impl Fn(ProbeId) -> u32) -> Result<u64> {
        ProbeId::ALL.iter().map(|probe| self.losses.word(usize::try_from(index(*probe))?)).sum()
    }

    pub(super) fn read(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        for kind in Kind::ALL {
            counts.sent.insert(kind.name(), self.counted.sum(counter::sent(*kind), STRIDE));
            counts.missing.insert(kind.name(), self.of_all_probes(|probe| loss::lost(probe, *kind))?);
        }
        for trouble in Trouble::ALL {
            counts
                .missing
                .insert(trouble.name(), self.of_all_probes(|probe| loss::trouble(probe, *trouble))?);
        }
        Ok(counts.since(&Counts::default()))
    }
}

impl Counts {
    /// The increments since `before`.
    pub(super) fn since(&self, before: &Counts) -> Counts {
        let since = |now: &BTreeMap<&'static str, u64>, then: &BTreeMap<&'static str, u64>| {
            let more = now.iter().map(|(name, count)| (*name, count - then.get(name).unwrap_or(&0)));
            more.filter(|(_, count)| *count > 0).collect()
        };
        Counts { sent: since(&self.sent, &before.sent), missing: since(&self.missing, &before.missing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_after_is_left() {
        let counts = |sent, missing| Counts {
            sent: BTreeMap::from([("ioctl", sent), ("open", 1)]),
            missing: BTreeMap::from([("ioctl", missing)]),
        };
        let since = counts(5, 2).since(&counts(3, 2));
        assert_eq!(since.sent, BTreeMap::from([("ioctl", 2)]));
        assert_eq!(since.missing, BTreeMap::new());
    }
}
