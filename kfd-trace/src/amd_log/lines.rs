//! Splits chunks into lines. A line ends with LF, CR LF, or CR alone, as terminals and progress bars write it.

use super::encoding::Decoder;
use super::limits::LONGEST_LINE;
use memchr::memchr2;

/// A line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLine<'a> {
    Whole(&'a [u8]),
    /// Longer than [`LONGEST_LINE`]; its bytes were not kept.
    Overlong,
}

/// Splitter for one input; holds at most one line.
#[derive(Debug, Default)]
pub struct Lines {
    decoder: Decoder,
    parts: Parts,
}

/// Lines of text that is decoded.
#[derive(Debug, Default)]
struct Parts {
    begun: Vec<u8>,
    overlong: bool,
    /// The last line ended with a CR: an LF after it belongs to the same end.
    after_cr: bool,
    nuls: u64,
}

impl Lines {
    /// Adds the next bytes, and calls `each` for every line that ends in them.
    ///
    /// NULs before a line are dropped: a file that is truncated under a writer without O_APPEND begins with a
    /// hole of any size.
    pub fn push(&mut self, chunk: &[u8], each: impl FnMut(LogLine<'_>)) {
        self.parts.push(self.decoder.decode(chunk), each);
    }

    /// Drops an unfinished line; returns whether there was one. What comes next is the start of a file.
    pub fn forget(&mut self) -> bool {
        let Lines { decoder, parts } = std::mem::take(self);
        self.parts.nuls = parts.nuls;
        let mut decoder = decoder;
        parts.overlong || !parts.begun.is_empty() || !decoder.finish().is_empty()
    }

    /// NULs that were dropped.
    #[must_use]
    pub fn nuls(&self) -> u64 {
        self.parts.nuls
    }
}

impl Parts {
    fn push(&mut self, mut chunk: &[u8], mut each: impl FnMut(LogLine<'_>)) {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let [b'\n', rest @ ..] = chunk
            {
                chunk = rest;
                continue;
            }
            if self.begun.is_empty() && !self.overlong && chunk[0] == 0 {
                let nuls = chunk.iter().take_while(|byte| **byte == 0).count();
                self.nuls += nuls as u64;
                chunk = &chunk[nuls..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', chunk) else {
                self.keep(chunk);
                return;
            };
            self.after_cr = chunk[end] == b'\r';
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            chunk = rest;
            if self.begun.is_empty() && !self.overlong {
                each(if line.len() > LONGEST_LINE { LogLine::Overlong } else { LogLine::Whole(line) });
                continue;
            }
            self.keep(line);
            each(if self.overlong { LogLine::Overlong } else { LogLine::Whole(&self.begun) });
            self.overlong = false;
            self.begun.clear();
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
        for text in [
            b"one\n\ntwo words\nthree".as_slice(),
            b"one\r\n\r\ntwo words\r\nthree",
            b"one\r\rtwo words\rthree",
            b"\xef\xbb\xbfone\n\rtwo words\nthree",
        ] {
            for at in 0..text.len() {
                let (output, mut lines) = split(&[&text[..at], &text[at..]]);
                assert_eq!(output, ["one", "", "two words"], "{text:?} {at}");
                assert!(lines.forget() && !lines.forget());
            }
        }
    }

    #[test]
    fn a_line_of_any_length_takes_bounded_memory_and_is_reported_once() {
        let long = vec![b'x'; LONGEST_LINE];
        let (output, lines) = split(&[&long, &long, b"x\nnext\n"]);
        assert_eq!(output, ["overlong", "next"]);
        assert!(lines.parts.begun.capacity() <= 2 * LONGEST_LINE);
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
