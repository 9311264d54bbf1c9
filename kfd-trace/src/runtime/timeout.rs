//! Timeout after which work that may hang is reported. In: when it began and the current time. Out: how long
//! it has taken, once that is long.

use std::time::{Duration, Instant};

/// Work that takes longer is reported.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Expires once.
#[derive(Debug)]
pub(crate) struct Timeout {
    since: Instant,
    ended: bool,
}

impl Timeout {
    pub(crate) fn new(since: Instant) -> Self {
        Timeout { since, ended: false }
    }

    /// How long it has lasted, if it expires now.
    pub(crate) fn ends(&mut self, now: Instant) -> Option<Duration> {
        let took = self.is_over(now).filter(|_| !self.ended);
        self.ended |= took.is_some();
        took
    }

    /// How long it has lasted, once it has expired.
    pub(crate) fn is_over(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.since)).filter(|took| *took > LONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_ends_once_and_late() {
        const SECOND: Duration = Duration::from_secs(1);
        let begin = Instant::now();
        let mut timeout = Timeout::new(begin);
        assert_eq!(timeout.ends(begin), None);
        assert_eq!(timeout.ends(begin + LONG), None);
        assert_eq!(timeout.is_over(begin + LONG), None);
        assert_eq!(timeout.ends(begin + LONG + SECOND), Some(LONG + SECOND));
        assert_eq!(timeout.ends(begin + LONG * 2), None, "reported already");
        assert_eq!(timeout.is_over(begin + LONG * 2), Some(LONG * 2), "and over all the same");
    }
}
