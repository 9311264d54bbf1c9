//! Bounds what the pages cost the web server: one document of each lane is made at a time, those who wait for the same one
//! share it, and what is made but not yet sent has a limit. What documents cost the tracer is bounded by
//! itself ([`super::budget`]).
//!
//! In: who answers, and a question. Out: a document, or why there is none. None is older than its request.

use super::negotiate::Encoding;
use super::question::{LANES, PageSource, Question};
use crate::output::api::Refusal;
use crate::output::page;
use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// Bytes that were made and wait for those who read them; beyond that those are dropped of which nothing was read
/// for longest. Six expositions of 10,000 queues.
const UNSENT: usize = 32 << 20;

/// A connection holds one of these when its document is dropped.
const CHUNK: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Documents {
    lanes: [Lane; LANES],
    unsent: Unsent,
}

#[derive(Default)]
struct Lane {
    /// Locked while one is made, to its end even if nobody waits for it any more.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Documents for which requests wait: the last request leaves none in memory.
    wanted: Mutex<BTreeMap<Key, Wanted>>,
}

/// Clients that ask and accept the same share a document.
type Key = (Question, Encoding);

#[derive(Default)]
struct Wanted {
    waiting: usize,
    /// The last one, and when it was begun.
    last: Option<(Instant, Made)>,
}

pub(super) type Made = Result<Arc<Document>, Refusal>;

impl Lane {
    fn wanted(&self) -> MutexGuard<'_, BTreeMap<Key, Wanted>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for a document.
struct Waits<'a> {
    lane: &'a Lane,
    key: Key,
}

impl<'a> Waits<'a> {
    fn new(lane: &'a Lane, key: Key) -> Self {
        lane.wanted().entry(key.clone()).or_default().waiting += 1;
        Waits { lane, key }
    }

    /// One that was begun after this time, and is still whole.
    fn shared(&self, asked: Instant) -> Option<Made> {
        let wanted = self.lane.wanted();
        let (begun, made) = wanted.get(&self.key)?.last.as_ref()?;
        let is_whole = made.as_ref().map_or(true, |document| document.left().chunks.is_some());
        (*begun >= asked && is_whole).then(|| made.clone())
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut all = self.lane.wanted();
        let Some(wanted) = all.get_mut(&self.key) else { return };
        wanted.waiting -= 1;
        if wanted.waiting == 0 {
            all.remove(&self.key);
        }
    }
}

impl Documents {
    /// The document, begun after this call.
    ///
    /// # Errors
    /// Those of the source; that it panicked.
    pub(super) async fn get(
        self: &Arc<Self>,
        source: &Arc<dyn PageSource>,
        question: Question,
        encoding: Encoding,
    ) -> Made {
        let asked = Instant::now();
        let lane = &self.lanes[question.lane()];
        let waits = Waits::new(lane, (question, encoding));
        let turn = Arc::clone(&lane.turn).lock_owned().await;
        if let Some(made) = waits.shared(asked) {
            return made;
        }
        // A task of its own: a client that disconnects ends this future, and not what was begun.
        let made = Arc::clone(self).make(turn, Arc::clone(source), waits.key.clone());
        tokio::spawn(made).await.unwrap_or_else(|error| Err(Refusal::Failed(error.to_string())))
    }

    async fn make(
        self: Arc<Self>,
        turn: OwnedMutexGuard<()>,
        source: Arc<dyn PageSource>,
        (question, encoding): Key,
    ) -> Made {
        let begun = Instant::now();
        let key = (question.clone(), encoding);
        let made = spawn_blocking(move || written(&*source, &question, encoding)).await;
        let made = made.unwrap_or_else(|error| Err(Refusal::Failed(error.to_string())));
        let made = made.map(|(bytes, etag)| self.unsent.add(&bytes, etag));
        if let Some(wanted) = self.lanes[key.0.lane()].wanted().get_mut(&key) {
            wanted.last = Some((begun, made.clone()));
        }
        drop(turn);
        made
    }
}

/// A document's bytes, and the tag of a page.
fn written(
    source: &dyn PageSource,
    question: &Question,
    encoding: Encoding,
) -> Result<(Vec<u8>, Option<String>), Refusal> {
    let text = question.answer(source)?;
    let (text, etag) = match question {
        Question::Page(..) if text.is_empty() => return Ok((Vec::new(), None)),
        Question::Page(..) => {
            let etag = page::etag(&text);
            (text, Some(etag))
        }
        Question::Api(..) => (text + "\n", None),
        Question::Metrics(_) | Question::Ready | Question::Healthy => (text, None),
    };
    Ok((encoding.encode(text).map_err(|error| Refusal::Failed(error.to_string()))?, etag))
}

/// What was made and is still being sent.
#[derive(Default)]
struct Unsent(Mutex<Vec<Weak<Document>>>);

impl Unsent {
    fn add(&self, bytes: &[u8], etag: Option<String>) -> Arc<Document> {
        let document = Arc::new(Document::new(bytes, etag));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        others.sort_by_key(|other| other.left().read);
        let mut length = document.length + others.iter().map(|other| other.length).sum::<usize>();
        while length > UNSENT && !others.is_empty() {
            let longest = others.remove(0);
            length -= longest.length;
            longest.left().chunks = None;
        }
        *all = others.iter().chain([&document]).map(Arc::downgrade).collect();
        document
    }
}

/// A body on its way to one or more clients.
#[derive(Debug)]
pub(super) struct Document {
    length: usize,
    /// Set if the page is not empty.
    etag: Option<String>,
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    /// `None`: dropped, since others ask for more than is held.
    chunks: Option<Vec<Bytes>>,
    /// When a client last took a part of it.
    read: Instant,
}

impl Document {
    fn new(bytes: &[u8], etag: Option<String>) -> Self {
        // Each with memory of its own: a part of one whole would keep that whole.
        let chunks = Some(bytes.chunks(CHUNK).map(Bytes::copy_from_slice).collect());
        Document { length: bytes.len(), etag, left: Mutex::new(Left { chunks, read: Instant::now() }) }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn body(self: Arc<Self>) -> Body {
        Body::new(Sending { document: self, next: 0 })
    }
}

/// A response's body.
struct Sending {
    document: Arc<Document>,
    next: usize,
}

impl hyper::body::Body for Sending {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = {
            let mut left = self.document.left();
            left.read = Instant::now();
            left.chunks.as_ref().map(|chunks| chunks.get(self.next).cloned())
        };
        self.next += 1;
        Poll::Ready(match chunk {
            Some(chunk) => chunk.map(|chunk| Ok(Frame::data(chunk))),
            None => Some(Err(io::Error::other("it was read too slowly while others asked"))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.next * CHUNK >= self.document.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.document.length.saturating_sub(self.next * CHUNK) as u64)
    }
}

#[cfg(test)]
mod tests;
