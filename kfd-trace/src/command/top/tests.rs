mod watched;

use super::player::Player;
use super::recorded::{Tape, jumped};
use super::screen::is_input;
use super::*;
use crate::model::event::Body;
use crate::model::verdict::Sight;
use crate::output::top::tests::moments;
use crate::output::top::{Controls, View};
use crate::recording::{Begin, Item, Machine, compress};
use crate::runtime::stderr::say;
use crate::state::Input;
use crate::state::samples::{create, event, seen};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Size;
use std::io::Write as _;

const SIZE: Size = Size { width: 80, height: 24 };

fn options(sample: Duration) -> TopOptions {
    TopOptions {
        roots: Roots::under("/nowhere".as_ref()),
        interval: Duration::from_secs(1),
        colour: false,
        ring_bytes: 0,
        sample,
        choice: Choice::default(),
    }
}

fn having_a_queue(options: &TopOptions) -> Top<'_> {
    let mut top = Top::new(options);
    for body in [seen(false), create(3)] {
        let event = event(10, 1, 700, body);
        history::records(&mut top.tracer, &mut top.history, &[Ok(event)]);
    }
    top
}

#[test]
fn a_moment_is_of_the_tracer_as_it_is() {
    let options = options(Duration::from_secs(2));
    let moment = having_a_queue(&options).moment();
    assert_eq!((moment.snapshot.queues().count(), moment.recent.len()), (1, 2));
    assert_eq!((moment.why_not, moment.sample), (None, Some(Duration::from_secs(2))));
    assert_eq!(moment.lost, Some([].into()));
}

#[test]
fn an_unloaded_driver_is_shown_and_waited_for() {
    let options = options(Duration::ZERO);
    let mut top = having_a_queue(&options);
    drop(top.driver_unloaded());
    let moment = top.moment();
    assert_eq!(moment.snapshot.live().count(), 0);
    assert!(
        moment.why_not.is_some_and(|why| why.contains("was unloaded") && why.ends_with("waiting for it"))
    );
    let newest = moment.recent.last().map(crate::output::top::Recent::name);
    assert_eq!(newest, Some("driver_unloaded"));
    let again = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(top.attach_again());
    assert!(again.is_ok_and(|follow| follow.is_none()), "it is not there");
}

#[test]
fn what_the_mouse_passes_over_is_not_an_input() {
    let mouse = |kind| Event::Mouse(MouseEvent { kind, column: 1, row: 1, modifiers: KeyModifiers::NONE });
    let left = MouseButton::Left;
    let kinds = [MouseEventKind::Moved, MouseEventKind::Drag(left), MouseEventKind::Up(left)];
    assert_eq!(kinds.map(|kind| is_input(&mouse(kind))), [false; 3]);
    let kinds = [MouseEventKind::ScrollUp, MouseEventKind::ScrollDown, MouseEventKind::Down(left)];
    assert_eq!(kinds.map(|kind| is_input(&mouse(kind))), [true; 3]);
    let key = Event::Key(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE));
    assert!(is_input(&key) && is_input(&Event::Resize(80, 24)));
}

fn press(player: &mut Player, c: char) -> bool {
    player.press(&Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)), SIZE)
}

fn shown(player: &mut Player) -> View {
    player.view(SIZE).expect("there was a moment")
}

#[test]
fn a_pause_keeps_the_screen_and_what_comes_meanwhile_is_shown_after_it() {
    let options = options(Duration::ZERO);
    let mut top = having_a_queue(&options);
    let mut player = Player::default();
    assert!(
        player.view(SIZE).is_none() && press(&mut player, 'p') && !press(&mut player, 'q'),
        "nothing is shown yet"
    );
    player.take(top.moment());
    let before = shown(&mut player);
    assert!(press(&mut player, 'p'));
    let paused = shown(&mut player);
    history::records(&mut top.tracer, &mut top.history, &[Ok(event(20, 1, 700, Body::ProcessRelease))]);
    let moment = top.moment();
    player.take(moment.clone());
    assert_eq!(shown(&mut player), paused);
    assert!(press(&mut player, 'p'));
    let mut fresh = Player::default();
    fresh.take(moment);
    let after = shown(&mut player);
    assert_ne!(after, before);
    assert_eq!(after, shown(&mut fresh), "there is no GPU, and so no sparkline of the past");
    assert!(!press(&mut player, 'q'));
}

const S: u64 = 1_000_000_000;

/// Of a process with two queues, of which one ends: at 10, 11, 12 and 30 s after its begin at 5 s.
fn recording(end: bool) -> tempfile::NamedTempFile {
    let machine = Machine { host: "node7".to_owned(), ..Machine::default() };
    let begin = Begin { at_ns: 5 * S, ..Begin::new(machine, StateLimits::default()) };
    let input = |at: u64, body| Item::Input(Input::Event(event((5 + at) * S, 1, 700, body)));
    let mut items = vec![
        Item::Begin(begin),
        Item::Clock { wall_ns: 1_790_000_000_000_000_000, boot_ns: 0 },
        Item::Sight { at_ns: 5 * S, sight: Sight { traces: true, queues: true, ..Sight::default() } },
        Item::Lost { at_ns: 5 * S, lost: Some([].into()) },
        Item::Existing,
        input(10, seen(false)),
        input(11, create(3)),
        input(12, create(4)),
        input(30, Body::QueueDestroy { queue_id: 3, gpu_id: None, last: None }),
    ];
    if end {
        items.push(Item::End { at_ns: 36 * S, text: String::new(), json: String::new() });
    }
    written(&items)
}

fn written(items: &[Item]) -> tempfile::NamedTempFile {
    let lines = items.iter().map(|item| serde_json::to_string(item).unwrap() + "\n");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&compress(lines.collect::<String>().as_bytes()).unwrap()).unwrap();
    file
}

/// Goes there.
fn at(tape: &mut Tape, after: u64) -> Moment {
    while !tape.is_at((5 + after) * S) {
        match tape.is_starved() {
            true => {
                let slice = tape.slices.blocking_recv();
                tape.add(slice);
            }
            false => tape.take((5 + after) * S),
        }
    }
    tape.moment(Controls::default())
}

fn opened(file: &tempfile::NamedTempFile) -> Tape {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(Tape::open(file.path())).expect("a recording")
}

#[test]
fn a_recording_is_at_each_time_what_it_was() {
    let file = recording(true);
    let mut tape = opened(&file);
    let queues = |moment: &Moment| moment.snapshot.queues().filter(|(_, queue)| queue.end.is_none()).count();
    let before = at(&mut tape, 0);
    assert_eq!((queues(&before), before.recent.len(), before.now_ns), (0, 0, 5 * S));
    assert_eq!((queues(&at(&mut tape, 10)), queues(&at(&mut tape, 11))), (0, 1));
    let later = at(&mut tape, 20);
    assert_eq!(
        (queues(&later), later.recent.len(), later.now_ns),
        (2, 3, 25 * S),
        "time goes on without events"
    );
    assert_eq!(
        later.played.as_ref().map(|played| (played.after_ns, played.over.clone())),
        Some((20 * S, None))
    );
    assert!(later.sight.queues && later.lost == Some([].into()));
    let last = at(&mut tape, 100);
    let played = last.played.as_ref().expect("it is played");
    assert_eq!((queues(&last), last.now_ns, played.over.as_deref()), (1, 36 * S, Some("its end")));
    assert_eq!(played.host, "node7");
}

#[test]
fn a_time_at_which_nothing_was_traced_is_no_empty_machine() {
    let begin = Begin { at_ns: 5 * S, ..Begin::new(Machine::default(), StateLimits::default()) };
    let sight = |at: u64, traces| Item::Sight {
        at_ns: (5 + at) * S,
        sight: Sight { traces, queues: traces, ..Sight::default() },
    };
    let loads = |at: u64, loaded| Item::Loads { loaded, at_ns: (5 + at) * S, loads: 2 };
    let unloaded = Item::Input(Input::Unloaded { at_ns: 25 * S });
    let end = Item::End { at_ns: 55 * S, text: String::new(), json: String::new() };
    let attached = [Item::Begin(begin), sight(10, true), Item::Existing];
    let again =
        [unloaded, loads(20, false), sight(20, false), loads(30, true), sight(40, true), Item::Existing];
    let file = written(&[&attached[..], &again, &[end]].concat());
    let mut tape = opened(&file);
    let why_not = [1, 15, 21, 31, 45].map(|after| at(&mut tape, after).why_not);
    let (early, unloaded) = ("the probes were not attached yet", "the driver was unloaded");
    let expected = [Some(early), None, Some(unloaded), Some(early), None];
    assert_eq!(why_not, expected.map(|why| why.map(str::to_owned)));
}

#[test]
fn a_recording_that_was_cut_says_so_at_its_end() {
    let file = recording(false);
    let last = at(&mut opened(&file), 100);
    assert_eq!(
        (last.now_ns, last.played.and_then(|played| played.over)),
        (35 * S, Some("it was cut here".to_owned()))
    );
}

#[test]
fn a_jump_stays_within_the_recording_and_the_time_of_the_begin_is_its_own() {
    assert_eq!(jumped(5 * S, 40 * S, -2), 20 * S);
    assert_eq!((jumped(5 * S, 12 * S, -1), jumped(5 * S, 12 * S, 3)), (5 * S, 42 * S));
    let tape = opened(&recording(true));
    let mut past = opened(&recording(true));
    at(&mut past, 11);
    assert!(past.is_past(15 * S) && !past.is_past(16 * S));
    // On its way to a later time it has taken what comes before that.
    past.take(100 * S);
    assert!(past.is_past(20 * S), "{}", past.is_at(20 * S));
    let time = |text: &str| tape.time(text.parse().expect("a time"));
    assert_eq!((time("+90s"), time("1970-01-01T00:00:07Z")), (Ok(95 * S), Ok(12 * S)));
    assert_eq!(time("1969-12-31T23:59:59Z"), Err("it begins later"));
}

#[test]
fn a_recording_that_is_paused_still_jumps_and_back_the_sparklines_begin_anew() {
    let mut player = Player::default();
    let file = recording(true);
    let mut tape = opened(&file);
    player.take(at(&mut tape, 20));
    assert!(press(&mut player, 'p') && press(&mut player, '+'));
    let _ = player.press(&Event::Key(KeyEvent::new(KeyCode::Left, KeyModifiers::NONE)), SIZE);
    assert_eq!(player.controls(), Controls { paused: true, speed: 2, jumps: -1 });
    let paused = shown(&mut player);
    player.take(at(&mut opened(&file), 10));
    assert_ne!(shown(&mut player), paused);
}

/// For viewing: `SHOW_TOP=1 cargo test -p kfd-trace --lib -- --ignored --nocapture sample_screen`, on a terminal. With
/// SHOW_TOP=panic it panics after a while.
#[tokio::test]
#[ignore = "for viewing"]
async fn sample_screen() {
    let Some(how) = std::env::var_os("SHOW_TOP") else { return };
    crate::runtime::terminal::check("top").unwrap();
    let panics = how == "panic";
    let mut signals = Signals::new().unwrap();
    let mut screen = screen::Screen::open(std::env::var_os("NO_COLOR").is_none(), "nothing").unwrap();
    let mut due = interval(Duration::from_secs(1));
    for (number, moment) in moments().enumerate() {
        assert!(!panics || number < 3, "as requested");
        screen.show(moment);
        say("a message while the screen is taken");
        tokio::select! {
            _ = due.tick() => {}
            ended = screen.ended() => {
                ended.unwrap();
                break;
            }
            () = signals.any() => break,
        }
    }
    screen.close().await;
}
