//! Files that a killed daemon left, and damaged ones.

use super::*;

#[test]
fn a_daemon_that_was_killed_is_known_until_its_last_whole_block() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start(folder.path(), 100, Some(BOOT_ID), &[]);
    daemon.works();
    let until_ns = daemon.now_ns;
    let live = daemon.dies();
    let file = found(folder.path()).expect("files").pop().expect("one").path;
    OpenOptions::new()
        .append(true)
        .open(&file)
        .expect("it")
        .set_len(fs::metadata(&file).expect("it").len() + 1)
        .expect("as if a block was begun");
    let past = past(folder.path());
    assert_eq!((entries(&past.history), past.until_ns), (entries(&live), until_ns));
    assert!(!past.history.was_traced(WALL + 161));
}

#[test]
fn a_daemon_that_was_killed_before_its_initial_state_was_written_changes_nothing_of_what_was_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let begin = |at_ns| {
        let begin = Begin::new(Machine::default(), StateLimits::default());
        let unix_ns = WALL + i64::try_from(at_ns).expect("a time");
        Item::Begin(Begin { at_ns, unix_ns, boot_id: Some(BOOT_ID.to_owned()), ..begin })
    };
    let event = |at_ns, body| Item::Input(Input::Event(event(at_ns, 1, 700, body)));
    let first = [begin(10), Item::Existing, event(20, seen(false)), event(30, create(3))];
    let write = |number, items: &[Item]| {
        fs::write(file(folder.path(), number), compressed(items)).expect("a file");
    };
    write(1, &first);
    let known = |past: &Past| {
        let born = past.state.live().flat_map(|row| row.queues.values()).map(|queue| queue.born_ns);
        (names(&past.history), born.collect::<Vec<_>>(), past.until_ns)
    };
    let before = known(&past(folder.path()));
    assert_eq!((&before.1[..], before.2), (&[Some(30)][..], 30));
    for (number, at_ns) in [(2, 500), (3, 700)] {
        write(number, &[begin(at_ns)]);
        assert_eq!(known(&past(folder.path())), before, "{number}");
    }
    let newest = Past::read(folder.path(), &boot(), 1, &AtomicBool::new(false)).expect("readable");
    assert!(newest.is_none(), "it alone has no state");
    write(4, &[begin(900), Item::Existing]);
    let past = past(folder.path());
    let gap = Gap { lasted_ns: Some(900 - 30), lost_changes: None };
    assert_eq!(entries(&past.history)[before.0.len()].what, What::Gap(gap));
    assert!(!past.history.was_traced(WALL + 600) && past.history.was_traced(WALL + 29));
}

#[test]
fn an_older_file_that_cannot_be_read_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start(folder.path(), 100, Some(BOOT_ID), &[]);
    daemon.works();
    daemon.stop();
    let older = found(folder.path()).expect("files").remove(0).path;
    fs::write(&older, b"something else").expect("a file");
    let past = past(folder.path());
    let why = past.left_out.unwrap_or_default();
    assert!(why.contains(&older.display().to_string()) && why.contains("no recording"), "{why}");
    assert_eq!(past.files, 1);
}

#[test]
fn before_a_damaged_block_all_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start(folder.path(), 100, Some(BOOT_ID), &[]);
    daemon.works();
    daemon.stop();
    let last = found(folder.path()).expect("files").pop().expect("one").path;
    let mut bytes = fs::read(&last).expect("the file");
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    fs::write(&last, bytes).expect("the file");
    let past = past(folder.path());
    assert!(past.cut.as_deref().is_some_and(|why| why.contains("damaged")), "{:?}", past.cut);
    assert_eq!(names(&past.history).last(), Some(&("process_seen", Some(701), 130)));
}
