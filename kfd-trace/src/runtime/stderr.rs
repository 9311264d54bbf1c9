//! Standard error: messages for people, and the log.
//!
//! In: lines, which may contain foreign text (a name, a kernel message). Out: each as one line without
//! control sequences for a terminal. A missing reader or a closed standard error is no reason to end. While a
//! program has the whole screen, lines wait ([`hold`]).

use crate::text::escape;
use log::{LevelFilter, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a line waits for room, ns. It is often the same pipe or terminal as standard output: a missing
/// reader must not block the tracing.
const TIMEOUT_NS: i64 = 200_000_000;

/// Writes that may wait; the oldest are dropped first.
const HELD: usize = 200;

/// What waits; `None`: nothing has to.
static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);

#[derive(Default)]
struct Waiting {
    writes: VecDeque<Vec<u8>>,
    dropped: usize,
}

impl Waiting {
    fn push(&mut self, bytes: &[u8]) {
        if self.writes.len() == HELD {
            self.writes.pop_front();
            self.dropped += 1;
        }
        self.writes.push_back(bytes.to_owned());
    }
}

fn waiting() -> MutexGuard<'static, Option<Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until this is dropped, lines for a terminal wait: they would be printed across the screen.
#[derive(Debug)]
pub struct Hold(());

/// Holds lines back, if standard error is a terminal.
#[must_use]
pub fn hold() -> Hold {
    if io::stderr().is_terminal() {
        *waiting() = Some(Waiting::default());
    }
    Hold(())
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(held) = waiting().take() else { return };
        if held.dropped > 0 {
            say(format_args!(
                "{} dropped before these",
                crate::text::count::counted(held.dropped, "line was", "lines were")
            ));
        }
        for write in held.writes {
            let _ = BestEffort.write_all(&write);
        }
    }
}

/// Prints one line for people.
pub fn say(line: impl fmt::Display) {
    // `eprintln` panics if standard error is closed, and there is nowhere else to report.
    let _ = BestEffort.write_all(message(&line).as_bytes());
}

/// Standard error, as long as it is read; else lines are left out.
struct BestEffort;

impl Write for BestEffort {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(held) = &mut *waiting() {
            held.push(bytes);
            return Ok(bytes.len());
        }
        let mut out = io::stderr().lock();
        if has_room(&out) { out.write(bytes) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// If it cannot be queried, the write is tried.
fn has_room(out: &impl AsFd) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: TIMEOUT_NS };
    !matches!(poll(&mut [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::OUT)], Some(&timeout)), Ok(0))
}

fn message(line: &impl fmt::Display) -> String {
    format!("kfd-trace: {}\n", escape::terminal(&line.to_string()))
}

/// Sends the log to standard error, too, from this level on.
pub fn log_from(level: LevelFilter) {
    let format =
        |out: &mut env_logger::fmt::Formatter, record: &Record<'_>| out.write_all(logged(record).as_bytes());
    let target = env_logger::Target::Pipe(Box::new(BestEffort));
    env_logger::Builder::new().filter_level(level).format(format).target(target).init();
}

fn logged(record: &Record<'_>) -> String {
    let text = escape::terminal(&record.args().to_string());
    format!("[{:<5} {}] {text}\n", record.level(), record.target())
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level;

    const FOREIGN: &str = "a\x1b[2J\nb\u{9b}31m";

    #[test]
    fn what_waits_is_bounded_and_the_oldest_is_dropped() {
        let mut waiting = Waiting::default();
        (0..HELD + 3).for_each(|number| waiting.push(number.to_string().as_bytes()));
        assert_eq!((waiting.writes.len(), waiting.dropped), (HELD, 3));
        assert_eq!(waiting.writes.front().map(Vec::as_slice), Some(&b"3"[..]));
    }

    #[test]
    fn control_characters_in_a_message_are_escaped() {
        assert_eq!(message(&FOREIGN), "kfd-trace: a\\u{1b}[2J\\u{a}b\\u{9b}31m\n");
    }

    #[test]
    fn control_characters_in_a_log_line_are_escaped() {
        let logged_line = |args: fmt::Arguments<'_>| {
            logged(&Record::builder().level(Level::Warn).target("kfd_trace").args(args).build())
        };
        let line = logged_line(format_args!("process {FOREIGN}"));
        assert_eq!(line, "[WARN  kfd_trace] process a\\u{1b}[2J\\u{a}b\\u{9b}31m\n");
    }
}
