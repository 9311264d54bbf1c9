use super::*;
use crate::model::event::{Event, ProcessId};
use crate::recording::folder::files::found;
use crate::recording::samples::begin;
use crate::recording::{Folder, Line, ReadError, Reader, Replay};
use crate::state::samples::{create, destroy, event, seen};
use crate::state::{Image, Process, State, StateLimits};
use crate::text::clock::Clock;
use jiff::tz::TimeZone;
use std::path::Path;

const UNIX_NS: i64 = 1_790_000_000_000_000_000;

/// A tracer, as far as its recording knows it.
struct Daemon {
    state: State,
    writer: Writer,
    now_ns: u64,
    /// What was shown, and the state when each file began.
    shown: Vec<Event>,
    begins: Vec<(Image, Vec<Process>)>,
}

fn limits(folder: &Path) -> FolderLimits {
    let max_age = Duration::from_secs(3600);
    FolderLimits { folder: folder.to_owned(), max_bytes: 1 << 20, max_age, file_bytes: 2_000 }
}

impl Daemon {
    fn start(limits: &FolderLimits, run_unix_ns: i64) -> Self {
        let mut state = State::new(StateLimits::default());
        state.start_tape();
        let writer = Writer::new(limits.clone(), run_unix_ns, Arc::default());
        let mut daemon = Daemon { state, writer, now_ns: 100, shown: Vec::new(), begins: Vec::new() };
        daemon.apply(1, 700, seen(false));
        daemon.begin();
        daemon
    }

    fn apply(&mut self, process: u64, tgid: u32, body: crate::model::event::Body) {
        self.now_ns += 10;
        let event = event(self.now_ns, process, tgid, body);
        self.state.apply(&event);
        self.shown.push(event);
    }

    fn save(&mut self) {
        let items = self.state.take_tape().into_iter().map(Item::Input).collect();
        self.writer.take(Message::Items(items));
        let flushed = self.writer.flush();
        self.writer.check(flushed);
        if self.writer.shared.wants.swap(false, Relaxed) {
            self.begin();
        }
    }

    /// A file begins.
    fn begin(&mut self) {
        self.state.take_tape();
        let unix_ns = UNIX_NS + i64::try_from(self.now_ns).expect("a time");
        let (image, rows) = self.state.image();
        self.begins.push((image.clone(), rows.clone()));
        let limits = self.state.limits();
        let mut items = vec![
            Item::Begin(crate::recording::Begin { at_ns: self.now_ns, unix_ns, limits, ..begin() }),
            Item::Clock { wall_ns: UNIX_NS, boot_ns: 0 },
            Item::State(Box::new(image)),
        ];
        items.extend(rows.into_iter().map(|row| Item::Row(Box::new(row))));
        items.push(Item::Existing);
        self.writer.take(Message::Begin(items));
    }

    /// Many lives, with one that outlives them all.
    fn works(&mut self, turns: u32) {
        self.apply(1, 700, create(3));
        for turn in 0..turns {
            let id = 100 + turn;
            self.apply(u64::from(id), id, seen(false));
            self.apply(u64::from(id), id, create(7));
            self.apply(1, 700, create(8));
            self.apply(1, 700, destroy(8));
            if turn % 2 == 0 {
                self.apply(u64::from(id), id, crate::model::event::Body::ProcessRelease);
            }
            self.save();
        }
    }

    fn stop(&mut self) {
        self.writer.take(Message::End { at_ns: self.now_ns + 1 });
    }
}

/// The events and gaps that are shown, and the state at the end.
fn played(items: impl Iterator<Item = Result<Item, ReadError>>) -> (Vec<String>, State) {
    let mut items = items.map(|item| item.expect("an item"));
    let Some(Item::Begin(begin)) = items.next() else { panic!("no begin") };
    let mut replay = Replay::new(&begin, Clock { mono_to_wall_ns: 0, zone: TimeZone::UTC });
    let mut lines = Vec::new();
    let show = &mut |_: &Replay, line: Line<'_>| {
        lines.push(match line {
            Line::Event(event, _) => format!("{event:?}"),
            Line::Gap { gap, .. } => format!("gap {:?}", gap.lost_changes),
            Line::Loads { .. } => "loads".to_owned(),
        });
        Ok::<(), ()>(())
    };
    replay.begin(&begin, show).expect("shown");
    items.try_for_each(|item| replay.take(item, show)).expect("shown");
    replay.settle(show).expect("shown");
    (lines, replay.state)
}

fn read(path: &Path) -> impl Iterator<Item = Result<Item, ReadError>> {
    Reader::new(io::BufReader::new(File::open(path).expect("a file")))
}

#[test]
fn each_file_is_read_alone_and_all_of_them_as_one() {
    let root = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start(&limits(root.path()), 5);
    daemon.works(200);
    daemon.stop();
    let files = found(root.path()).expect("files");
    assert!(files.len() > 3, "{}", files.len());
    assert_eq!(files.len(), daemon.begins.len());
    for (index, file) in files.iter().enumerate() {
        assert!(index + 1 == files.len() || file.bytes > 2_000, "{}", file.bytes);
        let (_, state) = played(read(&file.path));
        let expected = daemon.begins.get(index + 1).cloned().unwrap_or_else(|| daemon.state.image());
        assert_eq!(state.image(), expected, "at the end of file {index}");
        let begins =
            read(&file.path).take_while(|item| !matches!(item, Ok(Item::Input(_) | Item::Close { .. })));
        assert_eq!(played(begins).1.image(), daemon.begins[index], "at the begin of file {index}");
    }
    let (lines, state) = played(Folder::open(root.path()).expect("a folder").items(None));
    assert_eq!(state.image(), daemon.state.image());
    let shown: Vec<String> = daemon.shown.iter().skip(1).map(|event| format!("{event:?}")).collect();
    assert_eq!(lines[1..], shown, "the first line is the process that existed, and no state is shown twice");
    // A time in the last file: its queue of the first file has the time of its birth.
    let items = Folder::open(root.path()).expect("a folder").items(Some(i64::MAX));
    let (_, state) = played(items);
    let queue = &state.process(ProcessId(1).into()).expect("the row").queues[&3];
    assert_eq!(queue.born_ns, Some(120));
}

#[test]
fn the_folder_stays_below_its_size_and_older_runs_count() {
    let root = tempfile::tempdir().expect("a folder");
    let limits = FolderLimits { max_bytes: 30_000, ..limits(root.path()) };
    let mut largest = 0;
    for run in 0..3 {
        let mut daemon = Daemon::start(&limits, run);
        for _ in 0..40 {
            daemon.works(10);
            let bytes: u64 = found(root.path()).expect("files").iter().map(|file| file.bytes).sum();
            assert_eq!(daemon.writer.shared.figures().bytes, bytes);
            largest = largest.max(bytes);
        }
        assert_eq!(daemon.writer.shared.figures().lost, 0);
    }
    assert!((20_000..=30_000).contains(&largest), "{largest}");
}

#[test]
fn what_is_lost_is_counted_and_shown_where_it_is_missing() {
    let root = tempfile::tempdir().expect("a folder");
    let limits = limits(root.path());
    let mut daemon = Daemon::start(&limits, 5);
    daemon.works(2);
    let (before, files) = (daemon.shown.len(), found(root.path()).expect("files").len());
    daemon.writer.check(Err(io::Error::other("the disk")));
    assert!(!daemon.writer.shared.figures().writing);
    for id in 900..903 {
        daemon.apply(id, 900, seen(false));
    }
    daemon.save();
    assert_eq!(daemon.writer.shared.figures().lost, 3);
    assert_eq!(found(root.path()).expect("files").len(), files, "nothing is written before the next begin");
    daemon.begin();
    daemon.apply(1, 700, create(77));
    daemon.save();
    daemon.stop();
    assert!(daemon.writer.shared.figures().lost == 3 && daemon.writer.failed.is_none());
    let (lines, state) = played(Folder::open(root.path()).expect("a folder").items(None));
    assert_eq!(state.image(), daemon.state.image());
    let gap = lines.iter().position(|line| line == "gap Some(3)").expect("a gap");
    assert_eq!(gap, before, "after what was before, with the process that existed");
    let (lines, _) = played(read(&found(root.path()).expect("files").last().expect("one").path));
    assert_eq!(lines[0], "gap Some(3)", "the file shows it alone as well");
}

#[test]
fn a_daemon_that_was_killed_leaves_a_gap_of_unknown_size() {
    let root = tempfile::tempdir().expect("a folder");
    let mut killed = Daemon::start(&limits(root.path()), 5);
    killed.works(3);
    drop(killed);
    let mut daemon = Daemon::start(&limits(root.path()), 6);
    daemon.works(3);
    daemon.stop();
    let (lines, state) = played(Folder::open(root.path()).expect("a folder").items(None));
    assert_eq!(lines.iter().filter(|line| *line == "gap None").count(), 1);
    assert_eq!(state.image(), daemon.state.image(), "nothing of the one before");
}

#[test]
fn a_folder_that_cannot_be_made_is_tried_again() {
    let root = tempfile::tempdir().expect("a folder");
    let limits = limits(&root.path().join("file/folder"));
    fs::write(root.path().join("file"), "").expect("a file");
    let mut daemon = Daemon::start(&limits, 5);
    daemon.works(1);
    assert!(daemon.writer.failed.is_some() && daemon.writer.shared.figures().lost > 0);
    fs::remove_file(root.path().join("file")).expect("no file");
    daemon.begin();
    daemon.works(1);
    assert!(daemon.writer.failed.is_none() && daemon.writer.shared.figures().writing);
}

#[test]
fn a_state_that_has_no_room_leaves_no_file() {
    let root = tempfile::tempdir().expect("a folder");
    let limits = FolderLimits { max_bytes: 100, ..limits(root.path()) };
    let daemon = Daemon::start(&limits, 5);
    assert!(daemon.writer.failed.is_some());
    assert_eq!(found(root.path()).expect("files"), []);
}
