//! Records that could not be decoded, counted by reason and sending probe.

use super::decode::{DecodeError, Undecodable};
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;

/// All counts are above 0. No probe: the record does not identify it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undecoded(BTreeMap<(&'static str, Option<ProbeId>), u64>);

/// The name of a probe in metrics, JSON and the summary.
#[must_use]
pub fn probe_name(probe: Option<ProbeId>) -> &'static str {
    probe.map_or("unknown", ProbeId::name)
}

impl Undecoded {
    /// Counts one.
    pub fn count(&mut self, record: &Undecodable) {
        *self.0.entry((record.error.reason(), record.probe)).or_default() += 1;
    }

    /// Reason, probe and count of each entry.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Option<ProbeId>, u64)> {
        self.0.iter().map(|((reason, probe), count)| (*reason, *probe, *count))
    }

    /// Of all reasons and probes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Every reason, with 0 if it did not occur.
    #[must_use]
    pub fn by_reason(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::from(DecodeError::REASONS.map(|reason| (reason, 0)));
        self.iter().for_each(|(reason, _, count)| *sums.entry(reason).or_default() += count);
        sums
    }

    /// Records of a probe; `None` counts the records of unknown probes.
    #[must_use]
    pub fn of(&self, probe: Option<ProbeId>) -> u64 {
        self.iter().filter(|(_, of, _)| *of == probe).map(|(_, _, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_by_reason_and_by_probe() {
        let mut undecoded = Undecoded::default();
        let add = [Some(ProbeId::Ioctl), Some(ProbeId::Ioctl), Some(ProbeId::Open), None];
        for (error, probe) in [DecodeError::Kind(9), DecodeError::Outcome(9), DecodeError::Kind(8)]
            .into_iter()
            .chain([DecodeError::NoHeader(0)])
            .zip(add)
        {
            undecoded.count(&Undecodable { error, probe });
        }
        let reasons = undecoded.by_reason();
        assert_eq!((reasons["kind"], reasons["outcome"], reasons["no_header"]), (2, 1, 1));
        assert_eq!((reasons["size"], reasons.len()), (0, DecodeError::REASONS.len()));
        let of = [Some(ProbeId::Ioctl), Some(ProbeId::Open), Some(ProbeId::Release), None];
        assert_eq!(of.map(|probe| undecoded.of(probe)), [2, 1, 0, 1]);
        assert_eq!((probe_name(Some(ProbeId::Open)), probe_name(None)), ("open", "unknown"));
    }
}
