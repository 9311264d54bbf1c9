use super::*;
use std::net::Ipv4Addr;
use std::pin::pin;
use tokio::sync::oneshot::error::TryRecvError;

const FRESH: Duration = Duration::from_millis(500);

fn stays(leave: &mut oneshot::Receiver<()>) -> bool {
    leave.try_recv() == Err(TryRecvError::Empty)
}

fn two(tally: &Arc<WebTally>) -> Arc<Connections> {
    Connections::new(2, FRESH, Arc::clone(tally))
}

/// One of many clients.
fn from(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
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
    let (first, mut first_leaves) = connections.take(from(1)).await.unwrap();
    let (_second, mut second_leaves) = connections.take(from(2)).await.unwrap();
    later().await;
    drop(first.work());
    let (_third, mut third_leaves) = connections.take(from(3)).await.unwrap();
    assert!(stays(&mut first_leaves) && !stays(&mut second_leaves) && stays(&mut third_leaves));
    assert_eq!(tally.counts()[WebEvent::MadeRoom as usize], 1);
}

#[tokio::test(start_paused = true)]
async fn who_came_just_now_is_left_time_to_ask() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (first, mut first_leaves) = connections.take(from(4)).await.unwrap();
    let (_second, mut second_leaves) = connections.take(from(5)).await.unwrap();
    assert!(
        connections
            .try_take(from(99).into(), Instant::now())
            .is_err_and(|full| full.0 == Some(Instant::now() + FRESH))
    );
    let begin = Instant::now();
    let (_third, mut third_leaves) = connections.take(from(6)).await.unwrap();
    assert_eq!(begin.elapsed(), FRESH);
    assert!(!stays(&mut first_leaves) && stays(&mut second_leaves) && stays(&mut third_leaves));
    drop(first);
    assert_eq!(tally.counts()[WebEvent::Refused as usize], 0);
}

#[tokio::test(start_paused = true)]
async fn who_was_answered_makes_room_at_once() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (_first, mut first_leaves) = connections.take(from(7)).await.unwrap();
    let (second, mut second_leaves) = connections.take(from(8)).await.unwrap();
    drop(second.work());
    let begin = Instant::now();
    let _third = connections.take(from(9)).await.unwrap();
    assert!(begin.elapsed().is_zero() && stays(&mut first_leaves) && !stays(&mut second_leaves));
}

#[tokio::test(start_paused = true)]
async fn who_is_being_answered_keeps_the_seat() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (first, mut first_leaves) = connections.take(from(10)).await.unwrap();
    let work = (first.work(), first.work());
    let (second, mut second_leaves) = connections.take(from(11)).await.unwrap();
    later().await;
    drop(work.0);
    let (third, _third_leaves) = connections.take(from(12)).await.unwrap();
    assert!(stays(&mut first_leaves) && !stays(&mut second_leaves));
    let _third_works = third.work();
    let begin = Instant::now();
    assert!(connections.take(from(13)).await.is_none());
    assert_eq!((begin.elapsed(), tally.counts()[WebEvent::Refused as usize]), (TIMEOUT, 1));
    // The connection that was closed for another does not free a slot a second time.
    drop(second);
    assert!(connections.try_take(from(99).into(), later().await).is_err_and(|full| full.0.is_none()));
    drop((work.1, first));
    assert!(connections.take(from(14)).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waits_has_the_first_seat_that_is_free() {
    let tally = Arc::default();
    let connections = two(&tally);
    let (first, second) =
        (connections.take(from(15)).await.unwrap(), connections.take(from(16)).await.unwrap());
    let works = (first.0.work(), second.0.work());
    let mut waits = pin!(connections.take(from(17)));
    let short = Duration::from_millis(1);
    assert!(tokio::time::timeout(short, waits.as_mut()).await.is_err());
    drop(works.1);
    let third = tokio::time::timeout(short, waits).await.unwrap().unwrap();
    let _third_works = third.0.work();
    let mut waits = pin!(connections.take(from(18)));
    drop(second);
    // dropping a connection whose slot was given away frees none, dropping one that has a slot does
    assert!(tokio::time::timeout(short, waits.as_mut()).await.is_err());
    drop((works.0, first));
    assert!(tokio::time::timeout(short, waits).await.is_ok_and(|given| given.is_some()));
}

/// One that arrives every half millisecond and says nothing, another one in between.
#[tokio::test(start_paused = true)]
async fn an_address_that_crowds_the_door_keeps_no_other_waiting() {
    let tally = Arc::default();
    let connections = Connections::new(128, Duration::from_secs(1), Arc::clone(&tally));
    let mut crowd = Vec::new();
    let (_idle, mut idle_leaves) = connections.take(from(2)).await.unwrap();
    for round in 0..2_000 {
        crowd.push(connections.take(from(1)).await.unwrap());
        tokio::time::advance(Duration::from_micros(500)).await;
        if round % 400 == 0 {
            let begin = Instant::now();
            let (other, mut leaves) = connections.take(from(3)).await.unwrap();
            assert!(begin.elapsed().is_zero(), "{:?}", begin.elapsed());
            let work = other.work();
            assert!(stays(&mut leaves));
            drop(work);
        }
    }
    assert!(stays(&mut idle_leaves), "it is not of the crowd");
    assert!(tally.counts()[WebEvent::MadeRoom as usize] > 1_800);
    let left = crowd.iter_mut().map(|(_, leave)| stays(leave)).filter(|stays| *stays).count();
    assert!((100..128).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_has_a_moment_to_ask_too() {
    let tally = Arc::default();
    let connections = two(&tally);
    let _both = (connections.take(from(1)).await.unwrap(), connections.take(from(1)).await.unwrap());
    let begin = Instant::now();
    assert!(connections.take(from(1)).await.is_some());
    assert_eq!(begin.elapsed(), FRESH / 20);
}

#[test]
fn addresses_of_one_network_are_one_client() {
    let client = |text: &str| Client::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::9"));
    assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
    assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
    assert_ne!(client("10.0.0.2"), client("10.0.0.1"));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_keeps_all_at_work_makes_room_for_others() {
    let tally = Arc::default();
    let connections = two(&tally);
    let mut crowd = [connections.take(from(1)).await.unwrap(), connections.take(from(1)).await.unwrap()];
    let _works = [crowd[0].0.work(), crowd[1].0.work()];
    let begin = Instant::now();
    let (other, mut other_leaves) = connections.take(from(2)).await.unwrap();
    let _work = other.work();
    assert!(begin.elapsed().is_zero() && !stays(&mut crowd[0].1) && stays(&mut crowd[1].1));
    assert!(stays(&mut other_leaves));
    // Neither has more than its share now.
    assert!(connections.take(from(1)).await.is_none());
}

/// Where there are fewer descriptors than connections are allowed.
#[tokio::test(start_paused = true)]
async fn without_a_descriptor_who_was_idle_for_longest_makes_room() {
    let tally = Arc::default();
    let connections = two(&tally);
    assert!(!connections.make_room(), "there is none");
    let (first, mut first_leaves) = connections.take(from(1)).await.unwrap();
    assert!(!connections.make_room(), "it came just now");
    later().await;
    let work = first.work();
    assert!(!connections.make_room() && stays(&mut first_leaves), "it works");
    drop(work);
    assert!(connections.make_room() && !stays(&mut first_leaves));
    assert_eq!(tally.counts()[WebEvent::MadeRoom as usize], 1);
}
