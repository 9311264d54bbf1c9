//! Records that wait for the collector: batches of bounded size, in bounded memory. What has no room is dropped, the newest
//! first, and counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A batch is complete with so many records, ...
const RECORDS: u64 = 512;

/// ... so many bytes (proxies often take no more than a MiB), ...
const BYTES: usize = 512 << 10;

/// ... or this long after its first record.
const OLDEST: Duration = Duration::from_secs(1);

/// Records, each as a field of `ScopeLogs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) records: u64,
}

impl Batch {
    pub(super) fn is_full(&self) -> bool {
        self.records >= RECORDS || self.bytes.len() >= BYTES
    }
}

/// A batch that is being filled.
#[derive(Debug, Default)]
pub(super) struct Filling {
    pub(super) batch: Batch,
    since: Option<Instant>,
}

impl Filling {
    /// So many records were added to the batch.
    pub(super) fn added(&mut self, records: u64, now: Instant) {
        self.batch.records += records;
        if records > 0 {
            self.since.get_or_insert(now);
        }
    }

    /// The batch, if it is complete.
    pub(super) fn complete(&mut self, now: Instant) -> Option<Batch> {
        let is_old = self.since.is_some_and(|since| now.duration_since(since) >= OLDEST);
        if is_old || self.batch.is_full() { self.take() } else { None }
    }

    /// The batch, if there is a record in it.
    pub(super) fn take(&mut self) -> Option<Batch> {
        self.since = None;
        if self.batch.records == 0 { None } else { Some(std::mem::take(&mut self.batch)) }
    }

    /// How long to wait for the next record.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::from_secs(3600), |since| OLDEST.saturating_sub(now.duration_since(since)))
    }
}

/// Batches that wait, the oldest first.
#[derive(Debug)]
pub(super) struct Waiting {
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
    most: usize,
}

impl Waiting {
    /// `most`: bytes of all.
    pub(super) fn new(most: usize) -> Self {
        Waiting { batches: VecDeque::new(), bytes: 0, most }
    }

    /// False: there is no room, and it is dropped. One alone always has.
    #[must_use]
    pub(super) fn push(&mut self, mut batch: Batch) -> bool {
        batch.bytes.shrink_to_fit();
        let bytes = self.bytes + batch.bytes.len();
        if bytes > self.most && !self.batches.is_empty() {
            return false;
        }
        self.bytes = bytes;
        self.batches.push_back(Arc::new(batch));
        true
    }

    pub(super) fn first(&self) -> Option<Arc<Batch>> {
        self.batches.front().cloned()
    }

    /// The first one is done with.
    pub(super) fn pop(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.bytes -= batch.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(records: u64, bytes: usize) -> Batch {
        Batch { bytes: vec![0; bytes], records }
    }

    #[test]
    fn what_has_no_room_is_the_newest() {
        let mut waiting = Waiting::new(100);
        assert!(waiting.push(batch(1, 200)), "else it would never be sent");
        assert!(!waiting.push(batch(2, 1)));
        waiting.pop();
        assert!(waiting.push(batch(3, 60)) && waiting.push(batch(4, 40)) && !waiting.push(batch(5, 1)));
        assert_eq!((waiting.batches.len(), waiting.first().map(|first| first.records)), (2, Some(3)));
        waiting.pop();
        assert!(waiting.push(batch(5, 60)) && waiting.batches.len() == 2);
        (0..3).for_each(|_| waiting.pop());
        assert_eq!((waiting.first(), waiting.bytes), (None, 0));
    }

    #[test]
    fn a_batch_is_complete_by_number_size_or_age() {
        let now = Instant::now();
        let mut filling = Filling::default();
        assert_eq!(filling.complete(now + OLDEST * 9), None, "an empty one never is");
        assert!(filling.patience(now) > OLDEST);
        filling.added(1, now);
        assert_eq!(filling.complete(now + OLDEST / 2), None);
        assert_eq!(filling.patience(now + OLDEST / 4), OLDEST * 3 / 4);
        assert_eq!(filling.complete(now + OLDEST).map(|batch| batch.records), Some(1));
        (0..RECORDS).for_each(|_| filling.added(1, now));
        assert_eq!(filling.complete(now).map(|batch| batch.records), Some(RECORDS));
        filling.added(1, now);
        filling.batch.bytes = vec![0; BYTES];
        assert_eq!(filling.complete(now).map(|batch| batch.records), Some(1));
        assert_eq!(filling.take(), None);
    }
}
