//! The reader of recordings: of files that anybody can have written.

use crate::allocation::{Bound, within};
use crate::shown;
use kfd_trace::events::undecoded::Undecoded;
use kfd_trace::recording::{Begin, Item, Line, Machine, ReadError, Reader, Replay, compress};
use kfd_trace::state::{History, StateLimits};
use kfd_trace::timeline::Timeline;
use std::io;

/// An item of some 100 bytes of text has a place of 300; zstd's tables and window are there in any case.
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
    timeline.finish(&mut again).expect("a sink");
    shown::world(&replay.state, &History::default(), &replay.topology, &[], &Undecoded::default());
    (all.len(), refused)
}

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
