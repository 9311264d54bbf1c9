//! The BPF programs' own counters, as plain values.

use kfd_trace_common::counter::{self, ProbeId, Trouble};
use kfd_trace_common::kind::Kind;
use kfd_trace_common::loss;

/// One reading. Totals since the tracer started; empty before anything was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By the indices of [`counter`], summed over the CPUs.
    pub counted: Vec<u64>,
    /// By the indices of [`loss`].
    pub losses: Vec<u64>,
}

impl Counters {
    /// Adds the counts of another reading, such as those of an object that was unloaded.
    pub fn add(&mut self, other: &Counters) {
        add(&mut self.counted, &other.counted);
        add(&mut self.losses, &other.losses);
    }

    /// Nothing was ever loaded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counted.is_empty()
    }

    /// How often a probe's program ran.
    #[must_use]
    pub fn hits(&self, probe: ProbeId) -> u64 {
        at(&self.counted, counter::hits(probe))
    }

    /// Records that reached the ring buffer.
    #[must_use]
    pub fn sent(&self, kind: Kind) -> u64 {
        at(&self.counted, counter::sent(kind))
    }

    /// Records that a probe's program could not send because the ring buffer was full.
    #[must_use]
    pub fn lost_of(&self, probe: ProbeId, kind: Kind) -> u64 {
        at(&self.losses, loss::lost(probe, kind))
    }

    /// As [`Counters::lost_of`], sum over all probes.
    #[must_use]
    pub fn lost(&self, kind: Kind) -> u64 {
        ProbeId::ALL.iter().map(|probe| self.lost_of(*probe, kind)).sum()
    }

    /// As [`Counters::lost_of`], sum over all kinds.
    #[must_use]
    pub fn lost_by(&self, probe: ProbeId) -> u64 {
        Kind::ALL.iter().map(|kind| self.lost_of(probe, *kind)).sum()
    }

    /// How often a probe's program could not do something, or found something wrong.
    #[must_use]
    pub fn trouble_of(&self, probe: ProbeId, trouble: Trouble) -> u64 {
        at(&self.losses, loss::trouble(probe, trouble))
    }

    /// As [`Counters::trouble_of`], sum over all probes.
    #[must_use]
    pub fn trouble(&self, trouble: Trouble) -> u64 {
        ProbeId::ALL.iter().map(|probe| self.trouble_of(*probe, trouble)).sum()
    }

    /// The troubles of a probe with a count above 0.
    pub fn troubles_of(&self, probe: ProbeId) -> impl Iterator<Item = (Trouble, u64)> + '_ {
        let all = Trouble::ALL.iter().map(move |trouble| (*trouble, self.trouble_of(probe, *trouble)));
        all.filter(|(_, count)| *count > 0)
    }
}

fn at(counts: &[u64], index: u32) -> u64 {
    usize::try_from(index).ok().and_then(|index| counts.get(index)).copied().unwrap_or(0)
}

fn add(to: &mut Vec<u64>, from: &[u64]) {
    to.resize(to.len().max(from.len()), 0);
    for (own, other) in to.iter_mut().zip(from) {
        *own += other;
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use kfd_trace_common::counter::COUNTERS;
    use kfd_trace_common::loss::LOSSES;

    /// All 0, except for the values given by index: of `counted`, and of `losses`.
    pub(crate) fn counters(counted: &[(u32, u64)], losses: &[(u32, u64)]) -> Counters {
        let mut all = Counters { counted: vec![0; COUNTERS as usize], losses: vec![0; LOSSES as usize] };
        counted.iter().for_each(|(index, count)| all.counted[*index as usize] = *count);
        losses.iter().for_each(|(index, count)| all.losses[*index as usize] = *count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::samples::counters;
    use super::*;

    #[test]
    fn counters_add_up() {
        let of =
            |counted: &[u64], losses: &[u64]| Counters { counted: counted.into(), losses: losses.into() };
        let mut sum = Counters::default();
        assert!(sum.is_empty());
        sum.add(&of(&[1, 2], &[3]));
        sum.add(&of(&[10, 20, 30], &[30, 40]));
        sum.add(&of(&[100], &[]));
        assert_eq!(sum, of(&[111, 22, 30], &[33, 40]));
    }

    #[test]
    fn losses_are_those_of_all_probes() {
        let losses = [
            (loss::lost(ProbeId::Ioctl, Kind::ProcessSeen), 1),
            (loss::lost(ProbeId::QueueAdd, Kind::ProcessSeen), 10),
            (loss::lost(ProbeId::QueueAdd, Kind::QueueCreate), 100),
            (loss::trouble(ProbeId::QueueAdd, Trouble::QueueUnreadable), 1000),
            (loss::trouble(ProbeId::QueueDel, Trouble::QueueUnreadable), 2000),
        ];
        let counters = counters(&[], &losses);
        assert_eq!((counters.lost(Kind::ProcessSeen), counters.lost(Kind::QueueCreate)), (11, 100));
        assert_eq!(counters.lost_of(ProbeId::QueueAdd, Kind::ProcessSeen), 10);
        assert_eq!(counters.trouble(Trouble::QueueUnreadable), 3000);
        assert_eq!(counters.trouble_of(ProbeId::QueueDel, Trouble::QueueUnreadable), 2000);
        assert_eq!(counters.trouble(Trouble::ProcessesFull), 0);
    }
}
