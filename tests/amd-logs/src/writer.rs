//! Lines with their prefixes, counted as they are written.

use crate::format::Format;
use crate::ledger::Ledger;
use std::io::{self, Write};

/// How the ledger counts a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Book {
    Read,
    Other,
    Damaged,
}

/// The process and thread that write a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) pid: u32,
    pub(crate) thread: u64,
}

/// Writes, and keeps the ledger of lines.
pub(crate) struct Writer<W> {
    out: W,
    pub(crate) format: Format,
    pub(crate) ledger: Ledger,
    pub(crate) now_us: u64,
    line: String,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W, format: Format, begin_us: u64) -> Self {
        Writer { out, format, ledger: Ledger::default(), now_us: begin_us, line: String::new() }
    }

    /// One line of the log. `colour`: as for API calls.
    pub(crate) fn log(
        &mut self,
        book: Book,
        place: (u8, &str, u32),
        who: Who,
        text: std::fmt::Arguments<'_>,
        colour: bool,
    ) -> io::Result<()> {
        use std::fmt::Write as _;
        let (level, file, number) = place;
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let now = self.now_us;
        let Who { pid, thread } = who;
        let mut hidden = false;
        if colour {
            line.push_str("\x1b[32m");
        }
        let odd = if self.format == Format::Rocm632 { "d" } else { "" };
        let _ = write!(line, ":{level}:{file:<25}:{number:<4}: {now:010}{odd} us: ");
        let _ = match self.format {
            Format::Rocm56 => write!(line, "{pid:<5}: [tid:0x{thread:x}] "),
            Format::Rocm57 | Format::Rocm62 => write!(line, "[pid:{pid:<5} tid:0x{thread:x}] "),
            Format::Rocm632 => write!(line, "[pid:{pid} tid: {thread:x}] "),
            Format::Rocm63 | Format::Rocm72 | Format::Rocm2026 if level < 4 => {
                hidden = true;
                line.write_char(' ')
            }
            Format::Rocm63 | Format::Rocm72 => write!(line, "[pid:{pid} tid: 0x{thread:5x}] "),
            Format::Rocm2026 => write!(line, "[pid:{pid} tid: 0x{:05x}] ", thread & 0xf_ffff),
        };
        let _ = line.write_fmt(text);
        if colour {
            line.push_str("\x1b[0m");
        }
        line.push('\n');
        let ledger = &mut self.ledger;
        *match book {
            Book::Read => &mut ledger.read,
            Book::Other => &mut ledger.other,
            Book::Damaged => &mut ledger.damaged,
        } += 1;
        ledger.by_level[usize::from(level)] += 1;
        ledger.first_us.get_or_insert(now);
        ledger.last_us = Some(now);
        if !hidden {
            *ledger.processes.entry(pid).or_default() += 1;
        }
        self.put(&line)?;
        self.line = line;
        Ok(())
    }

    /// A line that is not the log's.
    pub(crate) fn foreign(&mut self, text: &str) -> io::Result<()> {
        self.ledger.without_prefix += 1;
        self.put(text)?;
        self.out.write_all(b"\n").map(|()| self.ledger.bytes += 1)
    }

    /// A line without a prefix that a reader needs.
    pub(crate) fn crash(&mut self, text: &str) -> io::Result<()> {
        self.ledger.crash += 1;
        self.put(text)?;
        self.out.write_all(b"\n").map(|()| self.ledger.bytes += 1)
    }

    pub(crate) fn blank(&mut self) -> io::Result<()> {
        self.ledger.blank += 1;
        self.put("\n")
    }

    /// Writes one line, or its text.
    fn put(&mut self, text: &str) -> io::Result<()> {
        self.ledger.lines += 1;
        self.ledger.bytes += text.len() as u64;
        self.out.write_all(text.as_bytes())
    }

    pub(crate) fn finish(mut self) -> io::Result<Ledger> {
        self.out.flush()?;
        Ok(self.ledger)
    }
}
