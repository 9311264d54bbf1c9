//! What became of a log on a timeline, and how well its clock is joined: for people.

use crate::text::clock::span;
use std::collections::BTreeMap;

/// What became of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    pub packets: u64,
    pub copies: u64,
    /// Slices: work with times of the GPU that could be joined.
    pub slices: u64,
    /// By how much the time of a slice may be wrong at most, nanoseconds.
    pub within_ns: u64,
    /// Work with times that contradict the lines of the log, or of more than can be shown at the same time: instants.
    pub unplaced_times: u64,
    /// Slices whose offset is not that of CLOCK_BOOTTIME in the recording.
    pub other_clock: u64,
    /// Work that is on tracks of its own, by the log's PID and why.
    pub apart: BTreeMap<(Option<u32>, &'static str), u64>,
    /// Work that is not shown.
    pub left_out: u64,
    pub without_time: u64,
    /// Work whose times could not be waited for.
    pub gave_up: u64,
    /// Queues, and lines of packets and creations within their lives: that the clocks are one.
    pub queues: usize,
    pub joined: u64,
    /// The log's clock would be ahead, or behind, by more than this, and a line outside the life of its queue.
    pub ahead_ns: Option<u64>,
    pub behind_ns: Option<u64>,
}

impl LogReport {
    /// One line each, without the log's name.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.times(), self.clock()];
        if self.other_clock > 0 {
            lines.push(format!(
                "{} times of the GPU are not of CLOCK_BOOTTIME as the recording has it: they are placed by the log's own lines",
                self.other_clock
            ));
        }
        let apart = self.apart.iter().map(|((pid, why), count)| {
            let pid = pid.map_or("without a PID".to_owned(), |pid| format!("of PID {pid}"));
            format!("{count} {pid} are on a track of their own, since {why}")
        });
        lines.extend(apart);
        let counts = [
            (
                self.unplaced_times,
                "have times of the GPU that do not fit between their lines, and are at the time of their line",
            ),
            (self.gave_up, "waited too long for times of the GPU, and are at the time of their line"),
            (self.without_time, "have lines without a time, and are not shown"),
            (self.left_out, "are not shown: they are of more queues than there is room for"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        lines.extend(counts.map(|(count, what)| format!("{count} packets and copies {what}")));
        lines
    }

    fn times(&self) -> String {
        let LogReport { packets, copies, slices, within_ns, .. } = self;
        let all = format!("{packets} packets and {copies} copies");
        if *slices == 0 {
            return format!(
                "{all}, at the times of their lines: it has no times of the GPU that can be joined"
            );
        }
        format!(
            "{all}, {slices} times of the GPU, right to {} or better; what has none is at the time of its line",
            span(*within_ns)
        )
    }

    fn clock(&self) -> String {
        let LogReport { joined, queues, .. } = self;
        let fits = format!(
            "its clock is that of the recording, CLOCK_MONOTONIC, cut to 1us: {joined} lines lie within the lives of {queues} queues"
        );
        match (self.ahead_ns.map(span), self.behind_ns.map(span)) {
            (Some(ahead), Some(behind)) => {
                format!("{fits}, and would not if it were {ahead} ahead or {behind} behind")
            }
            (Some(ahead), None) => format!("{fits}, and would not if it were {ahead} ahead"),
            (None, Some(behind)) => format!("{fits}, and would not if it were {behind} behind"),
            (None, None) => format!("{fits}, of which neither begin nor end was seen"),
        }
    }
}
