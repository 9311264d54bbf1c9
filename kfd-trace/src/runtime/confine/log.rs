//! The log of a confined process. Its standard error is a pipe that this process reads: what both had open would be one
//! file, which the other could close for both, and write anything to.
//!
//! In: bytes of a process that may have been taken over. Out: lines that begin with its name, escaped, of bounded length and
//! number.

use crate::runtime::stderr;
use crate::text::escape;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a line; what it has beyond them is left out.
const LINE: usize = 1024;

/// Bytes that are read within a second. What comes faster stays in the pipe, and then in the process, which leaves lines out.
const A_SECOND: usize = 16 << 10;

/// What a line costs of these beside its own bytes, so that short ones are few, too: journald takes some 300 lines a second
/// of a service (RateLimitBurst=, journald.conf(5)), and leaves out those of the tracer beyond that.
const A_LINE: usize = 512;

const SECOND: Duration = Duration::from_secs(1);

/// Time to print what an ended process has left in the pipe.
const LAST: Duration = Duration::from_millis(500);

/// What reads the log of one process.
pub(crate) struct Log {
    /// Ends with the log.
    ended: Receiver<()>,
}

/// The log of a process of this name, and what is to be its standard error.
///
/// # Errors
/// If there is no descriptor or no thread.
pub(crate) fn pipe(name: &'static str) -> io::Result<(Log, PipeWriter)> {
    let (reader, writer): (PipeReader, PipeWriter) = io::pipe()?;
    let (ends, ended) = channel();
    thread::Builder::new().name("child-log".to_owned()).spawn(move || {
        relay(reader, |line| stderr::say(format_args!("{name}: {line}")), thread::sleep);
        drop::<std::sync::mpsc::Sender<()>>(ends);
    })?;
    Ok((Log { ended }, writer))
}

impl Log {
    /// Waits until the last lines of a process that has ended are printed, for a moment at most.
    pub(crate) fn finish(self) {
        // `Disconnected`: they are.
        let (Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) =
            self.ended.recv_timeout(LAST);
    }
}

/// Prints lines until the end.
fn relay(mut from: impl Read, mut print: impl FnMut(&str), pause: impl Fn(Duration)) {
    let (mut lines, mut bytes) = (Lines::default(), [0; 512]);
    let (mut begin, mut read) = (Instant::now(), 0);
    loop {
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                lines.add(&bytes[..count], &mut print);
                read += count + A_LINE * bytes[..count].iter().filter(|byte| **byte == b'\n').count();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if read >= A_SECOND {
            pause(SECOND.saturating_sub(begin.elapsed()));
        }
        if read >= A_SECOND || begin.elapsed() >= SECOND {
            (begin, read) = (Instant::now(), 0);
        }
    }
    lines.end(&mut print);
}

/// Bytes as lines.
#[derive(Default)]
struct Lines {
    /// The beginning of a line.
    line: Vec<u8>,
    is_cut: bool,
}

impl Lines {
    fn add(&mut self, bytes: &[u8], print: &mut impl FnMut(&str)) {
        for byte in bytes {
            match byte {
                b'\n' => self.end(print),
                _ if self.line.len() < LINE => self.line.push(*byte),
                _ => self.is_cut = true,
            }
        }
    }

    /// The line ends here.
    fn end(&mut self, print: &mut impl FnMut(&str)) {
        if !self.line.is_empty() {
            let cut = if self.is_cut { "..." } else { "" };
            print(&(escape::terminal(&String::from_utf8_lossy(&self.line)) + cut));
        }
        self.line.clear();
        self.is_cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// What is printed of it, and how long it pauses.
    fn relayed(bytes: &[u8]) -> (Vec<String>, Duration) {
        let (lines, paused) = (RefCell::new(Vec::new()), Cell::new(Duration::ZERO));
        let print = |line: &str| lines.borrow_mut().push(line.to_owned());
        relay(bytes, print, |pause| paused.set(paused.get() + pause));
        (lines.into_inner(), paused.get())
    }

    #[test]
    fn each_line_is_escaped_and_of_bounded_length() {
        let long = "x".repeat(LINE + 1);
        let text = format!("a\x1b[2Jb\rc\n\n{long}\n\u{202e}kfd-trace: end");
        let (lines, paused) = relayed(text.as_bytes());
        let cut = "x".repeat(LINE) + "...";
        assert_eq!(lines, ["a\\u{1b}[2Jb\\u{d}c", &cut, "\\u{202e}kfd-trace: end"]);
        assert_eq!(paused, Duration::ZERO);
        assert_eq!(relayed(&[0xff, b'\n']).0, ["\\u{fffd}"]);
    }

    #[test]
    fn a_process_that_floods_the_log_is_read_slowly() {
        for line in ["kfd-trace: forged\n", "x\n"] {
            let (lines, paused) = relayed(&line.repeat(10_000).into_bytes());
            assert_eq!(lines.len(), 10_000);
            assert!(paused.as_secs() > 10_000 / 300, "{line}: {paused:?}");
        }
    }
}
