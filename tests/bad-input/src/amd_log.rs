//! The reader of AMD_LOG_LEVEL logs, and of the streams that its queues are joined with.

use crate::allocation::{Bound, within};
use crate::parts;
use crate::shown::{document, written};
use kfd_trace::amd_log::limits::LONGEST_LINE;
use kfd_trace::amd_log::lines::LogLine;
use kfd_trace::amd_log::recorded::Recorder;
use kfd_trace::amd_log::report::{Kfd, LogInput};
use kfd_trace::amd_log::{Lines, Report, Tally};

/// A packet of the shortest line takes a queue, a shape, a row and what is shown of it; the line being split
/// is kept up to its maximum length, and its buffer doubles while it grows.
const READ: Bound = Bound { a_byte: 64, always: 4 * LONGEST_LINE };
const SHOW: Bound = Bound { a_byte: 300, always: 256 << 10 };

/// Reads a stream (the first part) and a log (the others, which are its chunks). Returns how many lines the
/// report has read, and how many it has not.
///
/// # Panics
/// When a guarantee was violated, or a line was in no count or in two.
#[must_use]
pub fn read(input: &[u8]) -> (u64, u64) {
    let mut chunks = parts::split(input);
    let kfd = within("stream of amd-log", input.len(), READ, || stream(chunks.next().unwrap_or_default()));
    let (tally, cut, newlines) = within("amd-log", input.len(), READ, || log(chunks));
    let lines = tally.lines;
    let damaged: u64 = lines.damaged.iter().sum();
    let booked = lines.read + lines.other + lines.without_prefix + lines.blank + lines.overlong + damaged;
    assert_eq!(booked, lines.total, "every line is in one count");
    assert_eq!(lines.total, newlines);
    let prefixed = lines.read + lines.other + damaged;
    assert_eq!(lines.by_level.iter().sum::<u64>(), prefixed);
    assert_eq!(lines.styles.iter().sum::<u64>(), prefixed);
    within("report of amd-log", input.len(), SHOW, || {
        for kfd in [None, Some(&kfd)] {
            let name = LogInput { name: "a\x1b[2J".to_owned(), cut, ..LogInput::default() };
            let report = Report::new(&tally, vec![name], kfd);
            written(|out| report.text(out));
            document(&written(|out| report.json(out)));
            report.notes.iter().for_each(|note| assert!(!note.contains('\n'), "{note:?}"));
        }
    });
    (lines.read, lines.total - lines.read)
}

fn stream(text: &[u8]) -> Kfd {
    let mut recorder = Recorder::default();
    text.split(|byte| *byte == b'\n').for_each(|line| recorder.line(line));
    let (queues, unreadable, left_out) = recorder.finish();
    Kfd { asked: vec!["stream"], queues, unreadable, left_out }
}

fn log<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Tally, bool, u64) {
    let (mut lines, mut tally, mut newlines) = (Lines::default(), Tally::default(), 0);
    for chunk in chunks {
        newlines += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
        lines.push(chunk, |line| {
            if let LogLine::Whole(bytes) = line {
                assert!(bytes.len() <= LONGEST_LINE && !bytes.contains(&b'\n'));
            }
            tally.line(line);
        });
    }
    (tally, lines.forget(), newlines)
}
