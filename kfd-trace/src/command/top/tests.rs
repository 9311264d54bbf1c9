use super::player::Player;
use super::screen::is_input;
use super::*;
use crate::model::event::Body;
use crate::output::top::View;
use crate::output::top::tests::moments;
use crate::state::samples::{create, event, seen};
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Size;

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
    assert_eq!((moment.why_not, moment.sample), (None, Duration::from_secs(2)));
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
    let newest = moment.recent.last().map(|entry| entry.name());
    assert_eq!(newest, Some("driver_unloaded"));
    assert!(top.attach_again().is_ok_and(|follow| follow.is_none()), "it is not there");
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
    assert!(player.view(SIZE).is_none() && press(&mut player, 'q'), "nothing is shown yet");
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

/// For viewing: `SHOW_TOP=1 cargo test -p kfd-trace --lib -- --ignored --nocapture sample_screen`, on a terminal. With
/// SHOW_TOP=panic it panics after a while.
#[tokio::test]
#[ignore = "for viewing"]
async fn sample_screen() {
    let Some(how) = std::env::var_os("SHOW_TOP") else { return };
    crate::runtime::terminal::check("top").unwrap();
    let panics = how == "panic";
    let mut signals = Signals::new().unwrap();
    let mut screen = Screen::open(std::env::var_os("NO_COLOR").is_none()).unwrap();
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
