//! Logs of AMD_LOG_LEVEL on the timeline of a recording.

use super::*;
use crate::amd_log::lines::LogLine;
use crate::timeline::LogReport;
use crate::timeline::proto::AnnotationValue;

mod doubt;

/// The ring of the samples' queues, and their write pointer less 0x38.
const HWQ: &str = "0x7fad66c00000";
const SWQ: &str = "0x7faf945b8000";

/// Of PID 7 in its container, as the samples' process is.
fn line(at_us: u64, text: &str) -> String {
    format!(":4:rocvirtual.cpp:1177: {at_us} us: [pid:7     tid:0x1] {text}")
}

fn dispatch_of(hwq: &str, swq: &str, signal: &str) -> String {
    format!(
        "SWq={swq}, HWq={hwq}, id=1, Dispatch Header = 0xb02 (type=2, barrier=1, acquire=1, release=1), setup=3, \
         grid=[64, 1, 1], workgroup=[32, 1, 1], completion_signal={signal}, correlation_id=0, rptr=3, wptr=4"
    )
}

fn dispatch(signal: &str) -> String {
    dispatch_of(HWQ, SWQ, signal)
}

fn ran(signal: &str, begin_ns: u64, end_ns: u64) -> String {
    format!("Signal = ({signal}), Translated start/end = {begin_ns} / {end_ns}, Elapsed = 1 ns")
}

/// A process and its queue 3, from 1 ms to 9 ms; CLOCK_BOOTTIME is 5 ms more.
fn recording() -> Vec<Item> {
    let inputs = [
        at(500_000, seen(false)),
        at(1_000_000, create(3)),
        at(9_000_000, destroy(3)),
        at(9_500_000, Body::ProcessRelease),
    ];
    inputs.into_iter().map(Item::Input).collect()
}

fn joined_with(items: Vec<Item>, log: &[String]) -> (Vec<TracePacket>, Result<LogReport, String>) {
    joined_by(items, None, log)
}

fn joined_by(
    items: Vec<Item>,
    filter: Option<Box<Filter>>,
    log: &[String],
) -> (Vec<TracePacket>, Result<LogReport, String>) {
    let mut report = Err("not called".to_owned());
    let packets = written_by(items, filter, |timeline| {
        let mut survey = timeline.survey("app.log".to_owned());
        log.iter().for_each(|line| survey.line(LogLine::Whole(line.as_bytes())));
        report = survey.finish().map(|plan| {
            let mut placer = timeline.place(plan);
            log.iter().for_each(|line| placer.line(LogLine::Whole(line.as_bytes())).expect("memory"));
            placer.finish().expect("memory")
        });
    });
    (packets, report)
}

/// What the log added to the trace, and what became of it.
fn joined(log: &[String]) -> (Vec<String>, LogReport) {
    let (packets, report) = joined_with(recording(), log);
    let added = lines(&packets).into_iter().filter(|line| line.contains("AMD log")).collect();
    (added, report.expect("joined"))
}

/// Why nothing was joined; the trace is as without the log.
fn refused(items: Vec<Item>, log: &[String]) -> String {
    let (packets, report) = joined_with(items, log);
    assert!(lines(&packets).iter().all(|line| !line.contains("AMD log")), "{:?}", lines(&packets));
    report.expect_err("nothing joins")
}

#[test]
fn what_has_no_times_is_at_the_time_of_its_line_below_its_queue() {
    let barrier = dispatch("0x0").replace("Dispatch", "BarrierAND");
    let log = [
        line(2_000, "Command (KernelExecution) enqueued: 0xa0"),
        line(2_001, "ShaderName : gemm"),
        line(2_002, &dispatch("0x0")),
        line(2_003, &barrier),
        line(2_004, "HSA Copy copy_engine=0x1, dst=0x1, src=0x2, size=4096, forceSDMA=0"),
        line(2_500, "Command 0xa0 complete (Wall: 2500, CPU: 0, GPU: 0 us)"),
    ];
    let (added, report) = joined(&log);
    let expected = [
        "2002000 Instant train/queue 3/AMD log: submitted gemm",
        "2002000 Instant AMD logs app.log",
        "2003000 Instant train/queue 3/AMD log: submitted barrier_and",
        "2004000 Instant train/AMD log: copies, submitted copy",
    ];
    assert_eq!(added, expected);
    let clocks = (report.joined, report.queues, report.ahead_ns, report.behind_ns);
    // 2.002999 - 1 ms at most, and 9 - 2.003 ms.
    assert_eq!(clocks, (2, 1, Some(1_002_999), Some(6_997_000)));
    assert_eq!((report.packets, report.copies, report.slices), (2, 1, 0));
    let text = report.lines().join("\n");
    assert!(
        text.contains("within the life of 1 queue, and would not if it were 1.00ms ahead or 7.00ms behind"),
        "{text}"
    );
}

#[test]
fn times_of_the_gpu_are_slices_on_the_recordings_clock() {
    // CLOCK_BOOTTIME, nanoseconds: 2.010123 to 2.050456 ms of CLOCK_MONOTONIC.
    let log = [
        line(2_000, &dispatch("0x50")),
        line(2_001, &dispatch("0x60")),
        line(2_200, &ran("0x50", 7_010_123, 7_050_456)),
        line(2_201, &ran("0x60", 7_030_000, 7_060_000)),
    ];
    let (added, report) = joined(&log);
    let expected = [
        "2000000 Instant AMD logs app.log",
        "2010123 SliceBegin train/queue 3/AMD log: running dispatch",
        "2030000 SliceBegin train/queue 3/AMD log: running dispatch",
        "2050456 SliceEnd train/queue 3/AMD log: running",
        "2060000 SliceEnd train/queue 3/AMD log: running",
    ];
    assert_eq!(added, expected);
    // Between the second one's begin at its line, and the end of the second one's as its times were logged.
    assert_eq!((report.slices, report.within_ns, report.other_clock), (2, 142_000, 0));
    let (packets, _) = joined_with(recording(), &log);
    let tracks: Vec<u64> = packets
        .iter()
        .filter_map(|packet| packet.track_event.as_ref())
        .filter(|event| event.r#type() == Kind::SliceBegin)
        .map(TrackEvent::track_uuid)
        .collect();
    assert_ne!(tracks[tracks.len() - 1], tracks[tracks.len() - 2], "they overlap: each has a track");
}

#[test]
fn a_clock_of_its_own_is_placed_between_the_lines() {
    let complete =
        |address: u64, wall: u64| format!("Command {address:#x} complete (Wall: {wall}, CPU: 1, GPU: 40 us)");
    let begun = |address: u64| format!("Command (KernelExecution) enqueued: {address:#x}");
    // Wall counts from 1.9 ms on: the first one begins 10 us after its line, the second one ends 20 us before its.
    let log = [
        line(2_000, &begun(0xa0)),
        line(2_000, &dispatch("0x0")),
        line(2_300, &begun(0xb0)),
        line(2_300, &dispatch("0x0")),
        line(2_400, &complete(0xa0, 150)),
        line(2_420, &complete(0xb0, 500)),
    ];
    let (added, report) = joined(&log);
    // The offset is of 1889 to 1921 us.
    let expected = [
        "2000000 Instant AMD logs app.log",
        "2015000 SliceBegin train/queue 3/AMD log: running dispatch",
        "2055000 SliceEnd train/queue 3/AMD log: running",
        "2365000 SliceBegin train/queue 3/AMD log: running dispatch",
        "2405000 SliceEnd train/queue 3/AMD log: running",
    ];
    assert_eq!((added.as_slice(), report.within_ns), (expected.map(str::to_owned).as_slice(), 17_000));
    let late = [line(2_000, &dispatch("0x50")), line(2_010, &ran("0x50", 100, 50_100))];
    let (added, report) = joined(&late);
    assert!(added.iter().any(|line| line == "2000000 Instant train/queue 3/AMD log: submitted dispatch"));
    assert_eq!((report.slices, report.unplaced_times), (0, 1), "it ran longer than its lines leave room for");
}

#[test]
fn another_queue_of_a_joined_process_is_below_it_and_another_process_is_apart() {
    let other = line(2_001, &dispatch_of("0x10", "0x20", "0x0"));
    let foreign = other.replace("pid:7 ", "pid:8 ");
    let log = [other, line(2_000, &dispatch("0x0")), foreign];
    let (added, report) = joined(&log);
    let expected = [
        "2000000 Instant train/queue 3/AMD log: submitted dispatch",
        "2000000 Instant AMD logs app.log",
        "2001000 Instant train/AMD log: queue HWq 0x10/AMD log: submitted dispatch",
        "2001000 Instant AMD log app.log, PID 8: not joined/AMD log: queue HWq 0x10/AMD log: submitted dispatch",
    ];
    assert_eq!(added, expected);
    let apart: Vec<_> = report.apart.iter().map(|((process, _), count)| (process.as_str(), *count)).collect();
    assert_eq!(apart, [("PID 8", 1)]);
    let text = report.lines().join("\n");
    assert!(
        text.contains(
            "1 of PID 8 is on a track of their own, since the recording has no queue of that address"
        ),
        "{text}"
    );
}

#[test]
fn what_cannot_be_joined_is_refused() {
    let one = |text: &str, at_us| vec![line(at_us, text)];
    let why = |log: &[String]| refused(recording(), log);
    let time = why(&one(&dispatch("0x0"), 77_000_000));
    assert!(
        time.contains("of 77.000000 to 77.000000 s") && time.contains("0.000000 to 0.009500 s"),
        "{time}"
    );
    let cases = [
        (one(&dispatch("0x0"), 999), "lived at another time"),
        (one(&dispatch("0x0"), 9_001), "lived at another time"),
        (one(&dispatch_of(HWQ, "0x40", "0x0"), 2_000), "has its write pointer elsewhere"),
        (one(&dispatch("0x0").replace("0x7fad66c00000", "0x10"), 2_000), "has no queue of that address"),
        (vec![line(2_000, &dispatch("0x0")).replace("pid:7 ", "pid:8 ")], "is of another PID"),
        (one("acquireQueue refCount: 0x10 (1)", 2_000), "it has no packets with times"),
        (one("HSA Copy dst=0x1, src=0x2, size=1", 2_000), "no packet of it names a queue"),
    ];
    for (log, expected) in cases {
        let why = why(&log);
        assert!(why.contains(expected), "{log:?}: {why}");
    }
    let bare = refused(vec![Item::Input(at(1_000_000, seen(false)))], &one(&dispatch("0x0"), 1_000));
    assert!(bare.contains("no addresses of queues"), "{bare}");
    // Two live queues have the same addresses: another process of another container.
    let twin = [at(500_000, seen(false)), at(1_000_000, create(3))].map(|input| match input {
        Input::Event(event) => {
            Input::Event(Event { process: Some(ProcessId(2)), tgid: Some(701), task_tgid: 701, ..event })
        }
        other => other,
    });
    let items = twin.into_iter().map(Item::Input).chain(recording()).collect();
    assert!(refused(items, &one(&dispatch("0x0"), 2_000)).contains("several queues"));
}

#[test]
fn the_creation_of_a_queue_bounds_the_clock_from_both_sides() {
    let pool = "Number of allocated hardware queues with low priority: 0, with normal priority: 0, with high priority: 0, \
                maximum per priority is: 4";
    let created =
        format!("Created SWq={SWQ} to map on HWq={HWQ} with size 16384 with priority 1, cooperative: 0");
    let log = [line(940, pool), line(1_030, &created), line(5_000, &dispatch("0x0"))];
    let (added, report) = joined(&log);
    assert_eq!(added.len(), 2, "{added:?}");
    assert_eq!((report.joined, report.ahead_ns, report.behind_ns), (2, Some(30_999), Some(60_000)));
    let why = refused(recording(), &log[..2]);
    assert!(why.contains("it has no packets"), "{why}");
}

#[test]
fn a_line_in_the_microsecond_of_a_queues_begin_or_end_is_within_its_life() {
    let inputs = [at(500_000, seen(false)), at(1_000_700, create(3)), at(9_000_200, destroy(3))];
    let items: Vec<Item> = inputs.into_iter().map(Item::Input).collect();
    for (at_us, within) in [(999, false), (1_000, true), (9_000, true), (9_001, false)] {
        let (_, report) = joined_with(items.clone(), &[line(at_us, &dispatch("0x0"))]);
        assert_eq!(report.is_ok(), within, "{at_us}: {report:?}");
    }
}

#[test]
fn the_trace_says_how_the_clocks_are_joined() {
    let log = [line(2_000, &dispatch("0x50")), line(2_200, &ran("0x50", 7_010_123, 7_050_456))];
    let (packets, _) = joined_with(recording(), &log);
    let mut names = BTreeMap::new();
    let new = packets.iter().filter_map(|packet| packet.interned_data.as_ref());
    names.extend(new.flat_map(|new| &new.debug_annotation_names).map(|name| (name.iid, name.name.clone())));
    let of = |wanted: &str| -> Vec<AnnotationValue> {
        let events = packets.iter().filter_map(|packet| packet.track_event.as_ref());
        let all = events.flat_map(|event| &event.debug_annotations);
        let named = all.filter(|note| names[&note.name_iid].as_deref() == Some(wanted));
        named.filter_map(|note| note.value.clone()).collect()
    };
    assert_eq!(of("log_ahead_at_most_ns"), [AnnotationValue::Uint(1_000_999)]);
    assert_eq!(of("log_behind_at_most_ns"), [AnnotationValue::Uint(7_000_000)]);
    // The GPU's begin is 10.123 us after the line, the end 149.544 + 1 us before its own.
    assert_eq!(of("slices_within_ns"), [AnnotationValue::Uint(150_544)]);
    assert_eq!(of("submitted_mono_us"), [AnnotationValue::Uint(2_000)]);
    assert_eq!(of("log_pid"), [AnnotationValue::Uint(7)]);
    assert_eq!(of("grid"), [AnnotationValue::Text("64 x 1 x 1".to_owned())]);
}
