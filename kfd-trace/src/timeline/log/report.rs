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
    /// Packets on tracks of queues below their process that the recording does not have, by the log's PID and why.
    pub beside: BTreeMap<(Option<u32>, &'static str), u64>,
    /// Work that is not shown.
    pub left_out: u64,
    /// Work of processes that were not requested: not shown.
    pub not_requested: u64,
    /// Processes, queues and sleeps of the recording that there was no room for.
    pub lives_left_out: u64,
    /// Packets of PIDs that there was no room for.
    pub pids_left_out: u64,
    /// Lines with the name of a kernel that there was no room for.
    pub nameless: u64,
    /// Threads whose last command and kernel there was no room for.
    pub threads_forgotten: u64,
    pub without_time: u64,
    /// Work whose times could not be waited for.
    pub gave_up: u64,
    /// Queues, and lines of packets and creations within their lives: that the clocks are one.
    pub queues: usize,
    pub joined: u64,
    /// Such lines outside the life of their queue.
    pub outside: u64,
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
        for (all, place) in
            [(&self.apart, "a track of their own"), (&self.beside, "tracks of other queues of their process")]
        {
            lines.extend(all.iter().map(|((pid, why), count)| {
                let pid = pid.map_or("without a PID".to_owned(), |pid| format!("of PID {pid}"));
                format!("{count} {pid} are on {place}, since {why}")
            }));
        }
        let counts = [
            (
                self.unplaced_times,
                "have times of the GPU that do not fit between their lines, and are at the time of their line",
            ),
            (self.gave_up, "waited too long for times of the GPU, and are at the time of their line"),
            (self.without_time, "have lines without a time, and are not shown"),
            (self.not_requested, "are of processes that were not requested, and are not shown"),
            (self.left_out, "are not shown: they are of more queues than there is room for"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        lines.extend(counts.map(|(count, what)| format!("{count} packets and copies {what}")));
        let losses = [
            (
                self.lives_left_out,
                "processes, queues and sleeps of the recording are more than there is room for: what is of them is not joined",
            ),
            (
                self.pids_left_out,
                "packets are of more PIDs than there is room for: copies of these PIDs are not joined",
            ),
            (
                self.nameless,
                "names of kernels are more than there is room for: their dispatches are shown without a name",
            ),
            (
                self.threads_forgotten,
                "threads are more than there is room for: what they wrote next may lack its kernel and command",
            ),
        ];
        let losses = losses.into_iter().filter(|(count, _)| *count > 0);
        lines.extend(losses.map(|(count, what)| format!("{count} {what}")));
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
        if self.outside > 0 {
            return format!(
                "{} lines lie outside the life of their queue, and {joined} within the lives of {queues} queues: the log, or a part \
                 of it, may be of another clock, boot or machine",
                self.outside
            );
        }
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
