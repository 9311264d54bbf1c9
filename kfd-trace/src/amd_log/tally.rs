//! Counts a log, line by line.

use super::capped::{Capped, Names};
use super::entries::{Entries, Entry};
use super::kind::CommandName;
use super::life::QueuePool;
use super::limits;
use super::lines::LogLine;
use super::message::{Damaged, Message};
use super::prefix::{Prefix, Style};
use super::processes::Processes;
use super::queues::{LogQueues, Span};
use super::rate::CommandRate;
use super::slots::Slots;
use super::source::{LogProcess, Source};
use super::trouble::Trouble;
use super::{fault, packet::Packet};

/// Index of the series in [`CommandRate`].
pub const COMMANDS: usize = 0;
pub const DISPATCHES: usize = 1;

/// Copies by one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    pub count: u64,
    pub bytes: u128,
    /// Those whose line has no size: copies of rectangles.
    pub without_size: u64,
}

/// GPU times of signals: of packets and copies, one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    pub count: u64,
    pub gpu_ns: i128,
}

/// A command that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    pub kind: CommandName,
    /// When it was queued, microseconds of CLOCK_MONOTONIC.
    pub since_us: Option<u64>,
    pub host_queue: Option<u64>,
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
    /// Lines without a prefix that the report uses: faults of ROCr, clr's analysis of a hang.
    pub crash: u64,
    /// Beginnings of lines that a container's runtime cut; they are read with the next line of their stream.
    pub partial: u64,
    pub blank: u64,
    pub overlong: u64,
    pub damaged: [u64; Damaged::ALL.len()],
    pub by_level: [u64; 10],
    pub styles: [u64; Style::ALL.len()],
}

/// Reader of all lines, and what it counted. Its size is bounded (limits.rs).
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub entries: Entries,
    pub counts: Counts,
}

/// Counts of all lines so far.
#[derive(Clone, Debug)]
pub struct Counts {
    pub lines: LineCounts,
    pub span: Span,
    pub processes: Processes,
    pub queues: LogQueues,
    pub commands: Capped<(LogProcess, CommandName), u64, { limits::KINDS }>,
    pub host_queues: Capped<(LogProcess, u64), u64, { limits::HOST_QUEUES }>,
    pub completed: Completed,
    pub rate: CommandRate,
    pub kernels: Names,
    pub copies: Capped<Option<u64>, Copies, { limits::ENGINES }>,
    pub queue_full: u64,
    /// The latest line of each kind.
    pub pool: Option<QueuePool>,
    pub agents: Option<u64>,
    pub gfx: Capped<[u64; 3], u64, { limits::GFX_VERSIONS }>,
    pub signals: Signals,
    pub trouble: Trouble,
    /// Commands without an end so far, by the address of clr's object.
    pub under_way: Capped<(LogProcess, u64), Option<UnderWay>, { limits::COMMANDS_UNDER_WAY }>,
    slots: Slots,
    /// Thread and host queue of the last command.
    submitting: Option<(LogProcess, u64, u64)>,
    /// Thread and number of the last kernel's name.
    naming: Option<(LogProcess, Option<u64>, u32)>,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
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
            signals: Signals::default(),
            trouble: Trouble::default(),
            under_way: Capped::default(),
            slots: Slots::default(),
            submitting: None,
            naming: None,
        }
    }
}

impl Tally {
    /// Counts one line.
    pub fn line(&mut self, line: LogLine<'_>) {
        let Tally { entries, counts } = self;
        counts.lines.total += 1;
        entries.line(line, |source, entry| match entry {
            Entry::Log(prefix, text) => counts.log(source, &prefix, text),
            Entry::Foreign(text) => counts.foreign(source, text),
            Entry::Blank => counts.lines.blank += 1,
            Entry::Overlong => counts.lines.overlong += 1,
            Entry::Partial => counts.lines.partial += 1,
        });
    }
}

impl Counts {
    fn foreign(&mut self, source: Source, text: &[u8]) {
        let fault = fault::without_prefix(text);
        if let Some(fault) = fault {
            self.trouble.fault(LogProcess { source, pid: None }, None, fault);
            self.trouble.line(text.trim_ascii());
        }
        if fault.is_some() || self.trouble.analysis.line(source, text) {
            self.lines.crash += 1;
        } else {
            self.lines.without_prefix += 1;
        }
    }

    fn log(&mut self, source: Source, prefix: &Prefix, text: &[u8]) {
        let process = LogProcess { source, pid: prefix.pid };
        self.lines.by_level[usize::from(prefix.level)] += 1;
        self.lines.styles[prefix.style as usize] += 1;
        self.span.take(prefix.time_us);
        if prefix.pid.is_some() {
            self.processes.line(process, prefix.time_us);
        }
        let message = Message::parse(text);
        match message {
            Message::Other => self.lines.other += 1,
            Message::Damaged(what) => self.lines.damaged[what as usize] += 1,
            _ => self.lines.read += 1,
        }
        if prefix.level <= 1 || matches!(message, Message::Abort(_) | Message::Fault(_)) {
            self.trouble.line(text);
        }
        self.message(process, prefix, message);
    }

    fn message(&mut self, process: LogProcess, prefix: &Prefix, message: Message<'_>) {
        let time_us = prefix.time_us;
        match message {
            Message::Other | Message::Damaged(_) => {}
            Message::Packet(packet) => self.packet(process, prefix, packet),
            Message::Command { kind, address, host_queue } => {
                self.command(process, prefix, kind, address, host_queue);
            }
            Message::Complete { address, took_us } => {
                self.under_way.remove(&(process, address));
                self.complete(time_us, took_us);
            }
            Message::Ran { begin_ns, end_ns, .. } => {
                self.signals.count += 1;
                self.signals.gpu_ns += i128::from(end_ns) - i128::from(begin_ns);
            }
            Message::Kernel { name, in_graph } => {
                let number = self.kernels.count(name);
                self.naming = number.map(|number| (process, prefix.tid, number));
                self.slots.kernel(process, prefix.tid, in_graph);
            }
            Message::QueuePool(pool) => self.pool = Some(pool),
            Message::Birth(birth) => {
                self.slots.birth(process, &birth);
                self.queues.birth(process, time_us, birth);
            }
            Message::LogStep { address, step, references } => {
                self.queues.step(process, time_us, address, step, references);
            }
            Message::Abort(abort) => {
                self.trouble.abort(process, time_us, &abort);
                if let Some(address) = abort.address {
                    self.queues.abort(process, time_us, address);
                }
            }
            Message::Fault(fault) => self.trouble.fault(process, time_us, fault),
            Message::QueueFull => self.queue_full += 1,
            Message::Copy { engine, bytes, .. } => {
                if let Some(copies) = self.copies.at(engine) {
                    copies.count += 1;
                    copies.bytes += u128::from(bytes.unwrap_or(0));
                    copies.without_size += u64::from(bytes.is_none());
                }
            }
            Message::Agents(count) => self.agents = Some(count),
            Message::Gfx(version) => {
                if let Some(count) = self.gfx.at(version) {
                    *count += 1;
                }
            }
            Message::Returned(error) => self.trouble.returned(error),
        }
    }

    fn packet(&mut self, process: LogProcess, prefix: &Prefix, mut packet: Packet) {
        self.slots.resolve(process, prefix.tid, &mut packet);
        let host_queue = self.submitting.filter(|last| (last.0, Some(last.1)) == (process, prefix.tid));
        let mut kernel = None;
        if packet.shape.is_some() {
            self.rate(prefix.time_us, DISPATCHES);
            // From 6.3 on the line of a name may have no thread.
            let named = self.naming.take_if(|(other, tid, _)| {
                other.source == process.source && (tid.is_none() || (*other, *tid) == (process, prefix.tid))
            });
            kernel = named.map(|(.., number)| (number, prefix.time_us));
        }
        self.queues.packet(process, prefix.time_us, &packet, host_queue.map(|(.., queue)| queue), kernel);
    }

    fn rate(&mut self, time_us: Option<u64>, which: usize) {
        if let Some(time) = time_us {
            self.rate.count(time, which);
        }
    }

    fn command(
        &mut self,
        process: LogProcess,
        prefix: &Prefix,
        kind: &[u8],
        address: u64,
        host_queue: Option<u64>,
    ) {
        self.rate(prefix.time_us, COMMANDS);
        let kind = CommandName::new(kind);
        if let Some(count) = self.commands.at((process, kind)) {
            *count += 1;
        }
        if let Some(under_way) = self.under_way.at((process, address)) {
            *under_way = Some(UnderWay { kind, since_us: prefix.time_us, host_queue });
        }
        let Some(host_queue) = host_queue else { return };
        if let Some(count) = self.host_queues.at((process, host_queue)) {
            *count += 1;
        }
        self.submitting = prefix.tid.map(|tid| (process, tid, host_queue));
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
        let mut counts = Counts::default();
        counts.complete(at, Some([20_161_701_438, 0, 0]));
        counts.complete(at, Some([1_200, 100, 900]));
        counts.complete(at, None);
        let expected = Completed { count: 3, profiled: 1, cpu_us: 100, gpu_us: 900 };
        assert_eq!(counts.completed, expected);
    }
}
