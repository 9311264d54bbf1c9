use std::pin::pin;

use super::*;
use tokio::sync::oneshot::error::TryRecvError;

const FRESH: Duration = Duration::from_millis(500);

fn stays(leave: &mut oneshot::Receiver<()>) -> bool {
    leave.try_recv() == Err(TryRecvError::Empty)
}

fn two(tally: &Arc<WebTally>) -> Arc<Connections> {
    Connections::new(2, FRESH, Arc::clone(tally))
}

/// A time at which no connection is new any more.
async fn later() -> Instant {
    tokio::time::sleep(FRESH).await;
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn who_was_idle_for_longest_makes_room() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (first, mut first_leaves) = connections.take().await.unwrap();
    let (_second, mut second_leaves) = connections.take().await.unwrap();
    later().await;
    drop(first.work());
    let (_third, mut third_leaves) = connections.take().await.unwrap();
    assert!(stays(&mut first_leaves) && !stays(&mut second_leaves) && stays(&mut third_leaves));
    assert_eq!(tally.counts()[WebEvent::MadeRoom as usize], 1);
}

#[tokio::test(start_paused = true)]
async fn who_came_just_now_is_left_time_to_ask() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (first, mut first_leaves) = connections.take().await.unwrap();
    let (_second, mut second_leaves) = connections.take().await.unwrap();
    assert!(connections.try_take(Instant::now()).is_err_and(|full| full.0 == Some(Instant::now() + FRESH)));
    let begin = Instant::now();
    let (_third, mut third_leaves) = connections.take().await.unwrap();
    assert_eq!(begin.elapsed(), FRESH);
    assert!(!stays(&mut first_leaves) && stays(&mut second_leaves) && stays(&mut third_leaves));
    drop(first);
    assert_eq!(tally.counts()[WebEvent::Refused as usize], 0);
}

#[tokio::test(start_paused = true)]
async fn who_was_answered_makes_room_at_once() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (_first, mut first_leaves) = connections.take().await.unwrap();
    let (second, mut second_leaves) = connections.take().await.unwrap();
    drop(second.work());
    let begin = Instant::now();
    let _third = connections.take().await.unwrap();
    assert!(begin.elapsed().is_zero() && stays(&mut first_leaves) && !stays(&mut second_leaves));
}

#[tokio::test(start_paused = true)]
async fn who_is_being_answered_keeps_the_seat() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (first, mut first_leaves) = connections.take().await.unwrap();
    let work = (first.work(), first.work());
    let (second, mut second_leaves) = connections.take().await.unwrap();
    later().await;
    drop(work.0);
    let (third, _third_leaves) = connections.take().await.unwrap();
    assert!(stays(&mut first_leaves) && !stays(&mut second_leaves));
    let _third_works = third.work();
    let begin = Instant::now();
    assert!(connections.take().await.is_none());
    assert_eq!((begin.elapsed(), tally.counts()[WebEvent::Refused as usize]), (TIMEOUT, 1));
    // The connection that was closed for another does not free a slot a second time.
    drop(second);
    assert!(connections.try_take(later().await).is_err_and(|full| full.0.is_none()));
    drop((work.1, first));
    assert!(connections.take().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waits_has_the_first_seat_that_is_free() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (first, second) = (connections.take().await.unwrap(), connections.take().await.unwrap());
    let works = (first.0.work(), second.0.work());
    let mut waits = pin!(connections.take());
    let short = Duration::from_millis(1);
    assert!(tokio::time::timeout(short, waits.as_mut()).await.is_err());
    drop(works.1);
    let third = tokio::time::timeout(short, waits).await.unwrap().unwrap();
    let _third_works = third.0.work();
    let mut waits = pin!(connections.take());
    drop(second);
    // dropping a connection whose slot was given away frees none, dropping one that has a slot does
    assert!(tokio::time::timeout(short, waits.as_mut()).await.is_err());
    drop((works.0, first));
    assert!(tokio::time::timeout(short, waits).await.is_ok_and(|given| given.is_some()));
}
