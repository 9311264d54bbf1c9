//! What became of the records that a daemon exports, for metrics. Written by the threads that export, read by scrapes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The counts of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportFigures {
    /// The collector took the last batch.
    pub up: bool,
    /// Records that the collector took.
    pub accepted: u64,
    /// Records that the collector refused for good.
    pub refused: u64,
    /// Records that had no room.
    pub dropped: u64,
    /// Records that wait.
    pub waiting: u64,
}

/// The counts.
#[derive(Clone, Debug, Default)]
pub struct Exported(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    up: AtomicBool,
    accepted: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
    waiting: AtomicU64,
}

impl Exported {
    #[must_use]
    pub fn figures(&self) -> ExportFigures {
        ExportFigures {
            up: self.0.up.load(Relaxed),
            accepted: self.0.accepted.load(Relaxed),
            refused: self.0.refused.load(Relaxed),
            dropped: self.0.dropped.load(Relaxed),
            waiting: self.0.waiting.load(Relaxed),
        }
    }

    /// So many wait for the collector, too.
    pub fn waits(&self, records: u64) {
        self.0.waiting.fetch_add(records, Relaxed);
    }

    /// So many of those that waited were taken, and so many refused.
    pub fn answered(&self, taken: u64, refused: u64) {
        self.0.accepted.fetch_add(taken, Relaxed);
        self.0.refused.fetch_add(refused, Relaxed);
        self.0.waiting.fetch_sub(taken + refused, Relaxed);
    }

    /// So many had no room.
    pub fn drops(&self, records: u64) {
        self.0.dropped.fetch_add(records, Relaxed);
    }

    pub fn set_up(&self, up: bool) {
        self.0.up.store(up, Relaxed);
    }

    /// What a thread of the export holds: where it panics, nothing is exported any more, and that shows.
    #[must_use]
    pub fn down_if_panicked(&self) -> impl Drop + use<> {
        DownIfPanicked(self.clone())
    }
}

struct DownIfPanicked(Exported);

impl Drop for DownIfPanicked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_up(false);
        }
    }
}
