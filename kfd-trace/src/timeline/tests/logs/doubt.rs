//! What of a log contradicts its join, is not requested, or has no room.

use super::*;
use crate::recording::Closed;
use crate::timeline::Shown;

#[test]
fn lines_outside_the_life_of_their_queue_contradict_the_clock() {
    let created =
        format!("Created SWq={SWQ} to map on HWq={HWQ} with size 16384 with priority 1, cooperative: 0");
    let mut log: Vec<String> = (901..=950).map(|at_us| line(at_us, &dispatch("0x0"))).collect();
    log.extend([line(951, &created), line(2_000, &dispatch("0x0"))]);
    let (added, report) = joined(&log);
    let below = "train/AMD log: queue HWq 0x7fad66c00000/AMD log: submitted dispatch";
    assert_eq!(added.iter().filter(|line| line.ends_with(below)).count(), 50);
    assert_eq!((report.joined, report.outside), (1, 51));
    let text = report.lines().join("\n");
    for expected in [
        "51 lines lie outside the life of their queue, and 1 within the life of 1 queue",
        "50 of PID 7 are on tracks of other queues of their process, since the recording's queue of that address lived at \
         another time",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(!text.contains("is that of the recording"), "{text}");
}

#[test]
fn where_a_gap_is_no_end_of_a_life_was_seen() {
    let begin = Begin { at_ns: 5_000_000, ..Begin::new(Machine::default(), StateLimits::default()) };
    let mut items: Vec<Item> =
        [at(500_000, seen(false)), at(1_000_000, create(3))].into_iter().map(Item::Input).collect();
    items.extend([
        Item::Close { at_ns: 4_000_000, why: Closed::Gap },
        Item::Begin(begin),
        Item::Gpus(topology()),
        Item::Input(at(5_100_000, seen(true))),
        Item::Input(Input::Queue {
            key: ProcessId(1).into(),
            read: ReadTimes { from_ns: 5_100_000, until_ns: 5_200_000 },
            queue: facts(3),
            source: Source::Sysfs,
        }),
        Item::Existing,
        Item::Input(at(9_000_000, destroy(3))),
    ]);
    // Before and after: the first has no end, the second no begin.
    for (at_us, slack) in [(2_000, (Some(1_000_999), None)), (6_000, (None, Some(3_000_000)))] {
        let (packets, report) = joined_with(items.clone(), &[line(at_us, &dispatch("0x0"))]);
        let report = report.unwrap_or_else(|why| panic!("{at_us}: {why}: {:?}", lines(&packets)));
        assert_eq!((report.joined, (report.ahead_ns, report.behind_ns)), (1, slack), "{at_us}");
    }
}

#[test]
fn what_was_not_requested_is_left_out_and_said() {
    // PID 701, of another container; its rings are elsewhere.
    let (ring, software) = (0x7000_0000_u64, 0x9000_0000_u64);
    let other =
        [at(600_000, seen(false)), at(1_100_000, create(3)), at(8_000_000, destroy(3))].map(|input| {
            match input {
                Input::Event(mut event) => {
                    match &mut event.body {
                        Body::QueueCreate(facts) => {
                            facts.ring_address = Some(ring);
                            facts.write_pointer_address = Some(software + 0x38);
                        }
                        Body::ProcessSeen(about) => about.ns_tgid = Some(8),
                        _ => {}
                    }
                    Item::Input(Input::Event(Event {
                        process: Some(ProcessId(2)),
                        tgid: Some(701),
                        task_tgid: 701,
                        ..event
                    }))
                }
                other => Item::Input(other),
            }
        });
    let items: Vec<Item> =
        recording().into_iter().take(2).chain(other).chain(recording().into_iter().skip(2)).collect();
    let filter = || -> Option<Box<Filter>> {
        Some(Box::new(|event, _, _| if event.tgid == Some(701) { Shown::Nothing } else { Shown::All }))
    };
    let foreign = |at_us, text: &str| line(at_us, text).replace("pid:7 ", "pid:8 ");
    let theirs = [
        foreign(2_001, &dispatch_of(&format!("{ring:#x}"), &format!("{software:#x}"), "0x0")),
        foreign(2_002, "HSA Copy copy_engine=0x1, dst=0x1, src=0x2, size=4096, forceSDMA=0"),
    ];
    let both: Vec<String> = theirs.iter().cloned().chain([line(2_000, &dispatch("0x0"))]).collect();
    let (packets, report) = joined_by(items.clone(), filter(), &both);
    let report = report.expect("joined");
    let added: Vec<String> = lines(&packets).into_iter().filter(|line| line.contains("AMD log")).collect();
    assert_eq!(
        added,
        ["2000000 Instant train/queue 3/AMD log: submitted dispatch", "2000000 Instant AMD logs app.log",]
    );
    assert_eq!((report.not_requested, report.apart.len()), (2, 0));
    let text = report.lines().join("\n");
    assert!(text.contains("2 packets and copies are of processes not requested: not shown"), "{text}");
    let why = joined_by(items.clone(), filter(), &theirs).1.expect_err("nothing is shown");
    assert!(why.contains("processes that were not requested"), "{why}");
    assert!(joined_with(items, &theirs).1.is_ok(), "all is requested");
}

#[test]
fn what_there_was_no_room_for_is_said() {
    let pids = crate::amd_log::limits::PROCESSES;
    let log: Vec<String> = (0..=pids)
        .map(|number| line(2_000, &dispatch("0x0")).replace("pid:7 ", &format!("pid:{} ", number + 10)))
        .collect();
    // Of no known inner PID: each of them fits.
    let items = recording().into_iter().map(|item| match item {
        Item::Input(Input::Event(mut event)) => {
            if let Body::ProcessSeen(about) = &mut event.body {
                about.ns_tgid = None;
            }
            Item::Input(Input::Event(event))
        }
        other => other,
    });
    let report = joined_with(items.collect(), &log).1.expect("joined");
    assert_eq!((report.pids_left_out, report.lives_left_out), (1, 0));
    assert!(
        report.lines().iter().any(|line| line.starts_with("1 packet of PIDs beyond what there is room for")),
        "{:?}",
        report.lines()
    );
    let lost = LogReport { lives_left_out: 3, nameless: 2, ..report };
    for expected in ["3 processes, queues and sleeps", "2 lines with names of kernels"] {
        assert!(lost.lines().iter().any(|line| line.starts_with(expected)), "{:?}", lost.lines());
    }
}
