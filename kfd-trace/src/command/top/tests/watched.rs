//! What a daemon serves, on the screen.

use super::super::screen::await_first;
use super::super::watched::{Last, WatchOptions, Watcher, moment, pause, with_other};
use super::{press, shown};
use crate::command::top::player::Player;
use crate::output::reported::{self, Events, Status};
use crate::output::top::tests::{attached, moments, screen};
use crate::output::top::{Moment, Ui, Watched};
use crate::remote::tests::site;
use crate::remote::{Access, Client, Documents, Failure, Lists, Target};
use crate::runtime::exit::Stop;
use crate::runtime::signals::Signals;
use crate::runtime::signals::tests::TURN;
use crate::serve::router::router;
use crate::serve::web::tests::harness::Server;
use jiff::tz::TimeZone;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const WIDE: (u16, u16) = (132, 40);

fn watched() -> Watched {
    Watched { place: "node1:20200".to_owned(), insecure: false, silence: None }
}

/// A moment, through the API.
fn through_the_api(original: &Moment) -> Moment {
    let served = crate::output::reported::tests::Served::of(original, &attached());
    let status: Status = reported::read(served.status.as_bytes()).expect("status");
    let events: Events = reported::read(served.events.as_bytes()).expect("events");
    let lists = match &original.why_not {
        Some(why) => Err(why.clone()),
        None => Ok(Lists {
            queues: reported::read(served.queues.as_bytes()).expect("queues"),
            processes: reported::read(served.processes.as_bytes()).expect("processes"),
            gpus: reported::read(served.gpus.as_bytes()).expect("GPUs"),
        }),
    };
    let shown = events.reported().into_iter().map(Arc::new).collect();
    moment(Documents { status, events, lists }, shown, TimeZone::UTC, watched())
}

#[test]
fn the_screen_is_that_of_the_node_itself() {
    let original = moments().next().expect("one");
    let expected = screen(&original, &Ui::default(), WIDE);
    assert!(
        expected.contains("evicted 3s")
            && expected.contains("evicted 0ms")
            && expected.contains("compute_aql"),
        "{expected}"
    );
    // For how long is not in the API.
    let expected = expected
        .replace("evicted 3s", "evicted   ")
        .replace("evicted 0ms", "evicted    ")
        .replace("kfd-trace top  ", "kfd-trace top node1:20200  ");
    let text = screen(&through_the_api(&original), &Ui::default(), WIDE);
    let trimmed = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    for (line, expected) in trimmed(&text).iter().zip(&trimmed(&expected)) {
        assert_eq!(line, expected);
    }
}

#[test]
fn a_daemon_that_traces_nothing_shows_why_and_what_was() {
    let original = moments().next().expect("one");
    let waiting = Moment { why_not: Some("the driver was unloaded".to_owned()), ..original };
    let text = screen(&through_the_api(&waiting), &Ui::default(), WIDE);
    assert!(
        text.contains("nothing is traced: the driver was unloaded") && text.contains("vm_fault"),
        "{text}"
    );
}

#[test]
fn without_an_answer_the_last_one_is_shown_as_old() {
    let first = through_the_api(&moments().next().expect("one"));
    let begun = Instant::now();
    let after = |seconds| begun + Duration::from_secs(seconds);
    let mut last = Last::new(first.clone(), Duration::from_secs(3), begun);
    let lines = |last: &Last, at| screen(&last.moment(at), &Ui::default(), WIDE);
    let fresh = lines(&last, after(2));
    assert!(!fresh.contains("OLD") && !fresh.contains("no answer"), "{fresh}");
    let old = lines(&last, after(12));
    assert!(old.contains("  OLD  ") && old.contains("no answer for 12s;"), "{old}");
    assert!(old.contains("train"), "the data stays: {old}");
    last.take(Err(Failure::Refused), Duration::from_secs(3), after(1));
    let refused = lines(&last, after(2));
    assert!(
        refused.contains("  OLD  ") && refused.contains("no answer for 2s: it refuses the connection"),
        "{refused}"
    );
    last.take(Ok(first), Duration::from_secs(3), after(13));
    assert_eq!(lines(&last, after(14)), fresh);
}

#[test]
fn who_takes_long_to_read_is_asked_less_often() {
    let ms = Duration::from_millis;
    assert_eq!(pause(ms(1_000), ms(40)), ms(1_000));
    assert_eq!(pause(ms(1_000), ms(100)), ms(1_900), "a twentieth of two seconds");
    assert_eq!(pause(ms(1_000), ms(9_000)), ms(10_000));
    assert_eq!(pause(ms(60_000), ms(9_000)), ms(60_000));
}

#[test]
fn a_pause_keeps_the_screen_of_a_daemon() {
    let first = through_the_api(&moments().next().expect("one"));
    let begun = Instant::now();
    let mut last = Last::new(first.clone(), Duration::from_secs(3), begun);
    let mut player = Player::default();
    player.take(last.moment(begun));
    assert!(press(&mut player, 'p'));
    let paused = shown(&mut player);
    last.take(Err(Failure::Refused), Duration::from_secs(3), begun);
    for _ in 0..3 {
        player.take(last.moment(begun + Duration::from_secs(9)));
    }
    assert_eq!(shown(&mut player), paused);
    assert!(press(&mut player, 'p'));
    let mut other = Player::default();
    other.take(first);
    for _ in 0..3 {
        other.take(last.moment(begun + Duration::from_secs(9)));
    }
    assert_eq!(shown(&mut player), shown(&mut other));
    assert_ne!(shown(&mut player), paused);
}

#[test]
fn that_nobody_was_verified_stays_on_the_screen() {
    let first = through_the_api(&moments().next().expect("one"));
    let insecure = Moment { watched: Some(Watched { insecure: true, ..watched() }), ..first };
    let text = screen(&insecure, &Ui::default(), WIDE);
    assert!(text.contains("not verified who answers (--insecure)"), "{text}");
}

#[tokio::test]
async fn a_running_daemon_is_watched_and_its_events_stay_the_same() {
    let server = Server::serving(router(Arc::new(site(None))), "", &[]);
    let target = Target::parse(&server.addresses[0].to_string()).expect("an address").0;
    let options = WatchOptions {
        access: Access { target, ..Access::here() },
        interval: Duration::from_secs(1),
        colour: false,
    };
    let mut watcher = Watcher::new(Client::new(options.access.clone()));
    let one = watcher.moment().await.expect("an answer");
    let other = watcher.moment().await.expect("an answer");
    assert_eq!((one.snapshot.queues().count(), one.recent.len() > 2), (7, true));
    let places =
        |moment: &Moment| moment.recent.iter().map(crate::output::top::Recent::address).collect::<Vec<_>>();
    assert_eq!(places(&one), places(&other), "a row that is selected stays so");
    assert_eq!(one.watched.map(|watched| watched.place), Some(server.addresses[0].to_string()));
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_the_first_answer() {
    let _turn = TURN.lock().await;
    // It accepts connections, and answers none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = Target::parse(&silent.local_addr().expect("an address").to_string()).expect("an address").0;
    let access = Access { target, max_time: Duration::from_secs(30), ..Access::here() };
    let mut signals = Signals::of_a_terminal().expect("signals");
    let mut watcher = Watcher::new(Client::new(access));
    let first = async { Ok(watcher.moment().await) };
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT).expect("raised");
    // `None`: no answer, which is one also after the whole time.
    assert!(matches!(await_first(first, "", false, &mut signals).await, Ok(None)));
}

#[test]
fn why_the_daemon_of_this_machine_is_not_shown_is_named_unless_there_is_none() {
    let target = Target::parse("127.0.0.1:20200").expect("an address").0;
    let line = |failure: Option<&Failure>| {
        let stop = Stop { code: 1, line: "no privilege".to_owned() };
        with_other(stop, failure.map(|failure| (&target, failure))).line
    };
    let plain = "no privilege; or show a running daemon's by --url URL";
    assert_eq!((line(None).as_str(), line(Some(&Failure::Refused)).as_str()), (plain, plain));
    let refused = line(Some(&Failure::Status(401, None)));
    assert_eq!(refused, format!("{plain} (http://127.0.0.1:20200: it refuses the login (401))"));
}
