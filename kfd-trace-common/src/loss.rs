//! Counters of records and operations that did not get through, by the probe whose program failed, in one
//! array that all CPUs share: there are too many of them for one part per CPU, and most are 0. While the ring
//! buffer is full, CPUs wait for each other here as they do for its lock.

use crate::counter::{ProbeId, Trouble, count};
use crate::kind::Kind;

/// Index of the records of a kind for which a probe's program found the ring buffer full.
#[must_use]
pub const fn lost(probe: ProbeId, kind: Kind) -> u32 {
    of(probe) + kind as u32
}

/// Index of an operation that a probe's program could not do, or an inconsistency it found.
#[must_use]
pub const fn trouble(probe: ProbeId, trouble: Trouble) -> u32 {
    of(probe) + KINDS + trouble as u32
}

/// All of them.
pub const LOSSES: u32 = count(ProbeId::ALL.len()) * EACH;

/// Counters of one probe.
const EACH: u32 = KINDS + count(Trouble::ALL.len());

const KINDS: u32 = count(Kind::ALL.len());

const fn of(probe: ProbeId) -> u32 {
    probe as u32 * EACH
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_loss_has_an_index_of_its_own() {
        let mut seen = BTreeSet::new();
        for probe in ProbeId::ALL {
            let lost = Kind::ALL.iter().map(|kind| lost(*probe, *kind));
            for index in lost.chain(Trouble::ALL.iter().map(|what| trouble(*probe, *what))) {
                assert!(index < LOSSES && seen.insert(index), "index {index}");
            }
        }
        assert_eq!(seen.len(), LOSSES as usize);
    }
}
