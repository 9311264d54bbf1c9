use super::*;
use axum::body::to_bytes;
use hyper::body::Body as _;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const KIND: Kind = (Format::Text, Encoding::Identity);

fn slow(made: &Arc<AtomicUsize>) -> impl FnOnce() -> Result<String, String> + Send + 'static {
    let made = Arc::clone(made);
    move || {
        // Longer than it takes all others to ask.
        thread::sleep(Duration::from_millis(100));
        Ok(made.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

async fn text(body: Body) -> Result<String, axum::Error> {
    Ok(String::from_utf8(to_bytes(body, usize::MAX).await?.into()).expect("UTF-8"))
}

#[tokio::test]
async fn those_who_wait_share_one_that_was_begun_after_they_asked() {
    let (documents, made) = (Arc::new(Documents::default()), Arc::default());
    let ask = || {
        let (documents, make) = (Arc::clone(&documents), slow(&made));
        tokio::spawn(async move { text(documents.exposition(KIND, make).await.unwrap()).await.unwrap() })
    };
    let first = ask();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let rest: Vec<_> = (0..40).map(|_| ask()).collect();
    assert_eq!(first.await.unwrap(), "0");
    for other in rest {
        assert_eq!(other.await.unwrap(), "1", "not what was begun before it asked");
    }
    assert!(documents.waiting().last.is_empty(), "nobody waits for it any more");
    assert_eq!(ask().await.unwrap(), "2");
}

#[tokio::test]
async fn diagnoses_are_made_in_turn_and_no_other_document_waits_for_them() {
    let (documents, made) = (Arc::new(Documents::default()), Arc::default());
    let begin = Instant::now();
    let diagnoses: Vec<_> = (0..2)
        .map(|_| {
            let (documents, make) = (Arc::clone(&documents), slow(&made));
            tokio::spawn(async move { documents.doctor(Encoding::Identity, make).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let quick = || Ok::<_, String>("quick".to_owned());
    let other = documents.other(Encoding::Identity, quick).await.unwrap().unwrap();
    assert_eq!((text(other).await.unwrap().as_str(), made.load(Ordering::Relaxed)), ("quick", 0));
    for diagnosis in diagnoses {
        drop(diagnosis.await.unwrap().unwrap().unwrap());
    }
    assert!(made.load(Ordering::Relaxed) == 2 && begin.elapsed() >= Duration::from_millis(200));
}

/// A rendering is shared by those who accept the same, and by no others.
#[tokio::test]
async fn those_who_accept_something_else_get_their_own() {
    let (documents, made) = (Arc::new(Documents::default()), Arc::default());
    let kinds = [
        (Format::Text, Encoding::Identity),
        (Format::OpenMetrics, Encoding::Identity),
        (Format::Text, Encoding::Gzip),
    ];
    let ask = |kind| {
        let (documents, make) = (Arc::clone(&documents), slow(&made));
        tokio::spawn(async move {
            to_bytes(documents.exposition(kind, make).await.unwrap(), CHUNK).await.unwrap()
        })
    };
    let first = ask(KIND);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let rest: Vec<_> = kinds.iter().chain(&kinds).map(|kind| ask(*kind)).collect();
    let mut bodies = vec![first.await.unwrap()];
    for other in rest {
        bodies.push(other.await.unwrap());
    }
    assert_eq!(bodies[1..4], bodies[4..], "each is shared");
    assert_eq!((&bodies[1][..], &bodies[2][..]), (&b"1"[..], &b"2"[..]));
    assert_eq!(bodies[3][..2], [0x1f, 0x8b], "gzip");
    assert_eq!(made.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn who_asks_without_pause_waits_and_a_failure_is_passed_on() {
    let (documents, made) = (Arc::new(Documents::default()), Arc::default());
    drop(documents.exposition(KIND, slow(&made)).await.unwrap());
    let begin = Instant::now();
    assert_eq!(documents.exposition(KIND, || Err("no".to_owned())).await.unwrap_err(), "no");
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    assert!(documents.exposition(KIND, || panic!("on purpose")).await.is_err());
    let wrong = documents.other(Encoding::Identity, || Err::<String, u8>(3)).await.unwrap();
    assert_eq!(wrong.unwrap_err(), 3);
}

/// Clients that ask and go: what was begun for them is not joined by another.
#[tokio::test]
async fn who_gives_up_does_not_let_two_be_made_at_once() {
    let (documents, now) = (Arc::new(Documents::default()), Arc::new(AtomicUsize::new(0)));
    let (made, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let make = || {
        let (now, most, made) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&made));
        move || {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(60));
            now.fetch_sub(1, Ordering::Relaxed);
            made.fetch_add(1, Ordering::Relaxed);
            Ok::<_, String>(String::new())
        }
    };
    let soon = Duration::from_millis(5);
    for _ in 0..10 {
        assert!(tokio::time::timeout(soon, documents.exposition(KIND, make())).await.is_err());
    }
    assert!(documents.exposition(KIND, make()).await.is_ok());
    assert_eq!(
        (most.load(Ordering::Relaxed), made.load(Ordering::Relaxed)),
        (1, 2),
        "nobody waited for the others"
    );
    assert!(documents.waiting().count == 0 && documents.waiting().last.is_empty());
    for _ in 0..4 {
        assert!(tokio::time::timeout(soon, documents.other(Encoding::Identity, make())).await.is_err());
    }
    assert!(documents.other(Encoding::Identity, make()).await.is_ok());
    assert_eq!(most.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_document_is_sent_whole_whatever_its_length() {
    let documents = Documents::default();
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
        let body = documents
            .other(Encoding::Identity, move || Ok::<_, ()>("x".repeat(length)))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(body.size_hint().exact(), Some(length as u64));
        assert_eq!(text(body).await.unwrap().len(), length);
    }
}

#[tokio::test]
async fn what_nobody_reads_is_dropped_and_what_is_read_is_not() {
    let documents = Documents::default();
    let make = |length| documents.other(Encoding::Identity, move || Ok::<_, ()>("x".repeat(length)));
    let third = UNSENT / 3;
    let mut bodies = Vec::new();
    for _ in 0..3 {
        bodies.push(make(third).await.unwrap().unwrap());
    }
    let part = poll_fn(|context| Pin::new(&mut bodies[0]).poll_frame(context)).await;
    let length = part.unwrap().unwrap().into_data().unwrap().len();
    bodies.push(make(third).await.unwrap().unwrap());
    let mut read = Vec::new();
    for body in bodies {
        read.push(text(body).await.map(|text| text.len()).ok());
    }
    assert_eq!(read, [Some(third - length), None, Some(third), Some(third)]);
    // What was read takes no place; and one that is too large is sent alone.
    let (first, large) = (make(third).await.unwrap().unwrap(), make(2 * UNSENT).await.unwrap().unwrap());
    assert!(text(first).await.is_err());
    assert_eq!(text(large).await.unwrap().len(), 2 * UNSENT);
}
