//! Waiting for a driver that can be traced: what is logged about it, and when it is tried again.
//!
//! In: why it cannot be traced now. Out: a line if the reason differs from the last one, and a pause. Pure.

use crate::runtime::exit::{NOTHING_TO_TRACE, Stop};
use std::time::Duration;

/// Interval between checks for a driver that is not loaded.
const WAIT: Duration = Duration::from_millis(2500);

/// Longest pause before a loaded driver is tried again: an attempt takes the kernel some seconds.
const LONGEST: Duration = Duration::from_secs(60);

/// State of the wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The reason that was logged last.
    reported: Option<String>,
    /// Consecutive attempts that failed although there is a driver.
    failed: u32,
}

impl Waiting {
    /// `reported`: the reason that is known already.
    pub(crate) fn new(reported: Option<String>) -> Self {
        Waiting { reported, failed: 0 }
    }

    /// The line to be logged, if this reason differs from the last one.
    pub(crate) fn message(&mut self, stop: &Stop) -> Option<String> {
        if self.reported.as_ref() == Some(&stop.line) {
            return None;
        }
        self.reported = Some(stop.line.clone());
        let goes_on = if stop.code == NOTHING_TO_TRACE { "waiting for it" } else { "it will be tried again" };
        Some(format!("{stop}; {goes_on}"))
    }

    /// How long to wait before the next attempt.
    pub(crate) fn pause(&mut self, stop: &Stop) -> Duration {
        if stop.code == NOTHING_TO_TRACE {
            self.failed = 0;
            return WAIT;
        }
        let factor = 2u32.saturating_pow(self.failed);
        self.failed = self.failed.saturating_add(1);
        WAIT.saturating_mul(factor).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(line: &str) -> Stop {
        Stop { code: NOTHING_TO_TRACE, line: line.to_owned() }
    }

    #[test]
    fn a_reason_is_reported_when_it_is_another_one() {
        let mut waiting = Waiting::new(Some("not loaded".to_owned()));
        let reported =
            ["not loaded", "no KFD", "no KFD", "not loaded"].map(|why| waiting.message(&away(why)));
        let line = |why: &str| Some(format!("{why}; waiting for it"));
        assert_eq!(reported, [None, line("no KFD"), None, line("not loaded")]);
        assert_eq!(
            waiting.message(&Stop::failed("ENOMEM")),
            Some("ENOMEM; it will be tried again".to_owned())
        );
        assert!(Waiting::default().message(&away("not loaded")).is_some(), "nothing was reported before");
    }

    #[test]
    fn what_fails_is_tried_more_and_more_rarely_and_who_is_away_is_not() {
        let mut waiting = Waiting::default();
        let mut pauses = |stop: &Stop, times: usize| -> Vec<f64> {
            (0..times).map(|_| waiting.pause(stop).as_secs_f64()).collect()
        };
        let failed = Stop::failed("ENOMEM");
        assert_eq!(pauses(&away("not loaded"), 3), [2.5, 2.5, 2.5]);
        assert_eq!(pauses(&failed, 7), [2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0]);
        assert_eq!(pauses(&failed, 100).last(), Some(&60.0));
        assert_eq!(pauses(&away("not loaded"), 1), [2.5]);
        assert_eq!(pauses(&failed, 1), [2.5], "it was away: this is another driver");
    }
}
