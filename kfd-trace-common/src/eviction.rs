//! What a call of `evict_process_queues_*` or `restore_process_queues_*` did, by the count of evictions that it found and
//! left.
//!
//! Both functions change `qpd->evicted` under the driver's lock (kfd_device_queue_manager.c, alike in 6.1, 6.12 and 7.2), and
//! it is read outside of it. An eviction always adds 1, before any other way out. A restore takes 1 away, or leaves it: a
//! count of 0, of which the driver warns, and 1 where it fails, with an errno.

/// What such a function is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    Evict = 0,
    Restore = 1,
}

/// What one call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The process is evicted now and was not, or the other way round: queues changed.
    pub transition: bool,
    /// Another call changed the count between the two readings: `transition` may be wrong, here or there.
    pub raced: bool,
}

impl Outcome {
    /// By `qpd->evicted` as it was read before and after the call, and whether the call gave an errno.
    #[must_use]
    pub const fn of(call: Call, before: u32, after: u32, failed: bool) -> Outcome {
        match call {
            Call::Evict => {
                Outcome { transition: before == 0 && after > 0, raced: after != before.wrapping_add(1) }
            }
            Call::Restore => Outcome {
                transition: before > 0 && after == 0,
                raced: after != before.wrapping_sub(1) && !(failed && after == before),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transition, raced.
    fn of(call: Call, before: u32, after: u32, failed: bool) -> (bool, bool) {
        let Outcome { transition, raced } = Outcome::of(call, before, after, failed);
        (transition, raced)
    }

    #[test]
    fn the_first_eviction_and_the_last_restore_are_transitions() {
        assert_eq!(of(Call::Evict, 0, 1, false), (true, false));
        assert_eq!(of(Call::Evict, 0, 1, true), (true, false), "EIO of a hang: they are marked all the same");
        assert_eq!(of(Call::Evict, 1, 2, false), (false, false));
        assert_eq!(of(Call::Restore, 2, 1, false), (false, false));
        assert_eq!(of(Call::Restore, 1, 0, false), (true, false));
        assert_eq!(of(Call::Restore, 1, 0, true), (true, false));
    }

    #[test]
    fn a_restore_that_fails_leaves_the_count() {
        assert_eq!(of(Call::Restore, 1, 1, true), (false, false));
        assert_eq!(of(Call::Restore, 1, 1, false), (false, true));
    }

    #[test]
    fn a_count_that_another_call_changed_is_a_race() {
        for (before, after) in [(0, 0), (1, 1), (0, 2), (1, 0)] {
            assert!(of(Call::Evict, before, after, false).1, "{before} {after}");
        }
        // the first: the eviction came after this call's first reading, and its own restore undid it
        for (before, after) in [(0, 0), (1, 2), (2, 0), (0, 1)] {
            assert!(of(Call::Restore, before, after, false).1, "{before} {after}");
        }
    }
}
