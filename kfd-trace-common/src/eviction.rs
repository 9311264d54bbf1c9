//! The effect of a call of `evict_process_queues_*` or `restore_process_queues_*`, from the count of
//! evictions before and after it.
//!
//! Both functions change `qpd->evicted` under the driver's lock (kfd_device_queue_manager.c, alike in 6.1,
//! 6.12 and 7.2), and it is read outside of it. An eviction always adds 1, before any other return. A restore
//! subtracts 1; it may leave a 1 where it fails, and leaves a 0 unchanged, with a warning. 6.12 with MES also
//! adds 1 in `kfd_dqm_evict_pasid_mes`.

/// The purpose of such a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    Evict = 0,
    Restore = 1,
}

/// The effect of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The process is evicted now and was not, or the other way round: queues changed.
    pub transition: bool,
    /// The count differs from the one that this call alone leaves on success: another one changed it between
    /// the two readings, or it failed. `transition` may be wrong, here or there.
    pub raced: bool,
}

impl Outcome {
    /// Derived from `qpd->evicted` before and after the call. An errno gives no further information: a
    /// restore that returns one may have set the count to 0 before (`restore_process_queues_cpsch`).
    #[must_use]
    pub const fn of(call: Call, before: u32, after: u32) -> Outcome {
        match call {
            Call::Evict => {
                Outcome { transition: before == 0 && after > 0, raced: after != before.wrapping_add(1) }
            }
            Call::Restore => {
                Outcome { transition: before > 0 && after == 0, raced: after != before.wrapping_sub(1) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transition, raced.
    fn of(call: Call, before: u32, after: u32) -> (bool, bool) {
        let Outcome { transition, raced } = Outcome::of(call, before, after);
        (transition, raced)
    }

    #[test]
    fn the_first_eviction_and_the_last_restore_are_transitions() {
        assert_eq!(of(Call::Evict, 0, 1), (true, false));
        assert_eq!(of(Call::Evict, 1, 2), (false, false));
        assert_eq!(of(Call::Restore, 2, 1), (false, false));
        assert_eq!(of(Call::Restore, 1, 0), (true, false));
    }

    #[test]
    fn a_count_that_the_call_alone_does_not_leave_is_a_race() {
        for (before, after) in [(0, 0), (1, 1), (0, 2), (1, 0)] {
            assert!(of(Call::Evict, before, after).1, "{before} {after}");
        }
        // the first: the eviction came after this call's first reading, and its own restore undid it; the
        // second: it set 0, or failed, and an eviction came before its last reading
        for (before, after) in [(0, 0), (1, 1), (1, 2), (2, 0), (0, 1)] {
            assert!(of(Call::Restore, before, after).1, "{before} {after}");
        }
    }
}
