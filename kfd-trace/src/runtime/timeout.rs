//! How long work that may hang is waited for without a word. Takes in when it began and what time it is; gives out how long it has
//! taken, once that is long.

use std::time::{Duration, Instant};

/// What takes longer is told.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Ends once.
#[derive(Debug)]
pub(crate) struct Patience {
    since: Instant,
    ended: bool,
}

impl Patience {
    pub(crate) fn new(since: Instant) -> Self {
        Patience { since, ended: false }
    }

    /// How long it has lasted, when it ends now.
    pub(crate) fn ends(&mut self, now: Instant) -> Option<Duration> {
        let took = self.is_over(now).filter(|_| !self.ended);
        self.ended |= took.is_some();
        took
    }

    /// How long it has lasted, from its end on.
    pub(crate) fn is_over(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.since)).filter(|took| *took > LONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_once_and_late() {
        const SECOND: Duration = Duration::from_secs(1);
        let begin = Instant::now();
        let mut patience = Patience::new(begin);
        assert_eq!(patience.ends(begin), None);
        assert_eq!(patience.ends(begin + LONG), None);
        assert_eq!(patience.is_over(begin + LONG), None);
        assert_eq!(patience.ends(begin + LONG + SECOND), Some(LONG + SECOND));
        assert_eq!(patience.ends(begin + LONG * 2), None, "it is told already");
        assert_eq!(patience.is_over(begin + LONG * 2), Some(LONG * 2), "and over all the same");
    }
}
