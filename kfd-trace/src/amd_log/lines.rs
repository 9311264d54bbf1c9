//! Splits chunks into lines.

use super::limits::LONGEST_LINE;
use memchr::memchr;

/// A line without its newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLine<'a> {
    Whole(&'a [u8]),
    /// Longer than [`LONGEST_LINE`]; its bytes were not kept.
    Overlong,
}

/// Splitter for one input; holds at most one line.
#[derive(Debug, Default)]
pub struct Lines {
    begun: Vec<u8>,
    overlong: bool,
    nuls: u64,
}

impl Lines {
    /// Adds the next bytes, and calls `each` for every line that ends in them.
    ///
    /// NULs before a line are dropped: a file that is truncated under a writer without O_APPEND begins with a
    /// hole of any size.
    pub fn push(&mut self, mut chunk: &[u8], mut each: impl FnMut(LogLine<'_>)) {
        while !chunk.is_empty() {
            if self.begun.is_empty() && !self.overlong && chunk[0] == 0 {
                let nuls = chunk.iter().take_while(|byte| **byte == 0).count();
                self.nuls += nuls as u64;
                chunk = &chunk[nuls..];
                continue;
            }
            let Some(end) = memchr(b'\n', chunk) else {
                self.keep(chunk);
                return;
            };
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            chunk = rest;
            if self.begun.is_empty() && !self.overlong {
                each(if line.len() > LONGEST_LINE { LogLine::Overlong } else { LogLine::Whole(line) });
                continue;
            }
            self.keep(line);
            each(if self.overlong { LogLine::Overlong } else { LogLine::Whole(&self.begun) });
            self.forget();
        }
    }

    fn keep(&mut self, part: &[u8]) {
        if self.overlong || self.begun.len() + part.len() > LONGEST_LINE {
            self.overlong = true;
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(part);
        }
    }

    /// Drops an unfinished line; returns whether there was one.
    pub fn forget(&mut self) -> bool {
        let begun = self.overlong || !self.begun.is_empty();
        self.overlong = false;
        self.begun.clear();
        begun
    }

    /// NULs that were dropped.
    #[must_use]
    pub fn nuls(&self) -> u64 {
        self.nuls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> (Vec<String>, Lines) {
        let (mut lines, mut output) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, |line| {
                output.push(match line {
                    LogLine::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    LogLine::Overlong => "overlong".to_owned(),
                });
            });
        }
        (output, lines)
    }

    #[test]
    fn lines_are_the_same_wherever_the_chunks_end() {
        let text = b"one\n\ntwo words\nthree";
        for at in 0..text.len() {
            let (output, mut lines) = split(&[&text[..at], &text[at..]]);
            assert_eq!(output, ["one", "", "two words"]);
            assert!(lines.forget() && !lines.forget());
        }
    }

    #[test]
    fn a_line_of_any_length_takes_bounded_memory_and_is_reported_once() {
        let long = vec![b'x'; LONGEST_LINE];
        let (output, lines) = split(&[&long, &long, b"x\nnext\n"]);
        assert_eq!(output, ["overlong", "next"]);
        assert!(lines.begun.capacity() <= 2 * LONGEST_LINE);
        let (output, _) = split(&[&[&long, b"x\n".as_slice(), &long, b"\n"].concat()]);
        assert_eq!((output[0].as_str(), output[1].len()), ("overlong", LONGEST_LINE));
    }

    #[test]
    fn a_hole_before_a_line_is_left_out_and_counted() {
        let hole = vec![0; 3 * LONGEST_LINE];
        let (output, lines) = split(&[&hole, &hole, b"\0first\nsecond\0\n"]);
        assert_eq!(output, ["first", "second\0"]);
        assert_eq!(lines.nuls(), 6 * LONGEST_LINE as u64 + 1);
    }
}
