use super::*;
use axum::body::to_bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

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
        tokio::spawn(async move { text(documents.exposition(make).await.unwrap()).await.unwrap() })
    };
    let first = ask();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let rest: Vec<_> = (0..40).map(|_| ask()).collect();
    assert_eq!(first.await.unwrap(), "0");
    for other in rest {
        assert_eq!(other.await.unwrap(), "1", "not what was begun before it asked");
    }
    assert!(documents.waiting().last.is_none(), "nobody waits for it any more");
    assert_eq!(ask().await.unwrap(), "2");
}

#[tokio::test]
async fn who_asks_without_pause_waits_and_a_failure_is_passed_on() {
    let (documents, made) = (Documents::default(), Arc::default());
    drop(documents.exposition(slow(&made)).await.unwrap());
    let begin = Instant::now();
    assert_eq!(documents.exposition(|| Err("no".to_owned())).await.unwrap_err(), "no");
    assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    assert!(documents.exposition(|| panic!("on purpose")).await.is_err());
    let wrong = documents.other(|| Err::<String, u8>(3)).await.unwrap();
    assert_eq!(wrong.unwrap_err(), 3);
}

#[tokio::test]
async fn one_that_gives_up_leaves_nothing_behind() {
    let (documents, made) = (Documents::default(), Arc::default());
    let gives_up = tokio::time::timeout(Duration::from_millis(20), documents.exposition(slow(&made)));
    assert!(gives_up.await.is_err());
    assert!(documents.waiting().count == 0 && documents.waiting().last.is_none());
    assert!(documents.exposition(slow(&made)).await.is_ok());
}

#[tokio::test]
async fn a_document_is_sent_whole_whatever_its_length() {
    let documents = Documents::default();
    for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
        let body = documents.other(move || Ok::<_, ()>("x".repeat(length))).await.unwrap().unwrap();
        assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(length as u64));
        assert_eq!(text(body).await.unwrap().len(), length);
    }
}

#[tokio::test]
async fn what_nobody_reads_is_dropped_oldest_first() {
    let documents = Documents::default();
    let make = |length| documents.other(move || Ok::<_, ()>("x".repeat(length)));
    let third = UNSENT / 3;
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(make(third).await.unwrap().unwrap());
    }
    let mut read = Vec::new();
    for body in bodies {
        read.push(text(body).await.map(|text| text.len()).ok());
    }
    assert_eq!(read, [None, Some(third), Some(third), Some(third)]);
    // What was read takes no place; and one that is too large is sent alone.
    let (first, large) = (make(third).await.unwrap().unwrap(), make(2 * UNSENT).await.unwrap().unwrap());
    assert!(text(first).await.is_err());
    assert_eq!(text(large).await.unwrap().len(), 2 * UNSENT);
}
