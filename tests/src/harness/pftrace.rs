//! Reads a trace of `kfd-trace timeline` with messages of its own: numbers of fields are those of
//! protos/perfetto/trace/trace_packet.proto and of what that includes.

use anyhow::{Context, Result, ensure};
use prost::Message;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
    #[prost(message, optional, tag = "12")]
    interned: Option<Interned>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(message, repeated, tag = "2")]
    names: Vec<Name>,
}

#[derive(Clone, PartialEq, Message)]
struct Name {
    #[prost(uint64, optional, tag = "1")]
    number: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Track {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<Process>,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
}

const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;

/// A slice, or an instant: then it ends where it begins. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub begin_ns: u64,
    /// `None`: it is open at the end of the trace.
    pub end_ns: Option<u64>,
    pub name: String,
    /// Names of its track and of those above, the highest first.
    pub path: Vec<String>,
    /// Of the process that its track is below.
    pub pid: Option<i32>,
}

/// Slices and instants in the order of their begins.
///
/// # Errors
/// It is no trace, or a slice ends that did not begin.
pub fn slices(trace: &Path) -> Result<Vec<Slice>> {
    let trace = Trace::decode(&fs::read(trace).with_context(|| trace.display().to_string())?[..])?;
    let (mut names, mut tracks, mut events) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for packet in trace.packets {
        let new = packet.interned.into_iter().flat_map(|interned| interned.names);
        names.extend(new.map(|name| (name.number, name.name)));
        if let Some(track) = packet.track {
            tracks.insert(track.uuid, track);
        }
        events.extend(packet.timestamp.zip(packet.event));
    }
    events.sort_by_key(|(at_ns, _)| *at_ns);
    let (mut all, mut open): (Vec<Slice>, BTreeMap<_, Vec<usize>>) = (Vec::new(), BTreeMap::new());
    for (at_ns, event) in events {
        let open = open.entry(event.track).or_default();
        let (mut path, mut pid, mut next) = (Vec::new(), None, event.track);
        while let Some(track) = next.and_then(|uuid| tracks.get(&Some(uuid))) {
            path.insert(0, track.name.clone().unwrap_or_default());
            pid = pid.or(track.process.as_ref().and_then(|process| process.pid));
            next = track.parent;
        }
        let name = names.get(&event.name).cloned().flatten().unwrap_or_default();
        let slice = Slice { begin_ns: at_ns, end_ns: None, name, path, pid };
        match event.kind {
            Some(BEGIN) => {
                open.push(all.len());
                all.push(slice);
            }
            Some(END) => {
                let begun = open.pop().and_then(|index| all.get_mut(index));
                begun.with_context(|| format!("an end without a begin: {slice:?}"))?.end_ns = Some(at_ns);
            }
            Some(INSTANT) => all.push(Slice { end_ns: Some(at_ns), ..slice }),
            _ => {}
        }
    }
    ensure!(!all.is_empty(), "the trace is empty");
    Ok(all)
}
