//! How a daemon that is besieged answers health checks. In: statuses, and how long each took. Out: whether that is well.

use std::fmt;
use std::time::Duration;

/// A kubelet waits so long: `timeoutSeconds` of deploy/kubernetes/base/kfd-trace.yaml.
const KUBELET: Duration = Duration::from_secs(5);

/// The usual check takes no longer: one that is late may be the machine's doing, most of them are the daemon's.
const USUAL: Duration = Duration::from_secs(1);

/// Checks that were made.
#[derive(Debug, Default)]
pub(super) struct Checks {
    took: Vec<Duration>,
    failed: usize,
}

impl Checks {
    /// `status`: `None` without an answer.
    pub(super) fn add(&mut self, status: Option<u16>, took: Duration) {
        self.took.push(took);
        self.failed += usize::from(status != Some(200) || took > KUBELET);
    }

    /// None failed, and at least half of them were answered at once.
    pub(super) fn are_well(&self) -> bool {
        let late = self.took.iter().filter(|took| **took > USUAL).count();
        !self.took.is_empty() && self.failed == 0 && 2 * late <= self.took.len()
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slowest = self.took.iter().max().copied().unwrap_or_default().as_secs_f64();
        write!(f, "{} of {} failed, the slowest took {slowest:.1} s", self.failed, self.took.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_well(checks: &[(Option<u16>, u64)]) -> bool {
        let mut all = Checks::default();
        checks.iter().for_each(|(status, seconds)| all.add(*status, Duration::from_secs(*seconds)));
        all.are_well()
    }

    #[test]
    fn one_late_answer_is_no_failure_and_a_daemon_that_stands_still_is_one() {
        let good = (Some(200), 0);
        assert!(are_well(&[good, good, (Some(200), 3)]));
        for bad in [(Some(200), 6), (Some(503), 0), (None, 0)] {
            assert!(!are_well(&[good, good, bad]), "{bad:?}");
        }
        assert!(!are_well(&[]), "none was made");
        // It answers when the siege is over, which is before a kubelet's patience ends.
        assert!(!are_well(&[(Some(200), 5)]));
    }
}
