//! The reader of recordings: of files that anybody can have written.

use crate::allocation::{Bound, within};
use crate::shown;
use kfd_trace::amd_log::lines::LogLine;
use kfd_trace::events::undecoded::Undecoded;
use kfd_trace::recording::{Begin, Item, Line, Machine, ReadError, Reader, Replay, compress};
use kfd_trace::state::{History, StateLimits};
use kfd_trace::timeline::Timeline;
use std::io;

/// An item of some 100 bytes of text has a place of 300. The memory of libzstd, which is C, is not seen: it is bounded by
/// the window that the reader permits.
const READ: Bound = Bound { a_byte: 64, always: 4 << 20 };

/// Reads the bytes as a recording, and as the lines of one; replays those, shows each line and what is known at the end,
/// and makes a trace of them. Returns the number of items, and whether there was an error.
///
/// # Panics
/// When a guarantee was violated.
#[must_use]
pub fn read(input: &[u8]) -> (usize, bool) {
    let _ = items("recording", input);
    let (all, refused) = items("lines of a recording", &compress(input).expect("memory"));
    let begin = match all.first() {
        Some(Item::Begin(begin)) => begin.clone(),
        _ => Begin::new(Machine::default(), StateLimits::default()),
    };
    let (mut replay, mut again) = (Replay::new(&begin, shown::clock()), Replay::new(&begin, shown::clock()));
    let mut timeline = Timeline::new(io::sink()).expect("a sink");
    let show = &mut |replay: &Replay, line: Line<'_>| {
        if let Line::Event(event, change) = line {
            shown::event(event, change, &replay.state, &replay.topology);
        }
        Ok::<(), io::Error>(())
    };
    for item in &all {
        replay.take(item.clone(), show).expect("nothing fails");
        timeline.take(item.clone(), &mut again).expect("a sink");
    }
    replay.settle(show).expect("nothing fails");
    timeline.settle(&mut again).expect("a sink");
    log(&mut timeline, input);
    timeline.finish().expect("a sink");
    shown::world(&replay.state, &History::default(), &replay.topology, &[], &Undecoded::default());
    (all.len(), refused)
}

/// Reads the bytes as a log whose first packet is of a queue of the recording, if that has one.
fn log(timeline: &mut Timeline<io::Sink>, input: &[u8]) {
    let each = |take: &mut dyn FnMut(LogLine<'_>)| {
        [JOINED.as_bytes(), input]
            .concat()
            .split(|byte| *byte == b'\n')
            .for_each(|line| take(LogLine::Whole(line)));
    };
    let mut survey = timeline.survey("a.log".to_owned());
    each(&mut |line| survey.line(line));
    match survey.finish() {
        Err(why) => shown::line(&why),
        Ok(plan) => {
            let mut placer = timeline.place(plan);
            each(&mut |line| placer.line(line).expect("a sink"));
            placer.finish().expect("a sink").lines().iter().for_each(|line| shown::line(line));
        }
    }
}

/// Of the queue that is in the samples of recordings; in the second line, with times of the GPU.
const JOINED: &str = "\
:4:a.cpp:1: 50 us: [pid:7 tid: 0x1] SWq=0x7faf945b8000, HWq=0x7fad66c00000, id=1, Dispatch Header = 0xb02 (type=2), grid=[1, 1, 1], workgroup=[1, 1, 1], completion_signal=0x50, rptr=0, wptr=0
:4:a.cpp:1: 90 us: [pid:7 tid: 0x1] Signal = (0x50), Translated start/end = 60000 / 70000, Elapsed
";

fn items(what: &str, bytes: &[u8]) -> (Vec<Item>, bool) {
    let mut refused = None;
    let all: Vec<Item> = within(what, bytes.len(), READ, || {
        Reader::new(bytes)
            .map_while(|item| item.map_err(|error: ReadError| refused = Some(error)).ok())
            .collect()
    });
    if let Some(error) = &refused {
        shown::line(&error.to_string());
    }
    (all, refused.is_some())
}
