//! How the log's times of the GPU are joined with CLOCK_MONOTONIC: by the log itself.
//!
//! Work begins after its line was written, and its times are logged after its end. So each work bounds the offset between
//! the two clocks from both sides. Those of one process are taken together as long as one offset fits all: where none does
//! (the machine slept, or the clock began anew) another one holds from there on. In every work's bounds by construction,
//! whatever the clock counts from.

use crate::amd_log::source::LogProcess;
use crate::amd_log::work::{Measured, Work, WorkClock};
use std::collections::HashMap;

/// Segments of all clocks together; work beyond has no offset.
const SEGMENTS: usize = 16_384;

type ClockKey = (LogProcess, WorkClock);

/// The least and the greatest CLOCK_MONOTONIC minus the clock, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least_ns: i64,
    pub(super) most_ns: i64,
}

impl Bounds {
    /// `None`: its times contradict its lines.
    pub(super) fn of(work: &Work, measured: &Measured) -> Option<Self> {
        let ns = |us: u64| i64::try_from(us).ok().and_then(|us| us.checked_mul(1000));
        // Times are cut to the unit of their lines.
        let before_ns = measured.begin_ns.checked_add(measured.clock.rounding_ns())?;
        let least_ns = ns(work.at_us)?.checked_sub(before_ns)?;
        let most_ns = ns(measured.at_us.checked_add(1)?)?.checked_sub(measured.end_ns)?;
        (least_ns <= most_ns).then_some(Bounds { least_ns, most_ns })
    }

    fn and(self, other: Bounds) -> Option<Bounds> {
        let least_ns = self.least_ns.max(other.least_ns);
        let most_ns = self.most_ns.min(other.most_ns);
        (least_ns <= most_ns).then_some(Bounds { least_ns, most_ns })
    }

    /// The offset that is taken, and by how much it may be wrong at most: the expected one if it fits, else the middle.
    pub(super) fn offset(self, expected_ns: Option<i64>) -> (i64, u64) {
        let Bounds { least_ns, most_ns } = self;
        let middle = least_ns.midpoint(most_ns);
        let offset = expected_ns.filter(|ns| (least_ns..=most_ns).contains(ns)).unwrap_or(middle);
        (offset, offset.abs_diff(least_ns).max(offset.abs_diff(most_ns)))
    }
}

/// From which work on they hold.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: u64,
    bounds: Bounds,
}

/// The offsets of a log, learned from its first reading.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    clocks: HashMap<ClockKey, (u64, Vec<Segment>)>,
    segments: usize,
}

impl Offsets {
    pub(super) fn learn(&mut self, work: &Work, measured: &Measured) {
        let Some(bounds) = Bounds::of(work, measured) else { return };
        let (count, segments) = self.clocks.entry((work.process, measured.clock)).or_default();
        let from = *count;
        *count += 1;
        if let Some(last) = segments.last_mut()
            && let Some(both) = last.bounds.and(bounds)
        {
            last.bounds = both;
        } else if self.segments < SEGMENTS {
            self.segments += 1;
            segments.push(Segment { from, bounds });
        }
    }
}

/// Goes through the log's second reading, which must be as the first one.
#[derive(Debug, Default)]
pub(super) struct OffsetCursor {
    /// Works so far, and the segment.
    at: HashMap<ClockKey, (u64, usize)>,
}

impl OffsetCursor {
    /// The bounds that hold for this work; `None` where its times cannot be joined.
    pub(super) fn next(&mut self, offsets: &Offsets, work: &Work, measured: &Measured) -> Option<Bounds> {
        let own = Bounds::of(work, measured)?;
        let key = (work.process, measured.clock);
        let (count, place) = self.at.entry(key).or_default();
        let (_, segments) = offsets.clocks.get(&key)?;
        if segments.get(*place + 1).is_some_and(|next| next.from <= *count) {
            *place += 1;
        }
        *count += 1;
        // A file that has changed meanwhile.
        segments.get(*place)?.bounds.and(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amd_log::source::LogProcess;
    use crate::amd_log::work::Task;

    /// Submitted and reported at these microseconds; times of the GPU in microseconds.
    fn work(clock: WorkClock, at_us: u64, reported_us: u64, begin_us: i64, end_us: i64) -> (Work, Measured) {
        let task = Task::Copy { engine: None, bytes: Some(1) };
        let (begin_ns, end_ns) = (begin_us * 1000, end_us * 1000);
        let measured = Measured { clock, begin_ns, end_ns, at_us: reported_us };
        let process = LogProcess { pid: Some(7), ..LogProcess::default() };
        (Work { process, at_us, task, kernel: None, command: None, measured: None }, measured)
    }

    fn joined(works: &[(Work, Measured)]) -> Vec<Option<Bounds>> {
        let (mut offsets, mut cursor) = (Offsets::default(), OffsetCursor::default());
        works.iter().for_each(|(work, measured)| offsets.learn(work, measured));
        works.iter().map(|(work, measured)| cursor.next(&offsets, work, measured)).collect()
    }

    fn bounds(least_us: i64, most_us: i64) -> Option<Bounds> {
        Some(Bounds { least_ns: least_us * 1000, most_ns: most_us * 1000 })
    }

    #[test]
    fn works_bound_the_offset_together() {
        use WorkClock::Signal;
        // The offset is 1000: the first one's begin is near its line, the second one's end is.
        let works = [work(Signal, 1098, 1300, 100, 200), work(Signal, 1200, 1401, 350, 400)];
        assert_eq!(joined(&works), [bounds(998, 1002), bounds(998, 1002)]);
        let bounds = bounds(998, 1002).expect("bounds");
        assert_eq!(bounds.offset(Some(1_001_000)), (1_001_000, 3_000), "as the recording has it");
        assert_eq!(bounds.offset(Some(5_000_000)), (1_000_000, 2_000), "it is another clock");
        assert_eq!(bounds.offset(None), (1_000_000, 2_000));
    }

    #[test]
    fn another_offset_holds_where_none_fits_all() {
        use WorkClock::Signal;
        let works = [
            work(Signal, 1000, 1100, 10, 20),
            work(Signal, 2000, 2100, 1010, 1020),
            // It slept for 500 us.
            work(Signal, 3000, 3100, 2510, 2520),
        ];
        assert_eq!(joined(&works), [bounds(990, 1081), bounds(990, 1081), bounds(490, 581)]);
    }

    #[test]
    fn what_contradicts_its_own_lines_is_not_joined_and_spoils_nothing() {
        use WorkClock::Signal;
        let works = [
            work(Signal, 1000, 1100, 10, 20),
            // It would have run for longer than its lines are apart.
            work(Signal, 2000, 2100, 1000, 1200),
            work(Signal, 3000, 3090, 2010, 2020),
        ];
        assert_eq!(joined(&works), [bounds(990, 1071), None, bounds(990, 1071)]);
    }

    #[test]
    fn whole_microseconds_and_other_processes_have_their_own_bounds() {
        let (mut other, measured) = work(WorkClock::Signal, 9000, 9100, 10, 20);
        other.process.pid = Some(8);
        let works = [work(WorkClock::Wall, 1000, 1100, 10, 20), (other, measured)];
        assert_eq!(joined(&works), [bounds(989, 1081), bounds(8990, 9081)]);
    }
}
