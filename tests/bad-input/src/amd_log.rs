//! The reader of AMD_LOG_LEVEL logs, and of the streams that its queues are joined with.

use crate::allocation::{Bound, within};
use crate::parts;
use crate::shown::{document, written};
use kfd_trace::amd_log::limits::LONGEST_LINE;
use kfd_trace::amd_log::lines::LogLine;
use kfd_trace::amd_log::recorded::Recorder;
use kfd_trace::amd_log::report::{Kfd, LogInput};
use kfd_trace::amd_log::{Lines, Report, Tally};

/// A packet of the shortest line takes a queue, a shape, a row and what is shown of it; the line being split, and one of a
/// container that is being joined, are kept up to their maximum length, and their buffers double while they grow.
const READ: Bound = Bound { a_byte: 64, always: 8 * LONGEST_LINE };
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
    let (tally, cut, ends) = within("amd-log", input.len(), READ, || log(chunks));
    let lines = tally.counts.lines;
    let damaged: u64 = lines.damaged.iter().sum();
    let foreign = lines.without_prefix + lines.crash + lines.blank + lines.overlong + lines.partial;
    let booked = lines.read + lines.other + damaged + foreign;
    assert_eq!(booked, lines.total + tally.entries.appended, "every line is in one count");
    if let Some(ends) = ends {
        assert_eq!(lines.total, ends);
    }
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
    (lines.read, lines.total + tally.entries.appended - lines.read)
}

fn stream(text: &[u8]) -> Kfd {
    let mut recorder = Recorder::default();
    text.split(|byte| *byte == b'\n').for_each(|line| recorder.line(line));
    let (queues, unreadable, left_out) = recorder.finish();
    Kfd { asked: vec!["stream"], queues, unreadable, left_out }
}

/// The lines' ends, CR LF as one; `None` of UTF-16.
fn log<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Tally, bool, Option<u64>) {
    let (mut lines, mut tally, mut ends, mut last) = (Lines::default(), Tally::default(), 0, 0);
    let mut mark = Vec::new();
    for chunk in chunks {
        mark.extend(chunk.iter().take(2));
        for byte in chunk {
            ends += u64::from(*byte == b'\r' || *byte == b'\n' && last != b'\r');
            last = *byte;
        }
        lines.push(chunk, |line| {
            if let LogLine::Whole(bytes) = line {
                assert!(bytes.len() <= LONGEST_LINE && !bytes.contains(&b'\n') && !bytes.contains(&b'\r'));
            }
            tally.line(line);
        });
    }
    let is_utf16 = matches!(mark[..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
    (tally, lines.forget(), (!is_utf16).then_some(ends))
}
