use super::*;
use crate::model::event::{Body, QueueFacts};
use crate::model::inventory::Listed;
use crate::recording::folder::FolderLimits;
use crate::recording::folder::name;
use crate::recording::folder::writer::{Message, Writer};
use crate::recording::item::Closed;
use crate::recording::samples::compressed;
use crate::state::samples::{create, destroy, event, facts, seen};
use crate::state::{Cause, Entry, Filter, Input, Source, StateLimits, What};
use jiff::Timestamp;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;

const BOOT_ID: &str = "b-1";
/// CLOCK_MONOTONIC 0, in nanoseconds since the Unix epoch; the machine has slept for five.
const WALL: i64 = 1_790_000_000_000_000_000;
const SLEPT: i64 = 5;

fn boot() -> Boot {
    let id = Some(BOOT_ID.to_owned());
    Boot { id, machine: Machine::default(), now_ns: 1_000_000, began_unix_ns: WALL - SLEPT }
}

/// A daemon, as far as its recording and its history know it.
struct Daemon {
    state: State,
    history: History,
    writer: Writer,
    boot_id: Option<String>,
    now_ns: u64,
}

impl Daemon {
    /// `existing`: what it finds, by PID, each with its queues.
    fn start(folder: &Path, now_ns: u64, boot_id: Option<&str>, existing: &[(u32, Vec<QueueFacts>)]) -> Self {
        let (mut state, max_age) = (State::new(StateLimits::default()), Duration::from_secs(3600));
        let limits =
            FolderLimits { folder: folder.to_owned(), max_bytes: 1 << 20, max_age, file_bytes: 1_500 };
        let run_unix_ns = i64::try_from(now_ns).expect("a time");
        let writer = Writer::new(limits, run_unix_ns, Arc::default());
        state.start_tape();
        let start_boottime_ns = Some(1_000_000_000);
        for (tgid, queues) in existing {
            let listed = Listed { tgid: *tgid, start_boottime_ns, ..Listed::default() };
            let key = state.adopt_process(now_ns, &listed, Source::Kernel);
            queues.iter().for_each(|queue| state.adopt_queue(key, now_ns, queue, Source::Kernel));
        }
        let (history, boot_id) = (History::default(), boot_id.map(str::to_owned));
        let mut daemon = Daemon { state, history, writer, boot_id, now_ns };
        for (event, change) in daemon.state.existing() {
            daemon.history.record(&event, &change, &daemon.state, WALL);
        }
        daemon.history.begin(now_ns, WALL);
        daemon.begin();
        daemon
    }

    fn apply(&mut self, process: u64, tgid: u32, body: Body) {
        self.now_ns += 10;
        let event = event(self.now_ns, process, tgid, body);
        let change = self.state.apply(&event);
        self.history.record(&event, &change, &self.state, WALL);
        let items = self.state.take_tape().into_iter().map(Item::Input).collect();
        self.writer.take(Message::Items(items));
    }

    /// A file begins.
    fn begin(&mut self) {
        self.state.take_tape();
        let unix_ns = WALL + i64::try_from(self.now_ns).expect("a time");
        let (image, rows) = self.state.image();
        let begin = Begin::new(Machine::default(), self.state.limits());
        let boot_id = self.boot_id.clone();
        let mut items = vec![
            Item::Begin(Begin { at_ns: self.now_ns, unix_ns, boot_id, ..begin }),
            Item::Clock { wall_ns: WALL, boot_ns: SLEPT },
            Item::State(Box::new(image)),
        ];
        items.extend(rows.into_iter().map(|row| Item::Row(Box::new(row))));
        items.push(Item::Existing);
        self.writer.take(Message::Begin(items));
    }

    /// What is not an event: no entry has it.
    fn samples(&mut self) {
        let inputs = [Input::Sought, Input::Sampled(Vec::new()), Input::Late, Input::Compared(Source::Sysfs)];
        self.writer.take(Message::Items(inputs.into_iter().map(Item::Input).collect()));
    }

    /// One process with a queue that stays, and one without.
    fn works(&mut self) {
        self.apply(1, 700, seen(false));
        self.apply(1, 700, create(3));
        self.samples();
        self.apply(2, 701, seen(false));
        self.begin();
        self.apply(2, 701, create(4));
        self.apply(2, 701, destroy(4));
        self.apply(2, 701, Body::ProcessRelease);
    }

    /// Ends as after SIGTERM.
    fn stop(self) -> History {
        let Daemon { mut history, mut writer, now_ns, .. } = self;
        writer.take(Message::End { at_ns: now_ns + 7 });
        history.end(now_ns + 7, WALL);
        history
    }

    /// What it has was written; then it is killed.
    fn dies(mut self) -> History {
        self.history.end(self.now_ns, WALL);
        // The next message is preceded by all that is old enough.
        std::thread::sleep(Duration::from_secs(1));
        let (sender, messages) = std::sync::mpsc::channel();
        sender.send(Message::Items(Vec::new())).expect("taken");
        drop(sender);
        self.writer.run(&messages);
        self.history
    }
}

fn entries(history: &History) -> Vec<Arc<Entry>> {
    history.find(&Filter::newest(usize::MAX)).entries
}

fn names(history: &History) -> Vec<(&'static str, Option<u32>, u64)> {
    entries(history).iter().map(|entry| (entry.name(), entry.pid(), entry.mono_ns)).collect()
}

fn read(folder: &Path, boot: &Boot) -> Result<Option<Past>, String> {
    Past::read(folder, boot, MOST_FILES, &AtomicBool::new(false))
}

fn past(folder: &Path) -> Past {
    read(folder, &boot()).expect("readable").expect("a past")
}

#[test]
fn the_history_of_a_folder_is_the_one_that_its_daemon_had() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start(folder.path(), 100, Some(BOOT_ID), &[(600, vec![facts(1)])]);
    daemon.works();
    let until_ns = daemon.now_ns + 7;
    let live = daemon.stop();
    let past = past(folder.path());
    assert_eq!(names(&past.history), names(&live));
    assert_eq!(entries(&past.history), entries(&live));
    assert_eq!((past.files, past.until_ns, past.since_unix_ns), (2, until_ns, WALL + 100));
    let traced = |history: &History| [99, 100, 150, 166, 167].map(|at| history.was_traced(WALL + at));
    assert_eq!((traced(&past.history), until_ns), (traced(&live), 167));
    assert!(past.left_out.is_none() && past.cut.is_none());
}

#[test]
fn what_lived_over_a_restart_has_its_birth_and_what_did_not_ended_in_the_gap() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = Daemon::start(folder.path(), 100, Some(BOOT_ID), &[]);
    first.works();
    first.apply(1, 700, create(5));
    let Body::ProcessSeen(about) = seen(false) else { panic!("it was made so") };
    first.apply(3, 702, Body::ProcessSeen(about));
    first.apply(3, 702, create(1));
    let (until_ns, live) = (first.now_ns + 7, first.stop());
    // Queue 5 of 700 ended meanwhile, and so did 702 with all its queues; 703 is new.
    let existing = [(700, vec![facts(3)]), (703, vec![facts(2)])];
    let mut second = Daemon::start(folder.path(), 1_000, Some(BOOT_ID), &existing);
    second.apply(9, 700, destroy(3));
    second.stop();

    let past = past(folder.path());
    let all = names(&past.history);
    let before = names(&live);
    assert_eq!(all[..before.len()], before, "each once, in its order");
    let expected = [
        ("recording_gap", None, 1_000),
        ("queue_destroy", Some(700), 1_000),
        ("queue_destroy", Some(702), 1_000),
        ("process_release", Some(702), 1_000),
        ("process_seen", Some(700), 1_000),
        ("queue_create", Some(700), 1_000),
        ("process_seen", Some(703), 1_000),
        ("queue_create", Some(703), 1_000),
        ("queue_destroy", Some(700), 1_010),
    ];
    assert_eq!(all[before.len()..], expected);
    let entries = entries(&past.history);
    let gap = Gap { lasted_ns: Some(1_000 - until_ns), lost_changes: None };
    assert_eq!(entries[before.len()].what, What::Gap(gap));
    let ended = |index: usize| match &entries[index].what {
        What::QueueDestroy(queue) => (queue.queue_id, queue.cause, queue.born_ns, queue.found_ns),
        other => panic!("{other:?}"),
    };
    let last = entries.len() - 1;
    assert_eq!(ended(before.len() + 1), (5, Some(Cause::NotSeen), Some(170), None));
    assert_eq!(ended(last), (3, Some(Cause::Other), Some(120), Some(1_000)), "since its creation");
    // Who held what before, in, and after the gap.
    let held = |at| past.history.ended_after(WALL + at).len();
    assert_eq!([held(119), held(130), held(until_ns as i64), held(1_000), held(1_010)], [0, 1, 3, 1, 0]);
    assert_eq!([150, 500, 1_005].map(|at| past.history.was_traced(WALL + at)), [true, false, true]);
}

#[test]
fn only_what_is_certainly_of_this_boot_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut other = Daemon::start(folder.path(), 100, Some("b-0"), &[]);
    other.works();
    other.stop();
    assert!(read(folder.path(), &boot()).expect("readable").is_none());
    let mut own = Daemon::start(folder.path(), 100, Some(BOOT_ID), &[]);
    own.apply(1, 700, seen(false));
    let live = own.stop();
    assert_eq!(entries(&past(folder.path()).history), entries(&live), "and nothing before it");
    let unknown = Boot { id: None, ..boot() };
    assert!(read(folder.path(), &unknown).expect("readable").is_none());
}

#[test]
fn a_recording_without_the_id_of_its_boot_is_known_by_its_clocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start(folder.path(), 100, None, &[]);
    daemon.works();
    let live = daemon.stop();
    assert_eq!(entries(&past(folder.path()).history), entries(&live));
    let none = |boot: Boot| matches!(read(folder.path(), &boot), Ok(None));
    let near = Boot { began_unix_ns: WALL + 900_000_000, ..boot() };
    assert!(!none(near), "a clock is slewed");
    assert!(none(Boot { began_unix_ns: WALL + 1_100_000_000, ..boot() }), "the machine was started again");
    assert!(none(Boot { now_ns: 99, ..boot() }), "it begins later than now");
    let host = Machine { host: "other".to_owned(), ..Machine::default() };
    assert!(none(Boot { machine: host, ..boot() }), "a copy");
}

/// A file of a daemon.
fn file(folder: &Path, number: u64) -> PathBuf {
    folder.join(name::of(number, Timestamp::UNIX_EPOCH))
}

#[test]
fn what_cannot_be_read_is_one_line_and_no_history() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    assert!(read(&path.join("none"), &boot()).expect("readable").is_none(), "nothing was recorded yet");
    assert!(read(path, &boot()).expect("readable").is_none());
    let mut daemon = Daemon::start(path, 100, Some(BOOT_ID), &[]);
    daemon.works();
    daemon.stop();
    let why = |bytes: &[u8]| {
        fs::write(file(path, 9), bytes).expect("a file");
        read(path, &boot()).err().unwrap_or_default()
    };
    let newer = r#"{"begin":{"kfd_trace_recording":99,"unlike":[]}}"#;
    let newer = crate::recording::compress(newer.as_bytes()).expect("a frame");
    assert!(why(&newer).contains("version 99 of the format"), "{}", why(&newer));
    assert!(why(b"something else").contains("no recording"), "{}", why(b"something else"));
    assert!(!why(b"x").contains('\n'));
    assert_eq!(why(b""), "", "it was begun, and nothing written yet");
    assert_eq!(past(path).files, 2 + 1);
    let large = fs::File::create(file(path, 9)).expect("a file");
    large.set_len(LARGEST + 1).expect("a length");
    assert!(read(path, &boot()).unwrap_err().contains("more than is read"));
    let stopped = AtomicBool::new(true);
    fs::remove_file(file(path, 9)).expect("it is there");
    assert!(Past::read(path, &boot(), MOST_FILES, &stopped).unwrap_err().contains("too long"));
}

#[test]
fn only_the_newest_files_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start(folder.path(), 100, Some(BOOT_ID), &[]);
    daemon.apply(1, 700, seen(false));
    for queue_id in 0..2 * u32::try_from(MOST_FILES).expect("few") {
        daemon.apply(1, 700, create(queue_id));
        daemon.begin();
    }
    daemon.stop();
    let past = past(folder.path());
    assert!(past.left_out.is_some() && past.files == MOST_FILES, "{}", past.files);
    let first = found(folder.path()).expect("files").len() - MOST_FILES;
    assert!(past.since_unix_ns > WALL + 100 + 10 * i64::try_from(first).expect("few"));
    // What existed at the begin of the first one is known, with its time.
    assert!(names(&past.history).contains(&("queue_create", Some(700), 120)));
    // The sizes of files count, too.
    let holes = found(folder.path()).expect("files");
    let before = &holes[holes.len() - 2].path;
    OpenOptions::new().write(true).open(before).expect("it").set_len(BYTES).expect("a length");
    assert_eq!(read(folder.path(), &boot()).expect("readable").expect("it").files, 1);
}

/// Recordings of earlier programs are read: the first one had no folder, and a copy of its file there is read as any other.
const FROZEN: [&str; 2] = [
    include_str!("../../../../tests/golden/recording-1-as-of-0.1.0.jsonl"),
    include_str!("../../../../tests/golden/recording-2-without-boot-id.jsonl"),
];

#[test]
fn recordings_of_earlier_programs_are_read() {
    for text in FROZEN {
        let folder = tempfile::tempdir().expect("a folder");
        let block = crate::recording::compress(text.as_bytes()).expect("a block");
        fs::write(file(folder.path(), 1), block).expect("a file");
        let began_unix_ns = WALL - 5_000_000;
        let past = read(folder.path(), &Boot { began_unix_ns, ..boot() }).expect("readable").expect("a past");
        let names: Vec<_> = names(&past.history).into_iter().map(|(name, ..)| name).collect();
        for name in ["process_seen", "queue_create", "queue_destroy", "evict", "vm_fault", "driver_unloaded"]
        {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }
}

#[test]
fn changes_that_were_lost_are_a_gap_of_that_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let begin = |at_ns, number, lost| {
        let part = crate::recording::Part { run_unix_ns: 1, number, lost };
        let begin = Begin::new(Machine::default(), StateLimits::default()).of_part(part);
        let boot_id = Some(BOOT_ID.to_owned());
        Item::Begin(Begin { at_ns, unix_ns: WALL, boot_id, ..begin })
    };
    let event = |at_ns| Item::Input(Input::Event(event(at_ns, at_ns, 700, seen(false))));
    let first = [begin(10, 1, 0), Item::Existing, event(20), Item::Close { at_ns: 30, why: Closed::Gap }];
    let second = [begin(40, 2, 7), Item::Existing, event(50)];
    fs::write(file(folder.path(), 1), compressed(&first)).expect("a file");
    fs::write(file(folder.path(), 2), compressed(&second)).expect("a file");
    let past = past(folder.path());
    let gaps: Vec<_> = entries(&past.history)
        .iter()
        .filter_map(|entry| match &entry.what {
            What::Gap(gap) => Some(*gap),
            _ => None,
        })
        .collect();
    assert_eq!(gaps, [Gap { lasted_ns: Some(10), lost_changes: Some(7) }]);
    assert!(!past.history.was_traced(WALL + 35), "the end of each file counts");
}

mod incomplete;
