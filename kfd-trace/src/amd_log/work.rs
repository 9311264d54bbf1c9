//! Work that a process gave to GPUs, one by one, as its log has it; and the queues that it created for it.

use super::kind::CommandName;
use super::life::Birth;
use super::packet::Packet;
use super::source::LogProcess;
use std::rc::Rc;

/// A packet, a copy, or a command of several of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    pub process: LogProcess,
    /// When its line was written, just before the GPU gets it: microseconds of CLOCK_MONOTONIC.
    pub at_us: u64,
    pub task: Task,
    pub kernel: Option<Rc<str>>,
    /// The kind of the command that it is of.
    pub command: Option<CommandName>,
    /// `None`: when it ran was not measured, or not logged.
    pub measured: Option<Measured>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Packet(Packet),
    /// Bytes, absent for rectangles; the engine is a bit mask, absent for copies that choose none.
    Copy {
        engine: Option<u64>,
        bytes: Option<u64>,
    },
    /// A queue was created, between this line and the one that says what queues there are, if that is there: microseconds
    /// of CLOCK_MONOTONIC.
    Created {
        birth: Birth,
        after_us: Option<u64>,
    },
    /// So many packets and copies, which were measured together only; the first packet, if there is one.
    Command {
        parts: usize,
        first: Option<Packet>,
    },
}

impl Task {
    /// The packet that names the queue it runs on; `None` if there is none.
    #[must_use]
    pub fn packet(&self) -> Option<&Packet> {
        match self {
            Task::Packet(packet) => Some(packet),
            Task::Command { first, .. } => first.as_ref(),
            Task::Copy { .. } | Task::Created { .. } => None,
        }
    }
}

/// When it ran on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    pub clock: WorkClock,
    /// Nanoseconds of that clock.
    pub begin_ns: i64,
    pub end_ns: i64,
    /// When the line with these times was written, after the end: microseconds of CLOCK_MONOTONIC.
    pub at_us: u64,
}

/// What the log's times of the GPU count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkClock {
    /// `Translated start/end`: what ROCr translates the GPU's counter to, which is CLOCK_BOOTTIME.
    Signal,
    /// `Wall` of a command: whole microseconds since the first command of the process that was profiled, or since the
    /// begin of that clock.
    Wall,
}

impl WorkClock {
    /// How much a begin or an end may be earlier than in truth, nanoseconds.
    #[must_use]
    pub fn rounding_ns(self) -> i64 {
        match self {
            WorkClock::Signal => 0,
            WorkClock::Wall => 1000,
        }
    }
}
