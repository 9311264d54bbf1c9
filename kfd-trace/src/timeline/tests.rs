//! The messages as another reader sees them: decoded anew, with their names, in the order of time.

use super::proto::{Kind, Name, TracePacket, TrackDescriptor, TrackEvent};
use super::{Filter, Timeline};
use crate::model::event::{Body, Event, ProcessId};
use crate::model::incident::{Eviction, Trigger};
use crate::model::inventory::Listed;
use crate::model::pointers::Counts;
use crate::output::samples::{clock, topology};
use crate::recording::{Begin, Item, Machine, Replay};
use crate::state::samples::{create, destroy, event, facts, seen};
use crate::state::{Input, ProcessKey, ReadTimes, Sample, Source, StateLimits};
use prost::Message as _;
use std::collections::BTreeMap;

mod filter;
mod logs;

const GPU: Option<u32> = Some(58270);

/// A trace; `Trace` itself has nothing but its packets.
#[derive(Clone, PartialEq, prost::Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

fn trace(inputs: Vec<Input>) -> Vec<TracePacket> {
    trace_of(inputs.into_iter().map(Item::Input).collect())
}

fn trace_of(items: Vec<Item>) -> Vec<TracePacket> {
    written(items, |_| {})
}

/// `also` is called after the last item.
fn written(items: Vec<Item>, also: impl FnOnce(&mut Timeline<&mut Vec<u8>>)) -> Vec<TracePacket> {
    written_by(items, None, also)
}

fn written_by(
    items: Vec<Item>,
    filter: Option<Box<Filter>>,
    also: impl FnOnce(&mut Timeline<&mut Vec<u8>>),
) -> Vec<TracePacket> {
    let begin = Begin::new(Machine::default(), StateLimits::default());
    let mut replay = Replay::new(&begin, clock());
    let mut bytes = Vec::new();
    let mut timeline = Timeline::new(&mut bytes).expect("memory");
    if let Some(filter) = filter {
        timeline.choose(filter);
    }
    let first =
        [Item::Gpus(topology()), Item::Clock { wall_ns: 1_790_000_000_000_000_000, boot_ns: 5_000_000 }];
    for item in first.into_iter().chain(items) {
        timeline.take(item, &mut replay).expect("memory");
    }
    timeline.settle(&mut replay).expect("memory");
    also(&mut timeline);
    let written = timeline.finish().expect("memory");
    let trace = Trace::decode(&bytes[..]).expect("a trace");
    assert_eq!(trace.packet.len() as u64, written);
    trace.packet
}

/// `TIME KIND PATH NAME`, or the value of a counter, in the order of time; each track as it was described.
fn lines(packets: &[TracePacket]) -> Vec<String> {
    let mut names = BTreeMap::new();
    let mut tracks: BTreeMap<u64, &TrackDescriptor> = BTreeMap::new();
    let mut events: Vec<(u64, &TrackEvent)> = Vec::new();
    for packet in packets {
        for Name { iid, name } in packet.interned_data.iter().flat_map(|new| &new.event_names) {
            assert_eq!(names.insert(*iid, name.clone().expect("a name")), None, "sent once");
        }
        if let Some(track) = &packet.track_descriptor {
            assert!(tracks.insert(track.uuid(), track).is_none(), "described once");
        }
        if let Some(event) = &packet.track_event {
            assert!(tracks.contains_key(&event.track_uuid()), "described before");
            events.push((packet.timestamp(), event));
        }
    }
    let path = |mut uuid: u64| {
        let mut path = Vec::new();
        while let Some(track) = tracks.get(&uuid) {
            path.insert(0, track.name());
            uuid = track.parent_uuid();
        }
        path.join("/")
    };
    events.sort_by_key(|(at_ns, _)| *at_ns);
    let line = |(at_ns, event): (u64, &TrackEvent)| {
        let what = match event.double_counter_value {
            Some(value) => value.to_string(),
            None => names.get(&event.name_iid).cloned().unwrap_or_default(),
        };
        format!("{at_ns} {:?} {} {what}", event.r#type(), path(event.track_uuid())).trim_end().to_owned()
    };
    events.into_iter().map(line).collect()
}

fn at(mono_ns: u64, body: Body) -> Input {
    Input::Event(Event { mono_ns, ..event(mono_ns, 1, 700, body) })
}

fn eviction() -> Eviction {
    Eviction { gpu_id: GPU, trigger: Some(Trigger::Ttm), errno: 0, latency_ns: 3 }
}

#[test]
fn lives_begin_and_end_with_what_happens_in_them() {
    let sample = |at_ns, retired| {
        let reading = Ok(Counts { submitted: 12, retired });
        Input::Sampled(vec![Sample { key: ProcessId(1).into(), queue_id: 3, since_ns: 20, reading, at_ns }])
    };
    let packets = trace(vec![
        at(10, seen(false)),
        at(20, create(3)),
        sample(1_000_000_000, 4),
        sample(2_000_000_000, 10),
        at(2_000_000_010, Body::Evict(eviction())),
        at(2_000_000_015, Body::Evict(eviction())),
        at(2_000_000_020, Body::Restore(eviction())),
        at(2_000_000_030, destroy(3)),
        at(2_000_000_040, create(3)),
        at(2_000_000_050, Body::ProcessRelease),
    ]);
    let expected = [
        "10 SliceBegin train train",
        "10 Instant train process_seen",
        "20 SliceBegin train/queue 3 gpu 0 compute_aql",
        "20 Counter gpu 0 (0000:c1:00.0, gfx942)/queues 1",
        "1000000000 Counter train/queue 3/queue 3 backlog 8",
        "2000000000 Counter train/queue 3/queue 3 per second 6",
        "2000000000 Counter train/queue 3/queue 3 backlog 2",
        "2000000010 SliceBegin train/evicted from gpu 0 ttm",
        "2000000015 Instant train/evicted from gpu 0 ttm",
        "2000000020 SliceEnd train/evicted from gpu 0",
        "2000000030 SliceEnd train/queue 3",
        "2000000030 Counter gpu 0 (0000:c1:00.0, gfx942)/queues 0",
        "2000000030 Instant train queue_destroy",
        "2000000040 SliceBegin train/queue 3 gpu 0 compute_aql",
        "2000000040 Counter gpu 0 (0000:c1:00.0, gfx942)/queues 1",
        "2000000050 SliceEnd train/queue 3",
        "2000000050 Counter gpu 0 (0000:c1:00.0, gfx942)/queues 0",
        "2000000050 Instant train process_release",
        "2000000050 SliceEnd train",
    ];
    assert_eq!(lines(&packets), expected);
}

#[test]
fn what_a_driver_leaves_at_its_unloading_has_ended() {
    let packets = trace(vec![
        at(10, seen(false)),
        at(20, create(3)),
        at(30, Body::Evict(eviction())),
        Input::Unloaded { at_ns: 40 },
    ]);
    let ends: Vec<String> = lines(&packets).into_iter().filter(|line| line.contains("SliceEnd")).collect();
    let expected = ["40 SliceEnd train/queue 3", "40 SliceEnd train/evicted from gpu 0", "40 SliceEnd train"];
    assert_eq!(ends, expected);
}

fn chosen(packets: &[TracePacket], begin: &str) -> Vec<String> {
    lines(packets)
        .into_iter()
        .filter(|line| line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(begin)))
        .collect()
}

#[test]
fn a_queue_whose_end_was_not_seen_ends_where_its_id_is_given_again() {
    let packets = trace(vec![at(10, seen(false)), at(20, create(3)), at(30, create(3)), at(40, destroy(3))]);
    let counts = ["20 Counter 1", "30 Counter 0", "30 Counter 1", "40 Counter 0"];
    let counters = chosen(&packets, "Counter")
        .into_iter()
        .map(|line| line.replace(" gpu 0 (0000:c1:00.0, gfx942)/queues", ""));
    assert_eq!(counters.collect::<Vec<_>>(), counts);
    let ends = chosen(&packets, "SliceEnd");
    assert_eq!(ends, ["30 SliceEnd train/queue 3", "40 SliceEnd train/queue 3"]);
}

#[test]
fn a_process_that_gets_its_number_later_stays_one() {
    let read = ReadTimes { from_ns: 1, until_ns: 2 };
    let process = Listed { tgid: 700, comm: Some("train".to_owned()), ..Listed::default() };
    let adopted = ProcessKey::Adopted(1);
    let items = vec![
        Item::Input(Input::Process { read, process, source: Source::Sysfs }),
        Item::Input(Input::Queue { key: adopted, read, queue: facts(3), source: Source::Sysfs }),
        Item::Existing,
        Item::Input(at(20, destroy(3))),
        Item::Input(at(30, Body::ProcessRelease)),
    ];
    let packets = trace_of(items);
    assert_eq!(chosen(&packets, "SliceBegin").len(), 2, "a process and a queue");
    assert_eq!(chosen(&packets, "SliceEnd"), ["20 SliceEnd train/queue 3", "30 SliceEnd train"]);
}

#[test]
fn what_was_learned_from_wrong_types_ends() {
    let packets = trace(vec![at(10, seen(false)), at(20, create(3)), Input::Anew, at(30, seen(false))]);
    assert_eq!(chosen(&packets, "SliceEnd"), ["20 SliceEnd train/queue 3", "20 SliceEnd train"]);
    assert_eq!(chosen(&packets, "SliceBegin").len(), 3);
}

#[test]
fn clocks_are_joined_at_the_begin_and_where_one_was_set() {
    let packets = trace(vec![at(10, seen(false))]);
    let snapshots: Vec<_> = packets.iter().filter_map(|packet| packet.clock_snapshot.as_ref()).collect();
    let clocks = snapshots[0].clocks.iter().map(|clock| (clock.clock_id(), clock.timestamp()));
    assert_eq!(clocks.collect::<Vec<_>>(), [(1, 1_790_000_000_000_000_000), (3, 0), (6, 5_000_000)]);
    assert_eq!(snapshots.len(), 1);
    let defaults = packets[0].trace_packet_defaults.as_ref().and_then(|defaults| defaults.timestamp_clock_id);
    assert_eq!(defaults, Some(3), "the kernel's records are of CLOCK_MONOTONIC");
}

#[test]
fn every_kind_of_event_is_in_it_and_every_end_has_a_begin() {
    let events = crate::output::golden::events();
    let count = events.len();
    let packets = trace(events.into_iter().map(Input::Event).collect());
    let mut shown: Vec<(u64, &TrackEvent)> = Vec::new();
    for packet in &packets {
        shown.extend(packet.track_event.as_ref().map(|event| (packet.timestamp(), event)));
    }
    let annotated = shown.iter().filter(|(_, event)| !event.debug_annotations.is_empty()).count();
    assert!(annotated >= count, "{annotated} of {count}");
    shown.sort_by_key(|(at_ns, _)| *at_ns);
    let mut open: BTreeMap<u64, u32> = BTreeMap::new();
    for (at_ns, event) in shown {
        let open = open.entry(event.track_uuid()).or_default();
        match event.r#type() {
            Kind::SliceBegin => *open += 1,
            Kind::SliceEnd => {
                assert!(*open > 0, "an end without a begin at {at_ns}");
                *open -= 1;
            }
            _ => {}
        }
    }
}
