//! Hands items over to the thread that writes: never waits for it, and knows what was lost.

use super::FolderLimits;
use super::shared::{Shared, Watch, changes, weight};
use super::writer::{Message, Writer};
use crate::recording::item::Item;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Items that may wait for the disk, some 40 MB.
const WAITING: usize = 1 << 16;

/// How long the end waits for the disk.
const LAST: Duration = Duration::from_secs(5);

/// The side of the thread that follows the ring buffer.
#[derive(Debug)]
pub struct Feed {
    messages: Sender<Message>,
    shared: Arc<Shared>,
    /// It has a first file, or has tried to.
    has_begun: bool,
    /// Something was lost: nothing is handed over before the next file begins.
    is_broken: bool,
    done: Receiver<()>,
}

impl Feed {
    /// To be called after capabilities were given up: the thread keeps those that there are. The folder is opened by the
    /// thread; where that fails, it tries again.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn new(limits: &FolderLimits, run_unix_ns: i64) -> io::Result<Self> {
        let (messages, taken) = channel();
        let (sender, done) = channel();
        let shared = Arc::new(Shared::default());
        let mut writer = Writer::new(limits.clone(), run_unix_ns, shared.clone());
        let write = move || {
            writer.run(&taken);
            drop(sender);
        };
        thread::Builder::new().name("recorder".to_owned()).spawn(write)?;
        Ok(Feed { messages, shared, has_begun: false, is_broken: false, done })
    }

    /// Whether [`Feed::begin`] must be called, with the state as it is now.
    #[must_use]
    pub fn wants_begin(&self) -> bool {
        if !self.has_begun {
            return true;
        }
        let has_room = self.shared.waiting.load(Relaxed) < WAITING / 2;
        self.shared.wants.load(Relaxed) || self.is_broken && has_room
    }

    /// Begins a file with these items: those of [`Item::Begin`] to [`Item::Existing`].
    pub fn begin(&mut self, items: Vec<Item>) {
        (self.has_begun, self.is_broken) = (true, false);
        self.shared.wants.store(false, Relaxed);
        self.send(items, Message::Begin);
    }

    /// Adds items to the file. If too many wait, they are lost, and so is all that comes before the next begin.
    pub fn put(&mut self, items: Vec<Item>) {
        // The first file begins with the state that they made.
        if items.is_empty() || !self.has_begun {
            return;
        }
        if self.is_broken || self.shared.waiting.load(Relaxed) >= WAITING {
            if !self.is_broken {
                log::warn!(
                    "the disk of the recording is too slow: what it has no time for is lost, and counted"
                );
            }
            self.is_broken = true;
            self.shared.writing.store(false, Relaxed);
            self.shared.lost.fetch_add(changes(&items), Relaxed);
            return;
        }
        self.send(items, Message::Items);
    }

    fn send(&self, items: Vec<Item>, message: impl FnOnce(Vec<Item>) -> Message) {
        self.shared.waiting.fetch_add(weight(&items), Relaxed);
        // The thread ends with this side; one that panicked has said so.
        if let Err(unsent) = self.messages.send(message(items)) {
            self.shared.writing.store(false, Relaxed);
            self.shared.lost.fetch_add(changes(unsent.0.items()), Relaxed);
            self.shared.taken(unsent.0.items());
        }
    }

    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }

    /// Ends the file, and waits a little for the disk.
    pub fn finish(self, at_ns: u64) {
        let Feed { messages, shared, done, .. } = self;
        if messages.send(Message::End { at_ns }).is_ok() && done.recv_timeout(LAST).is_ok() {
            return;
        }
        if shared.waiting.load(Relaxed) > 0 {
            log::warn!("the disk of the recording takes nothing: its last changes are lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(count: usize) -> Vec<Item> {
        vec![Item::Input(crate::state::Input::Expired { at_ns: 1 }); count]
    }

    #[test]
    fn what_a_slow_disk_has_no_time_for_is_lost_until_the_next_file_begins() {
        let (messages, taken) = channel();
        let (_held, done) = channel();
        let shared = Arc::new(Shared::default());
        let mut feed = Feed { messages, shared: shared.clone(), has_begun: false, is_broken: false, done };
        feed.put(expired(5));
        assert!(feed.wants_begin() && shared.figures().lost == 0, "they made the state that it begins with");
        feed.begin(vec![Item::Existing]);
        shared.writing.store(true, Relaxed);
        feed.put(expired(WAITING));
        assert!(!feed.wants_begin() && shared.figures().lost == 0);
        feed.put(expired(7));
        assert!(!feed.wants_begin() && shared.figures().lost == 7 && !shared.figures().writing);
        // The disk has time again: what comes first is the state, without which no change has a meaning.
        let messages: Vec<Message> = taken.try_iter().collect();
        messages.iter().for_each(|message| shared.taken(message.items()));
        feed.put(expired(2));
        assert!(feed.wants_begin() && shared.figures().lost == 9);
        feed.begin(vec![Item::Existing]);
        feed.put(expired(1));
        assert!(!feed.wants_begin() && shared.figures().lost == 9);
        assert_eq!(taken.try_iter().count(), 2);
    }
}
