//! Counts a log, line by line.

use super::capped::{Capped, Names};
use super::kind::CommandName;
use super::life::QueuePool;
use super::lines::LogLine;
use super::message::{Damaged, Message};
use super::prefix::{Prefix, Style};
use super::processes::Processes;
use super::queues::{LogQueues, Span};
use super::rate::CommandRate;
use super::{colours, limits};

/// Index of the series in [`CommandRate`].
pub const COMMANDS: usize = 0;
pub const DISPATCHES: usize = 1;

/// Copies by one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    pub count: u64,
    pub bytes: u128,
}

/// Commands that ended. Times are microseconds, of profiled commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    pub count: u64,
    pub profiled: u64,
    pub cpu_us: i128,
    pub gpu_us: i128,
}

/// Lines by category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    pub total: u64,
    /// Lines used by the report.
    pub read: u64,
    /// Log lines that the report does not use.
    pub other: u64,
    pub without_prefix: u64,
    pub blank: u64,
    pub overlong: u64,
    pub damaged: [u64; Damaged::ALL.len()],
    pub by_level: [u64; 10],
    pub styles: [u64; Style::ALL.len()],
}

/// Counts of all lines so far. Its size is bounded (limits.rs).
#[derive(Clone, Debug)]
pub struct Tally {
    pub lines: LineCounts,
    pub span: Span,
    pub processes: Processes,
    pub queues: LogQueues,
    pub commands: Capped<(Option<u32>, CommandName), u64, { limits::KINDS }>,
    pub host_queues: Capped<(Option<u32>, u64), u64, { limits::HOST_QUEUES }>,
    pub completed: Completed,
    pub rate: CommandRate,
    pub kernels: Names,
    pub copies: Capped<Option<u64>, Copies, { limits::ENGINES }>,
    pub queue_full: u64,
    /// The latest line of each kind.
    pub pool: Option<QueuePool>,
    pub agents: Option<u64>,
    pub gfx: Capped<[u64; 3], u64, { limits::GFX_VERSIONS }>,
    pub returned: Names,
    pub returned_success: u64,
    pub aborts: u64,
    /// The first lines of level 1 and of aborts, without prefix.
    pub error_lines: Vec<Vec<u8>>,
    /// Thread and host queue of the last command.
    submitting: Option<(u32, u64, u64)>,
    bare: Vec<u8>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            lines: LineCounts::default(),
            span: Span::default(),
            processes: Processes::default(),
            queues: LogQueues::default(),
            commands: Capped::default(),
            host_queues: Capped::default(),
            completed: Completed::default(),
            rate: CommandRate::default(),
            kernels: Names::new(limits::KERNELS, limits::KERNEL_TEXT, limits::LONGEST_LINE),
            copies: Capped::default(),
            queue_full: 0,
            pool: None,
            agents: None,
            gfx: Capped::default(),
            returned: Names::new(
                limits::ERROR_NAMES,
                limits::ERROR_NAMES * limits::LONGEST_NAME,
                limits::LONGEST_NAME,
            ),
            returned_success: 0,
            aborts: 0,
            error_lines: Vec::new(),
            submitting: None,
            bare: Vec::new(),
        }
    }
}

impl Tally {
    /// Counts one line.
    pub fn line(&mut self, line: LogLine<'_>) {
        self.lines.total += 1;
        let LogLine::Whole(line) = line else {
            self.lines.overlong += 1;
            return;
        };
        if !colours::any(line) {
            self.plain(line);
            return;
        }
        let mut bare = std::mem::take(&mut self.bare);
        colours::strip(line, &mut bare);
        self.plain(&bare);
        self.bare = bare;
    }

    fn plain(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.lines.blank += 1;
            return;
        }
        let Some((prefix, text)) = Prefix::parse(line) else {
            self.lines.without_prefix += 1;
            return;
        };
        self.lines.by_level[usize::from(prefix.level)] += 1;
        self.lines.styles[prefix.style as usize] += 1;
        self.span.take(prefix.time_us);
        if let Some(pid) = prefix.pid {
            self.processes.line(pid, prefix.time_us);
        }
        let message = Message::parse(text);
        match message {
            // The times of single packets are on a timeline.
            Message::Other | Message::Ran { .. } => self.lines.other += 1,
            Message::Damaged(what) => self.lines.damaged[what as usize] += 1,
            _ => self.lines.read += 1,
        }
        if prefix.level == 1 || matches!(message, Message::Abort { .. }) {
            self.error_line(text);
        }
        self.message(&prefix, message);
    }

    fn error_line(&mut self, text: &[u8]) {
        if self.error_lines.len() < limits::ERROR_LINES {
            self.error_lines.push(text[..text.len().min(limits::ERROR_LINE)].to_vec());
        }
    }

    fn message(&mut self, prefix: &Prefix, message: Message<'_>) {
        let (pid, time_us) = (prefix.pid, prefix.time_us);
        match message {
            Message::Other | Message::Ran { .. } | Message::Damaged(_) => {}
            Message::Packet(packet) => {
                if packet.shape.is_some() {
                    self.rate(time_us, DISPATCHES);
                }
                let host_queue =
                    self.submitting.filter(|last| (Some(last.0), Some(last.1)) == (pid, prefix.tid));
                self.queues.packet(pid, time_us, &packet, host_queue.map(|(.., queue)| queue));
            }
            Message::Command { kind, host_queue, .. } => self.command(prefix, kind, host_queue),
            Message::Complete { took_us, .. } => self.complete(prefix.time_us, took_us),
            Message::Kernel(name) => self.kernels.count(name),
            Message::QueuePool(pool) => self.pool = Some(pool),
            Message::Birth(birth) => self.queues.birth(pid, time_us, birth),
            Message::LogStep { address, step, references } => {
                self.queues.step(pid, time_us, address, step, references);
            }
            Message::Abort { address } => {
                self.aborts += 1;
                self.queues.abort(pid, time_us, address);
            }
            Message::QueueFull => self.queue_full += 1,
            Message::Copy { engine, bytes, .. } => {
                if let Some(copies) = self.copies.at(engine) {
                    copies.count += 1;
                    copies.bytes += u128::from(bytes);
                }
            }
            Message::Agents(count) => self.agents = Some(count),
            Message::Gfx(version) => {
                if let Some(count) = self.gfx.at(version) {
                    *count += 1;
                }
            }
            Message::Returned(b"hipSuccess") => self.returned_success += 1,
            Message::Returned(error) => self.returned.count(error),
        }
    }

    fn rate(&mut self, time_us: Option<u64>, which: usize) {
        if let Some(time) = time_us {
            self.rate.count(time, which);
        }
    }

    fn command(&mut self, prefix: &Prefix, kind: &[u8], host_queue: Option<u64>) {
        self.rate(prefix.time_us, COMMANDS);
        if let Some(count) = self.commands.at((prefix.pid, CommandName::new(kind))) {
            *count += 1;
        }
        let Some(host_queue) = host_queue else { return };
        if let Some(count) = self.host_queues.at((prefix.pid, host_queue)) {
            *count += 1;
        }
        self.submitting = prefix.pid.zip(prefix.tid).map(|(pid, tid)| (pid, tid, host_queue));
    }

    fn complete(&mut self, time_us: Option<u64>, took_us: Option<[i64; 3]>) {
        let completed = &mut self.completed;
        completed.count += 1;
        // `Wall` is when the command ended, on a clock of its process (clr, command.cpp:Event::setStatus): no duration.
        if let Some([_, cpu, gpu]) = took_us.filter(|took| !is_clock(time_us, *took)) {
            completed.profiled += 1;
            completed.cpu_us += i128::from(cpu);
            completed.gpu_us += i128::from(gpu);
        }
    }
}

/// A marker that was not profiled is logged with the times of one that began at 0: its wall clock is the time itself.
fn is_clock(time_us: Option<u64>, [wall, cpu, gpu]: [i64; 3]) -> bool {
    /// How long after the command's end its line may be written.
    const LATE_US: i64 = 1_000_000;
    let now = time_us.and_then(|time| i64::try_from(time).ok());
    cpu == 0
        && gpu == 0
        && now.is_some_and(|now| wall > 0 && (0..LATE_US).contains(&now.saturating_sub(wall)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_that_was_not_profiled_is_not_counted_as_profiled() {
        let at = Some(20_161_701_439);
        assert!(is_clock(at, [20_161_701_438, 0, 0]));
        for took in [[20_161_701_438, 0, 5], [1_200, 0, 0], [0, 0, 0], [-7, 0, 0]] {
            assert!(!is_clock(at, took), "{took:?}");
        }
        assert!(!is_clock(None, [20_161_701_438, 0, 0]), "nothing to compare it with");
        let mut tally = Tally::default();
        tally.complete(at, Some([20_161_701_438, 0, 0]));
        tally.complete(at, Some([1_200, 100, 900]));
        tally.complete(at, None);
        let expected = Completed { count: 3, profiled: 1, cpu_us: 100, gpu_us: 900 };
        assert_eq!(tally.completed, expected);
    }
}
