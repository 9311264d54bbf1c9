//! Packets, one after the other: a trace is a message of nothing but them.

use super::proto::{
    AnnotationValue, Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, InternedData, Kind, Name,
    ProcessDescriptor, TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent,
};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, Write};

/// `BUILTIN_CLOCK_*` (protos/perfetto/common/builtin_clock.proto).
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;

/// `TracePacket.SequenceFlags`
const CLEARED: u32 = 1;
const NEEDS: u32 = 2;

/// All packets are of one sequence: they share their names.
const SEQUENCE: u32 = 1;

/// `SIBLING_MERGE_BEHAVIOR_NONE`: tracks of one name are several.
const APART: i32 = 2;

/// A track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Track(u64);

/// What a track is, besides its name and its parent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TrackKind {
    Slices,
    /// Start of its leader, CLOCK_BOOTTIME nanoseconds: PIDs are used again.
    Process {
        pid: Option<u32>,
        start_ns: Option<u64>,
    },
    Counter {
        unit: &'static str,
    },
}

/// Names that were sent before, by kind.
#[derive(Debug, Default)]
struct Names(HashMap<String, u64>);

impl Names {
    /// The number of a name, which is added to `new` where it had none.
    fn number(&mut self, name: &str, new: &mut Vec<Name>) -> u64 {
        if let Some(number) = self.0.get(name) {
            return *number;
        }
        // 0 is none.
        let number = self.0.len() as u64 + 1;
        self.0.insert(name.to_owned(), number);
        new.push(Name { iid: Some(number), name: Some(name.to_owned()) });
        number
    }
}

/// Writes packets.
pub(super) struct Packets<W> {
    out: W,
    buffer: Vec<u8>,
    tracks: u64,
    categories: Names,
    names: Names,
    arguments: Names,
    pub(super) written: u64,
}

impl<W: Write> Packets<W> {
    /// `joined`: clocks are joined by snapshots. Without them a trace has one clock, which is then that of its times, whatever it
    /// counts from: what names a clock that no snapshot has is left out by readers.
    ///
    /// # Errors
    /// Those of `out`, as of all below.
    pub(super) fn new(out: W, joined: bool) -> io::Result<Self> {
        let (categories, names, arguments) = (Names::default(), Names::default(), Names::default());
        let mut packets =
            Packets { out, buffer: Vec::new(), tracks: 0, categories, names, arguments, written: 0 };
        packets.write(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(CLEARED),
            trace_packet_defaults: Some(TracePacketDefaults {
                timestamp_clock_id: joined.then_some(MONOTONIC),
            }),
            ..TracePacket::default()
        })?;
        Ok(packets)
    }

    fn write(&mut self, packet: &TracePacket) -> io::Result<()> {
        self.buffer.clear();
        // `Trace.packet`
        encode_key(1, WireType::LengthDelimited, &mut self.buffer);
        encode_varint(packet.encoded_len() as u64, &mut self.buffer);
        packet.encode(&mut self.buffer).map_err(io::Error::other)?;
        self.written += 1;
        self.out.write_all(&self.buffer)
    }

    /// What the clocks show at one time; nanoseconds.
    pub(super) fn clocks(&mut self, mono_ns: u64, wall_ns: u64, boot_ns: u64) -> io::Result<()> {
        let clock = |id, ns| Clock { clock_id: Some(id), timestamp: Some(ns) };
        let clocks = vec![clock(REALTIME, wall_ns), clock(MONOTONIC, mono_ns), clock(BOOTTIME, boot_ns)];
        self.write(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            timestamp: Some(mono_ns),
            sequence_flags: Some(NEEDS),
            clock_snapshot: Some(ClockSnapshot { clocks }),
            ..TracePacket::default()
        })
    }

    pub(super) fn track(&mut self, name: String, parent: Option<Track>, of: &TrackKind) -> io::Result<Track> {
        self.tracks += 1;
        let track = Track(self.tracks);
        let process = match of {
            TrackKind::Process { pid, start_ns } => Some(ProcessDescriptor {
                pid: pid.and_then(|pid| i32::try_from(pid).ok()),
                process_name: Some(name.clone()),
                start_timestamp_ns: start_ns.and_then(|ns| i64::try_from(ns).ok()),
            }),
            TrackKind::Slices | TrackKind::Counter { .. } => None,
        };
        let counter = match of {
            TrackKind::Counter { unit } => Some(CounterDescriptor { unit_name: Some((*unit).to_owned()) }),
            TrackKind::Slices | TrackKind::Process { .. } => None,
        };
        self.write(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(track.0),
                name: Some(name),
                process,
                parent_uuid: parent.map(|parent| parent.0),
                counter,
                sibling_merge_behavior: Some(APART),
            }),
            ..TracePacket::default()
        })?;
        Ok(track)
    }

    /// `about`: an object, of which everything but `null` is shown.
    pub(super) fn event(
        &mut self,
        kind: Kind,
        track: Track,
        at_ns: u64,
        name: Option<(&str, &str)>,
        about: Option<&Value>,
    ) -> io::Result<()> {
        let mut new = InternedData::default();
        let mut event =
            TrackEvent { r#type: Some(kind.into()), track_uuid: Some(track.0), ..TrackEvent::default() };
        if let Some((category, name)) = name {
            event.category_iids.push(self.categories.number(category, &mut new.event_categories));
            event.name_iid = Some(self.names.number(name, &mut new.event_names));
        }
        if let Some(Value::Object(fields)) = about {
            for (name, value) in fields {
                self.annotate(name, value, &mut event.debug_annotations, &mut new.debug_annotation_names);
            }
        }
        self.send(at_ns, event, new)
    }

    pub(super) fn count(&mut self, track: Track, at_ns: u64, value: f64) -> io::Result<()> {
        let event = TrackEvent {
            r#type: Some(Kind::Counter.into()),
            track_uuid: Some(track.0),
            double_counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.send(at_ns, event, InternedData::default())
    }

    fn send(&mut self, at_ns: u64, event: TrackEvent, new: InternedData) -> io::Result<()> {
        self.write(&TracePacket {
            timestamp: Some(at_ns),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            interned_data: (new != InternedData::default()).then_some(new),
            sequence_flags: Some(NEEDS),
            ..TracePacket::default()
        })
    }

    fn annotate(&mut self, name: &str, value: &Value, all: &mut Vec<DebugAnnotation>, new: &mut Vec<Name>) {
        let value = match value {
            Value::Null => return,
            Value::Object(fields) => {
                for (inner, value) in fields {
                    self.annotate(&format!("{name}.{inner}"), value, all, new);
                }
                return;
            }
            Value::Bool(value) => AnnotationValue::Bool(*value),
            Value::String(text) => AnnotationValue::Text(text.clone()),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => AnnotationValue::Uint(value),
                (None, Some(value)) => AnnotationValue::Int(value),
                (None, None) => AnnotationValue::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            list @ Value::Array(_) => AnnotationValue::Text(list.to_string()),
        };
        let name_iid = Some(self.arguments.number(name, new));
        all.push(DebugAnnotation { name_iid, value: Some(value) });
    }

    /// Writes what is buffered.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
