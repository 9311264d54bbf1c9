use super::*;
use crate::command::replay::{self, ReplayOptions};
use crate::kernel::Roots;
use crate::model::event::{Body, ProcessSeen};
use crate::model::inventory::Listed;
use crate::output::{golden, samples};
use crate::runtime::exit::FAILED;
use crate::runtime::signals;
use crate::state::Source;
use crate::state::samples::{create, event, seen};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What was recorded.
fn source(file: &tempfile::NamedTempFile) -> replay::source::Source {
    replay::source::Source::Stream(Box::new(file.reopen().unwrap()))
}

/// The output.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options(root: &Path, kinds: &[Kind]) -> StreamOptions {
    StreamOptions {
        roots: Roots::under(root),
        pids: vec![],
        whose: super::Whose::default(),
        kinds: kinds.iter().copied().collect(),
        json: true,
        colour: false,
        summary_only: false,
        duration: None,
        ring_bytes: 0,
        choice: Choice::default(),
        sample: Duration::ZERO,
    }
}

/// Without probes.
fn begun(options: &StreamOptions) -> (Run<'_>, Page) {
    let tracer = Tracer::idle(&options.roots);
    let page = Page::default();
    let out = StdoutWriter::new(page.clone(), 1 << 20).unwrap();
    (
        Run {
            options,
            tracer,
            recording: None,
            targets: Targets::default(),
            waiting: Waiting::default(),
            looks: 0,
            stop_requested: false,
            out,
        },
        page,
    )
}

fn text(run: Run<'_>, page: &Page) -> String {
    run.out.finish(Duration::MAX).unwrap();
    String::from_utf8(page.0.lock().unwrap().clone()).unwrap()
}

fn lines(run: Run<'_>, page: &Page) -> Vec<Value> {
    let text = text(run, page);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn events_are_reported_in_the_time_that_the_clock_has_now() {
    let options = options(Path::new("/nowhere"), &[]);
    let (mut run, page) = begun(&options);
    // As after a sleep, or after the clock was set.
    run.tracer.clock.mono_to_wall_ns = 0;
    run.show(&mut vec![Ok(event(clock::mono_ns(), 1, 700, Body::Close))]).unwrap();
    let reported: jiff::Timestamp = lines(run, &page)[0]["ts"].as_str().unwrap().parse().unwrap();
    assert!(
        jiff::Timestamp::now().duration_since(reported).abs() < jiff::SignedDuration::from_mins(1),
        "{reported}"
    );
}

#[test]
fn the_going_of_the_driver_is_reported_after_all_that_ended_with_it() {
    let reported = |kinds| {
        let options = options(Path::new("/nowhere"), kinds);
        let (mut run, page) = begun(&options);
        run.tracer.state.apply(&event(10, 1, 700, seen(false)));
        run.tracer.state.apply(&event(11, 1, 700, create(3)));
        run.driver_unloaded().unwrap();
        let line = |line: Value| format!("{} {}", line["event"].as_str().unwrap(), line["cause"]);
        Vec::from_iter(lines(run, &page).into_iter().map(line))
    };
    let all = ["queue_destroy \"driver_unloaded\"", "process_release null", "driver_unloaded null"];
    assert_eq!(reported(&[]), all);
    assert_eq!(reported(&[Kind::Open]), all[2..], "whatever was requested");
}

/// A driver for which the kernel reports nothing by which it could be probed.
#[tokio::test]
async fn a_driver_that_cannot_be_traced_after_a_reload_ends_the_stream_with_its_summary() {
    let root = tempfile::tempdir().unwrap();
    for folder in ["sys/module/amdgpu", "sys/class/kfd"] {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    let options = options(root.path(), &[]);
    let (mut run, page) = begun(&options);
    run.tracer.state.apply(&event(10, 1, 700, Body::Open { errno: 0, comm: "train".into() }));
    let _turn = signals::tests::TURN.lock().await;
    let error = run.all(None, &mut Signals::new().unwrap()).await.unwrap_err();
    let stop = error.get_ref().and_then(|stop| stop.downcast_ref::<Stop>()).expect("why");
    assert_eq!(stop.code, FAILED);
    let events: Vec<_> = lines(run, &page).into_iter().map(|line| line["event"].clone()).collect();
    assert_eq!(events.last(), Some(&Value::from("summary")), "{events:?}");
}

fn replay_of(options: &StreamOptions) -> ReplayOptions {
    ReplayOptions {
        file: "-".into(),
        at: None,
        wide: false,
        summary_only: false,
        json: options.json,
        colour: options.colour,
        kinds: options.kinds.clone(),
        whose: options.whose.clone(),
    }
}

/// As where the reader of a pipe has seen enough.
#[test]
fn a_stream_that_ends_early_leaves_a_whole_recording() {
    let options = options(Path::new("/nowhere"), &[]);
    let (mut run, _) = begun(&options);
    let file = tempfile::NamedTempFile::new().unwrap();
    run.recording = Some(Recording::begin(file.reopen().unwrap(), &mut run.tracer, false).unwrap());
    run.begin().unwrap();
    run.end().unwrap();
    let mut again = Vec::new();
    let ended = replay::print(&replay_of(&options), source(&file), &mut again);
    assert!(matches!(ended, Ok(replay::source::Ended::Whole)));
    assert!(String::from_utf8(again).unwrap().contains("\"event\":\"summary\""));
}

/// Writing to it fails with ENOSPC (drivers/char/mem.c, write_full).
#[tokio::test]
async fn a_recording_without_space_ends_the_stream_with_its_summary_and_an_error() {
    let root = tempfile::tempdir().unwrap();
    let within = Some(Duration::from_mins(1));
    let options = StreamOptions { duration: within, ..options(root.path(), &[]) };
    let (mut run, page) = begun(&options);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    run.recording = Some(Recording::begin(full, &mut run.tracer, false).unwrap());
    let _turn = signals::tests::TURN.lock().await;
    let error = run.all(None, &mut Signals::new().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    let events: Vec<_> = lines(run, &page).into_iter().map(|line| line["event"].clone()).collect();
    assert_eq!(events, ["summary"]);
}

#[tokio::test]
async fn a_hangup_ends_the_stream_with_its_summary() {
    let root = tempfile::tempdir().unwrap();
    let options = StreamOptions { duration: Some(Duration::from_mins(1)), ..options(root.path(), &[]) };
    let (mut run, page) = begun(&options);
    let _turn = signals::tests::TURN.lock().await;
    signals::tests::hear_hangups();
    let mut signals = Signals::new().unwrap();
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).unwrap();
    run.all(None, &mut signals).await.unwrap();
    assert!(run.stop_requested);
    assert_eq!(lines(run, &page)[0]["event"], "summary");
}

/// What a run prints of each kind of event, of a reloaded driver and at its end, and what its recording replays.
fn printed_and_replayed(options: &StreamOptions) -> (String, String) {
    let (mut run, page) = begun(options);
    let file = tempfile::NamedTempFile::new().unwrap();
    let empty = file.reopen().unwrap();
    run.tracer.topology = samples::topology();
    run.recording = Some(Recording::begin(empty, &mut run.tracer, false).unwrap());
    run.tracer.state.adopt_process(5, &Listed { tgid: 900, ..Listed::default() }, Source::Sysfs);
    run.begin().unwrap();
    // As two batches: the wall clock is looked at before each.
    let all = golden::events();
    let (first, second) = all.split_at(7);
    run.show(&mut first.iter().cloned().map(Ok).collect()).unwrap();
    run.show(&mut second.iter().cloned().map(Ok).collect()).unwrap();
    run.driver_unloaded().unwrap();
    run.report_driver(json::Driver::Loaded).unwrap();
    run.begin().unwrap();
    // procfs has details of it, which come after its first event.
    let Body::ProcessSeen(own) = seen(false) else { panic!("not seen") };
    let own = Body::ProcessSeen(ProcessSeen { start_boottime_ns: None, ..own });
    run.show(&mut vec![Ok(event(clock::mono_ns(), 9, std::process::id(), own))]).unwrap();
    run.end().unwrap();
    let replayed = replay_of(options);
    let mut again = Vec::new();
    let ended = replay::print(&replayed, source(&file), &mut again);
    assert!(matches!(ended, Ok(replay::source::Ended::Whole)));
    (text(run, &page), String::from_utf8(again).unwrap())
}

#[test]
fn a_recording_is_replayed_line_by_line_as_the_stream_was() {
    // Without it, preemptions would not be recorded.
    let choice = Choice { runlists: true, ..Choice::default() };
    let all = StreamOptions { choice, ..options(Path::new("/"), &[]) };
    let of_train = Whose { comm: Some("train".to_owned()), ..Whose::default() };
    for options in [
        all.clone(),
        StreamOptions { json: false, kinds: [Kind::QueueCreate, Kind::Preempt].into(), ..all.clone() },
        StreamOptions { whose: of_train, ..all },
    ] {
        let (printed, replayed) = printed_and_replayed(&options);
        // The heading is the stream's own.
        let replayed = if options.json { &replayed } else { replayed.split_once('\n').unwrap().1 };
        let different = printed.lines().zip(replayed.lines()).find(|(live, again)| live != again);
        assert_eq!(different, None);
        assert_eq!(printed.len(), replayed.len());
        assert!(printed.lines().count() > 4, "{printed}");
    }
}
