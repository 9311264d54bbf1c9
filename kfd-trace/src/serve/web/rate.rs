//! `rate_limit`: how many requests are answered, of all clients together.
//!
//! In: the interval and the burst of the configuration. Out: whether a request may pass now. A token bucket, as of the
//! Prometheus exporters: full at the start, and a token more after each interval.

use jiff::SignedDuration;
use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateLimit {
    /// Not zero.
    interval: Duration,
    burst: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RateSection {
    interval: Option<Interval>,
    burst: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Interval(Duration);

impl TryFrom<String> for Interval {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // The format has 0 without a unit, and means nanoseconds by any other number.
        if text == "0" {
            return Ok(Interval(Duration::ZERO));
        }
        let interval = text.parse::<SignedDuration>().ok().and_then(|interval| interval.try_into().ok());
        interval.map(Interval).ok_or_else(|| {
            format!("`{text}` is no interval of rate_limit: write a number with a unit, as 100ms or 1s")
        })
    }
}

impl RateSection {
    /// `None`: nothing is limited.
    pub(super) fn meant(self) -> Option<RateLimit> {
        let interval = self.interval.map(|Interval(interval)| interval)?;
        (!interval.is_zero()).then_some(RateLimit { interval, burst: self.burst })
    }
}

impl RateLimit {
    /// What it does beside limiting.
    pub(super) fn note(self) -> Option<String> {
        (self.burst == 0).then(|| "rate_limit has a burst of 0: each request is answered with 429".to_owned())
    }
}

/// A limit, and what was used of it.
#[derive(Debug)]
pub(super) struct Limiter {
    limit: RateLimit,
    bucket: Arc<Mutex<Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// Time until it is full again, at that moment.
    missing: Duration,
    at: Instant,
}

impl Limiter {
    pub(super) fn new(limit: RateLimit) -> Self {
        let bucket = Bucket { missing: Duration::ZERO, at: Instant::now() };
        Limiter { limit, bucket: Arc::new(Mutex::new(bucket)) }
    }

    /// A change of the file that leaves the limit alone gives no new burst.
    pub(super) fn remember(&mut self, before: &Limiter) {
        if self.limit == before.limit {
            self.bucket = Arc::clone(&before.bucket);
        }
    }

    /// Takes a token, if there is one.
    pub(super) fn admits(&self) -> bool {
        let now = Instant::now();
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = bucket.missing.saturating_sub(now.saturating_duration_since(bucket.at));
        let whole = self.limit.interval.saturating_mul(self.limit.burst);
        match missing.checked_add(self.limit.interval) {
            Some(missing) if missing <= whole => {
                *bucket = Bucket { missing, at: now };
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    fn admitted(limiter: &Limiter, requests: usize) -> usize {
        (0..requests).filter(|_| limiter.admits()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_admitted_and_then_one_for_each_interval() {
        let limiter = Limiter::new(RateLimit { interval: SECOND, burst: 3 });
        assert_eq!(admitted(&limiter, 10), 3);
        advance(SECOND / 2).await;
        assert_eq!(admitted(&limiter, 10), 0);
        advance(SECOND / 2).await;
        assert_eq!(admitted(&limiter, 10), 1);
        advance(5 * SECOND / 2).await;
        assert_eq!(admitted(&limiter, 10), 2);
        advance(SECOND / 2).await;
        assert_eq!(admitted(&limiter, 10), 1, "a half was left");
        advance(3600 * SECOND).await;
        assert_eq!(admitted(&limiter, 10), 3, "never more than a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn the_ends_of_what_can_be_configured() {
        let longest = Limiter::new(RateLimit { interval: Duration::MAX, burst: u32::MAX });
        assert_eq!(admitted(&longest, 3), 1);
        let none = Limiter::new(RateLimit { interval: SECOND, burst: 0 });
        advance(3600 * SECOND).await;
        assert_eq!(admitted(&none, 3), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_limit_goes_on_after_a_change() {
        let limit = RateLimit { interval: SECOND, burst: 2 };
        let old = Limiter::new(limit);
        assert_eq!(admitted(&old, 9), 2);
        let (mut same, mut other) = (Limiter::new(limit), Limiter::new(RateLimit { burst: 3, ..limit }));
        same.remember(&old);
        other.remember(&old);
        assert_eq!((admitted(&same, 9), admitted(&other, 9)), (0, 3));
    }
}
