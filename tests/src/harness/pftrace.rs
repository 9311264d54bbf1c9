//! Reads a trace of `kfd-trace timeline`: its slices, by track.

use anyhow::{Context, Result, ensure};
use prost::Message as _;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

mod messages;

use messages::Trace;

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
