//! What both sides of a daemon's recording know: how much waits, and what became of it.

use crate::recording::item::Item;
use crate::state::Input;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Samples of queues that weigh as much as another item.
const SAMPLES_PER_ITEM: usize = 16;

/// What became of a recording, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// A file is being written.
    pub writing: bool,
    /// Changes of the state that are in no file.
    pub lost: u64,
    /// Bytes of all files of the folder.
    pub bytes: u64,
    /// How many these are.
    pub files: u64,
}

/// Shows the figures of a recording to other threads.
#[derive(Clone, Debug)]
pub struct Watch(pub(super) Arc<Shared>);

impl Watch {
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.0.figures()
    }
}

/// Shared with the thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Items that wait for the disk.
    pub(super) waiting: AtomicUsize,
    /// The next file must begin.
    pub(super) wants: AtomicBool,
    pub(super) writing: AtomicBool,
    pub(super) lost: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) files: AtomicU64,
}

impl Shared {
    pub(super) fn figures(&self) -> Figures {
        Figures {
            writing: self.writing.load(Relaxed),
            lost: self.lost.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            files: self.files.load(Relaxed),
        }
    }

    /// These were taken out of the queue.
    pub(super) fn taken(&self, items: &[Item]) {
        self.waiting.fetch_sub(weight(items), Relaxed);
    }
}

/// Changes of the state among them.
pub(super) fn changes(items: &[Item]) -> u64 {
    items.iter().filter(|item| matches!(item, Item::Input(_))).count() as u64
}

pub(super) fn weight(items: &[Item]) -> usize {
    let of = |item: &Item| match item {
        Item::Input(Input::Sampled(samples)) => 1 + samples.len() / SAMPLES_PER_ITEM,
        Item::Row(row) => 1 + row.queues.len(),
        _ => 1,
    };
    items.iter().map(of).sum()
}
