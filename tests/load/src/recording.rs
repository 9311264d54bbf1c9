//! Recordings: what a record costs a stream, a recorder, and a replay.

use crate::load::World;
use crate::records::Tape;
use crate::region::{region, value};
use crate::world::Daemon;
use anyhow::Result;
use kfd_trace::attribute::Topology;
use kfd_trace::model::event::Event;
use kfd_trace::model::ioctl::Named;
use kfd_trace::output::event::context::Context;
use kfd_trace::output::event::json;
use kfd_trace::recording::{Begin, Item, Line, Machine, Reader, Recorder, Replay, compress};
use kfd_trace::state::{Change, State};
use kfd_trace::text::clock::Clock;
use kfd_trace::tracer::engine::wall_clock;
use std::fs::File;

/// Lines of a block, some 256 KiB.
const BLOCK: usize = 700;

/// A line of JSON of an event, as the stream and a replay write it.
fn line(out: &mut Vec<u8>, event: &Event, change: &Change, state: &State, clock: &Clock) {
    let topology = Topology::default();
    let context = Context::new(change, state, clock, &topology, Named::default(), None);
    // Memory takes everything.
    let _ = json::event(out, event, &context);
}

/// The same records as lines of a stream, as a recording, and as lines of its replay.
pub(crate) fn recording(world: World, daemon: &mut Daemon) {
    let (records, clock) = (world.lives_of_queues(), wall_clock());
    let per = records.len();
    let case = |part: &str| world.case(&format!("recording.{part}"));
    let mut lines = Vec::with_capacity(1024 * per);
    region(&case("stream"), per, "record", || {
        daemon.follow_with(&records, |event, change, state| line(&mut lines, event, change, state, &clock));
    });
    let begin = Begin::new(Machine::default(), daemon.state.limits());
    let mut text = Vec::with_capacity(1024 * per);
    let mut put = |item: &Item| {
        let _ = serde_json::to_writer(&mut text, item);
        text.push(b'\n');
    };
    put(&Item::Begin(begin.clone()));
    daemon.state.start_tape();
    region(&case("record"), per, "record", || {
        daemon.follow(&records);
        daemon.state.take_tape().into_iter().for_each(|input| put(&Item::Input(input)));
    });
    let all: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let blocks: Vec<Vec<u8>> = all.chunks(BLOCK).map(<[&[u8]]>::concat).collect();
    let file = region(&case("compress"), per, "record", || {
        blocks.iter().filter_map(|block| compress(block).ok()).collect::<Vec<_>>().concat()
    });
    value(&case("file"), (file.len() / per) as u64, "bytes/record");
    let items = region(&case("read"), per, "record", || {
        Reader::new(&file[..]).map_while(Result::ok).collect::<Vec<_>>()
    });
    let mut replay = Replay::new(&begin, clock);
    lines.clear();
    region(&case("replay"), per, "record", || {
        for item in items {
            let shown = replay.take(item, &mut |replay, shown| {
                if let Line::Event(event, change) = shown {
                    line(&mut lines, event, change, &replay.state, &replay.clock);
                }
                Ok::<(), ()>(())
            });
            let _ = shown;
        }
    });
}

/// What is on the daemon's tape, and records, as a file.
pub(crate) fn write_recording(file: File, records: &Tape, daemon: &mut Daemon) -> Result<()> {
    let mut recorder = Recorder::new(file)?;
    recorder.put(&Item::Begin(Begin::new(Machine::default(), daemon.state.limits())))?;
    daemon.follow(records);
    for input in daemon.state.take_tape() {
        recorder.put(&Item::Input(input))?;
    }
    recorder.put(&Item::End { at_ns: records.now_ns(), text: String::new(), json: "{}".to_owned() })?;
    recorder.finish()?;
    Ok(())
}
