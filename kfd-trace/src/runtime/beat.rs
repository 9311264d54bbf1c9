//! A sign of life of a loop, which others read: when it last turned.

use super::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When the loop last turned, on the monotonic clock. Clones share it.
#[derive(Clone, Debug)]
pub struct Beat(Arc<AtomicU64>);

impl Default for Beat {
    /// A loop that is about to start has just turned.
    fn default() -> Self {
        Beat(Arc::new(AtomicU64::new(clock::mono_ns())))
    }
}

impl Beat {
    /// The loop turns.
    pub fn turn(&self) {
        self.0.store(clock::mono_ns(), Ordering::Relaxed);
    }

    /// Time since the last turn.
    #[must_use]
    pub fn age(&self) -> Duration {
        age(self.0.load(Ordering::Relaxed), clock::mono_ns())
    }
}

/// Another thread may turn the loop between the readings of the clock.
const fn age(turned_ns: u64, now_ns: u64) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(turned_ns))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A loop that last turned that long ago.
    pub(crate) fn stuck_for(seconds: u64) -> Beat {
        Beat(Arc::new(AtomicU64::new(clock::mono_ns().saturating_sub(seconds * 1_000_000_000))))
    }

    #[test]
    fn an_age_is_never_negative() {
        assert_eq!(age(5, 7), Duration::from_nanos(2));
        assert_eq!(age(7, 5), Duration::ZERO);
    }
}
