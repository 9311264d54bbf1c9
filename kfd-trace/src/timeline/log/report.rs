//! What became of a log on a timeline, and how well its clock is joined: for people.

use crate::text::clock::span;
use crate::text::count::{counted, verb};
use std::collections::BTreeMap;

/// What became of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// There is no recording to join with.
    pub alone: bool,
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
    /// Work that is on tracks of its own, by the log's process and why.
    pub apart: BTreeMap<(String, &'static str), u64>,
    /// Packets on tracks of queues below their process that the recording does not have, by the log's process and why.
    pub beside: BTreeMap<(String, &'static str), u64>,
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
                "{} of the GPU {} not of CLOCK_BOOTTIME as the recording has it, and placed by the log's own lines",
                counted(self.other_clock, "time", "times"),
                verb(&self.other_clock, "is", "are")
            ));
        }
        for (all, place) in
            [(&self.apart, "a track of their own"), (&self.beside, "tracks of other queues of their process")]
        {
            lines.extend(all.iter().map(|((process, why), count)| {
                format!("{count} of {process} {} on {place}, since {why}", verb(count, "is", "are"))
            }));
        }
        let all = |count: &u64| counted(*count, "packet or copy", "packets and copies");
        let counts = [
            (
                self.unplaced_times,
                ["has times", "have times"],
                "of the GPU that do not fit between their lines: shown at the time of the line",
            ),
            (self.gave_up, ["waited"; 2], "too long for times of the GPU: shown at the time of the line"),
            (self.without_time, ["has a line", "have lines"], "without a time: not shown"),
            (self.not_requested, ["is of a process", "are of processes"], "not requested: not shown"),
            (self.left_out, ["is", "are"], "of more queues than there is room for: not shown"),
        ];
        let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
        lines.extend(
            counts.map(|(count, [one, many], what)| {
                format!("{} {} {what}", all(&count), verb(&count, one, many))
            }),
        );
        let losses = [
            (
                counted(self.lives_left_out, "process, queue or sleep", "processes, queues and sleeps"),
                self.lives_left_out,
                "of the recording beyond what there is room for: what is of them is not joined",
            ),
            (
                counted(self.pids_left_out, "packet", "packets"),
                self.pids_left_out,
                "of PIDs beyond what there is room for: copies of these PIDs are not joined",
            ),
            (
                counted(self.nameless, "line with a kernel's name", "lines with names of kernels"),
                self.nameless,
                "beyond what there is room for: such dispatches are shown without a name",
            ),
            (
                counted(self.threads_forgotten, "thread", "threads"),
                self.threads_forgotten,
                "beyond what there is room for: what they wrote next may lack its kernel and command",
            ),
        ];
        let losses = losses.into_iter().filter(|(_, count, _)| *count > 0);
        lines.extend(losses.map(|(all, _, what)| format!("{all} {what}")));
        lines
    }

    fn times(&self) -> String {
        let LogReport { packets, copies, slices, within_ns, .. } = self;
        let all =
            format!("{} and {}", counted(*packets, "packet", "packets"), counted(*copies, "copy", "copies"));
        if *slices == 0 {
            return format!(
                "{all}, at the times of their lines: it has no times of the GPU that can be joined"
            );
        }
        format!(
            "{all}, {} of the GPU, right to {} or better; what has none is at the time of its line",
            counted(*slices, "time", "times"),
            span(*within_ns)
        )
    }

    fn clock(&self) -> String {
        if self.alone {
            return "its clock is CLOCK_MONOTONIC, cut to 1us; there is no recording to join it with"
                .to_owned();
        }
        let LogReport { joined, queues, .. } = self;
        let lives = if *queues == 1 {
            "the life of 1 queue".to_owned()
        } else {
            format!("the lives of {queues} queues")
        };
        if self.outside > 0 {
            return format!(
                "{} outside the life of {} queue, and {joined} within {lives}: the log, or a part of it, may be of another clock, \
                 boot or machine",
                counted(self.outside, "line lies", "lines lie"),
                verb(&self.outside, "its", "their")
            );
        }
        let fits = format!(
            "its clock is that of the recording, CLOCK_MONOTONIC, cut to 1us: {} within {lives}",
            counted(*joined, "line lies", "lines lie")
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
