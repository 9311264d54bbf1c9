//! Bounds what the pages cost: one exposition, one diagnosis and one other document are made at a time, those who wait for
//! the exposition share it, and what is made but not yet sent has a limit.
//!
//! In: what makes a document. Out: the body of a response. No response is older than its request.

use super::negotiate::Encoding;
use crate::output::metrics::Format;
use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

/// Bytes that were made and wait for those who read them; beyond that those are dropped of which nothing was read
/// for longest. Six expositions of 10,000 queues.
const UNSENT: usize = 32 << 20;

/// A connection holds one of these when its document is dropped.
const CHUNK: usize = 64 << 10;

/// After an exposition comes a pause of so many times the time that it took, so that whoever asks without pause
/// takes a quarter of a CPU.
const PAUSES: u32 = 3;

/// Longer than that no exposition waits for another.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Documents {
    /// When the next one may begin. Locked by whoever makes one, to its end even if nobody waits for it any more.
    exposition: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// Requests that wait for the exposition, or are about to: the last one leaves none in memory.
    waiting: Mutex<Waiting>,
    /// A diagnosis takes seconds, for which no other document waits. [`super::diagnoses`] has its order and its bounds: this lock
    /// only keeps requests that wait for it from taking all threads of the pool.
    doctor: Arc<tokio::sync::Mutex<()>>,
    other: Arc<tokio::sync::Mutex<()>>,
    unsent: Unsent,
}

#[derive(Default)]
struct Waiting {
    count: usize,
    /// The last exposition of each kind, and when it was begun.
    last: BTreeMap<Kind, (Instant, Made)>,
}

/// Clients that accept the same share an exposition.
type Kind = (Format, Encoding);

type Made = Result<Arc<Document>, String>;

/// A request that waits for the exposition.
struct Waits<'a>(&'a Documents);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        waiting.count -= 1;
        if waiting.count == 0 {
            waiting.last.clear();
        }
    }
}

impl Documents {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exposition, begun after this call. `make` may block.
    ///
    /// # Errors
    /// The line of `make`, or that it panicked.
    pub(super) async fn exposition(
        self: &Arc<Self>,
        kind: Kind,
        make: impl FnOnce() -> Result<String, String> + Send + 'static,
    ) -> Result<Body, String> {
        let asked = Instant::now();
        self.waiting().count += 1;
        let waits = Waits(self);
        let next = Arc::clone(&self.exposition).lock_owned().await;
        let shared = self.waiting().last.get(&kind).cloned().filter(|(begun, _)| *begun >= asked);
        let made = match shared {
            Some((_, made)) => made,
            // A task of its own: a client that disconnects ends this future, and not what was begun.
            None => {
                let made = tokio::spawn(Arc::clone(self).make(next, kind, make)).await;
                made.unwrap_or_else(|error| Err(error.to_string()))
            }
        };
        drop(waits);
        made.map(Document::body)
    }

    async fn make(
        self: Arc<Self>,
        mut next: OwnedMutexGuard<Option<Instant>>,
        kind: Kind,
        make: impl FnOnce() -> Result<String, String> + Send + 'static,
    ) -> Made {
        if let Some(next) = *next {
            sleep_until(next).await;
        }
        if self.waiting().count == 0 {
            return Err("nobody waits for it any more".to_owned());
        }
        let begun = Instant::now();
        let (_, encoding) = kind;
        let make = move || encoding.encode(make()?).map_err(|error| error.to_string());
        let bytes = spawn_blocking(make).await.unwrap_or_else(|error| Err(error.to_string()));
        let made = bytes.map(|bytes| self.unsent.add(&bytes));
        let pause = (begun.elapsed() * PAUSES).min(LONGEST_PAUSE);
        *next = Some(Instant::now() + pause);
        let mut waiting = self.waiting();
        if waiting.count > 0 {
            waiting.last.insert(kind, (begun, made.clone()));
        }
        made
    }

    /// Any other document. `make` may block.
    ///
    /// # Errors
    /// What `make` returns; in the outer result that it panicked.
    pub(super) async fn other<E: Send + 'static>(
        &self,
        encoding: Encoding,
        make: impl FnOnce() -> Result<String, E> + Send + 'static,
    ) -> Result<Result<Body, E>, String> {
        self.one_of(&self.other, encoding, make).await
    }

    /// A diagnosis. `make` may block.
    ///
    /// # Errors
    /// As [`Documents::other`].
    pub(super) async fn doctor<E: Send + 'static>(
        &self,
        encoding: Encoding,
        make: impl FnOnce() -> Result<String, E> + Send + 'static,
    ) -> Result<Result<Body, E>, String> {
        self.one_of(&self.doctor, encoding, make).await
    }

    async fn one_of<E: Send + 'static>(
        &self,
        turn: &Arc<tokio::sync::Mutex<()>>,
        encoding: Encoding,
        make: impl FnOnce() -> Result<String, E> + Send + 'static,
    ) -> Result<Result<Body, E>, String> {
        let one = Arc::clone(turn).lock_owned().await;
        let make = move || {
            let made = make().map(|text| encoding.encode(text));
            drop(one);
            made
        };
        match spawn_blocking(make).await.map_err(|error| error.to_string())? {
            Ok(bytes) => Ok(Ok(self.unsent.add(&bytes.map_err(|error| error.to_string())?).body())),
            Err(error) => Ok(Err(error)),
        }
    }
}

/// What was made and is still being sent.
#[derive(Default)]
struct Unsent(Mutex<Vec<Weak<Document>>>);

impl Unsent {
    fn add(&self, bytes: &[u8]) -> Arc<Document> {
        let document = Arc::new(Document::new(bytes));
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
struct Document {
    length: usize,
    left: Mutex<Left>,
}

struct Left {
    /// `None`: dropped, since others ask for more than is held.
    chunks: Option<Vec<Bytes>>,
    /// When a client last took a part of it.
    read: Instant,
}

impl Document {
    fn new(bytes: &[u8]) -> Self {
        // Each with memory of its own: a part of one whole would keep that whole.
        let chunks = Some(bytes.chunks(CHUNK).map(Bytes::copy_from_slice).collect());
        Document { length: bytes.len(), left: Mutex::new(Left { chunks, read: Instant::now() }) }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn body(self: Arc<Self>) -> Body {
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
