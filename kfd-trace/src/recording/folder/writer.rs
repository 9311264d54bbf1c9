//! The thread that writes a daemon's files.

use super::FolderLimits;
use super::files::Files;
use super::plan::Found;
use super::shared::{Shared, changes};
use crate::recording::item::{Closed, Item, Part};
use crate::recording::write::{BLOCK, OLDEST, compress};
use crate::text::count::counted;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// After a failure: how soon it is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What the thread gets.
pub(super) enum Message {
    /// A file begins with these.
    Begin(Vec<Item>),
    Items(Vec<Item>),
    /// The daemon ends.
    End {
        at_ns: u64,
    },
}

impl Message {
    pub(super) fn items(&self) -> &[Item] {
        match self {
            Message::Begin(items) | Message::Items(items) => items,
            Message::End { .. } => &[],
        }
    }
}

pub(super) struct Writer {
    limits: FolderLimits,
    run_unix_ns: i64,
    shared: Arc<Shared>,
    /// `None` until the folder could be opened.
    files: Option<Files>,
    current: Option<Current>,
    /// Files of this run.
    number: u64,
    /// Lost when the last file began.
    lost_before: u64,
    /// When it failed last, since the last success.
    failed: Option<Instant>,
    /// The next file was requested, and has not begun yet.
    has_asked: bool,
}

/// The file that is being written.
struct Current {
    found: Found,
    file: File,
    begun: Instant,
    synced: Instant,
    /// Bytes of the initial state; `None` while it is not written.
    head: Option<u64>,
    block: Vec<u8>,
    /// Changes in the block.
    changes: u64,
    /// When the block's first line came.
    since: Option<Instant>,
}

impl Writer {
    /// Its first message must be a begin.
    pub(super) fn new(limits: FolderLimits, run_unix_ns: i64, shared: Arc<Shared>) -> Self {
        let (files, current) = (None, None);
        let (number, lost_before, failed, has_asked) = (0, 0, None, false);
        Writer { limits, run_unix_ns, shared, files, current, number, lost_before, failed, has_asked }
    }

    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        // The first file may come days later, with the driver.
        let opened = self.open();
        self.check(opened);
        loop {
            match messages.recv_timeout(OLDEST) {
                Ok(message) => {
                    if !self.take(message) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let flushed = self.flush_old();
            self.check(flushed);
            self.turn();
        }
    }

    /// False after the last one.
    pub(super) fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Begin(items) => {
                self.shared.taken(&items);
                let begun = self.begin(items);
                self.has_asked = false;
                self.check(begun);
            }
            Message::Items(items) => {
                self.shared.taken(&items);
                let put = self.put(items);
                self.check(put);
            }
            Message::End { at_ns } => {
                let ended = self.close(at_ns, Closed::Stopped);
                self.check(ended);
                return false;
            }
        }
        true
    }

    /// Opens the folder, and sees whether files can be created there.
    fn open(&mut self) -> io::Result<()> {
        if self.files.is_some() {
            return Ok(());
        }
        let files = Files::open(&self.limits)?;
        files.check()?;
        self.files = Some(files);
        self.count();
        Ok(())
    }

    fn begin(&mut self, mut items: Vec<Item>) -> io::Result<()> {
        let lost = self.shared.lost.load(Relaxed);
        let part =
            Part { run_unix_ns: self.run_unix_ns, number: self.number + 1, lost: lost - self.lost_before };
        let mut at_ns = 0;
        if let Some(Item::Begin(begin)) = items.first_mut() {
            at_ns = begin.at_ns;
            *begin = begin.clone().of_part(part);
        }
        self.close(at_ns, if part.lost == 0 { Closed::Rotated } else { Closed::Gap })?;
        let files = match &mut self.files {
            Some(files) => files,
            None => self.files.insert(Files::open(&self.limits)?),
        };
        files.make_room(0)?;
        let (found, file) = files.create()?;
        let now = Instant::now();
        self.current = Some(Current {
            found,
            file,
            begun: now,
            synced: now,
            head: None,
            block: Vec::new(),
            changes: 0,
            since: None,
        });
        self.put(items)?;
        self.flush()?;
        if let Some(current) = &mut self.current {
            current.head = Some(current.found.bytes);
        }
        (self.number, self.lost_before) = (part.number, lost);
        if self.failed.take().is_some() || part.lost > 0 {
            log::warn!(
                "{}: recorded again; {} lost before",
                self.named(),
                counted(part.lost, "change was", "changes were")
            );
        }
        self.shared.writing.store(true, Relaxed);
        Ok(())
    }

    /// Requests the next file: once, since what was handed over before may come first.
    fn ask(&mut self) {
        if !std::mem::replace(&mut self.has_asked, true) {
            self.shared.wants.store(true, Relaxed);
        }
    }

    /// Without a file: they are lost.
    fn put(&mut self, items: Vec<Item>) -> io::Result<()> {
        let mut items = items.into_iter();
        let mut done = Ok(());
        while done.is_ok()
            && let Some(current) = &mut self.current
            && let Some(item) = items.next()
        {
            current.since.get_or_insert_with(Instant::now);
            serde_json::to_writer(&mut current.block, &item)?;
            current.block.push(b'\n');
            current.changes += u64::from(matches!(item, Item::Input(_)));
            if current.block.len() >= BLOCK {
                done = self.flush();
            }
        }
        // A block that could not be written is handled by `check`.
        self.shared.lost.fetch_add(changes(items.as_slice()), Relaxed);
        done
    }

    fn flush_old(&mut self) -> io::Result<()> {
        let is_old = |current: &Current| current.since.is_some_and(|since| since.elapsed() >= OLDEST);
        if self.current.as_ref().is_some_and(is_old) { self.flush() } else { Ok(()) }
    }

    /// Writes the block.
    fn flush(&mut self) -> io::Result<()> {
        let (Some(files), Some(current)) = (&mut self.files, &mut self.current) else { return Ok(()) };
        if current.block.is_empty() {
            return Ok(());
        }
        let frame = compress(&current.block)?;
        let bytes = current.found.bytes + frame.len() as u64;
        files.make_room(bytes)?;
        current.file.write_all(&frame)?;
        current.found.bytes = bytes;
        current.block.clear();
        (current.changes, current.since) = (0, None);
        // Where a GPU hangs, the machine is often reset.
        if current.synced.elapsed() >= OLDEST {
            current.file.sync_data()?;
            current.synced = Instant::now();
        }
        let grown = current.head.map_or(0, |head| bytes - head);
        if grown >= self.limits.file_bytes {
            self.ask();
        }
        self.count();
        Ok(())
    }

    /// Ends the file, if there is one.
    fn close(&mut self, at_ns: u64, why: Closed) -> io::Result<()> {
        if self.current.is_none() {
            return Ok(());
        }
        self.put(vec![Item::Close { at_ns, why }])?;
        self.flush()?;
        let Some(current) = self.current.take() else { return Ok(()) };
        current.file.sync_data()
    }

    /// What is due by time.
    fn turn(&mut self) {
        let is_old = |current: &Current| current.begun.elapsed() >= self.limits.file_age();
        let is_due = self.failed.is_some_and(|failed| failed.elapsed() >= RETRY);
        if is_due || self.current.as_ref().is_some_and(is_old) {
            self.ask();
        }
        let bytes = self.current.as_ref().map_or(0, |current| current.found.bytes);
        if let Some(files) = &mut self.files {
            let made = files.make_room(bytes);
            self.check(made);
        }
        self.count();
    }

    /// After a failure there is no file: what is in the block is lost, and all until the next one begins.
    fn check(&mut self, done: io::Result<()>) {
        let Err(error) = done else { return };
        if self.failed.is_none() {
            log::warn!("{}: cannot be recorded to: {error}; what is lost is counted", self.named());
        }
        self.failed = Some(Instant::now());
        self.shared.writing.store(false, Relaxed);
        if let Some(current) = self.current.take() {
            self.shared.lost.fetch_add(current.changes, Relaxed);
            // Without it the file ends within a block, which readers know as well.
            let _ = current.file.set_len(current.found.bytes);
            if current.head.is_none() {
                // It has nothing that can be read.
                let _ = fs::remove_file(&current.found.path);
            }
        }
        self.count();
    }

    fn count(&self) {
        let Some(files) = &self.files else { return };
        let current = self.current.as_ref().map_or(0, |current| current.found.bytes);
        self.shared.bytes.store(files.bytes() + current, Relaxed);
        self.shared.files.store(files.older.len() as u64 + u64::from(self.current.is_some()), Relaxed);
    }

    fn named(&self) -> String {
        self.limits.folder.display().to_string()
    }
}

#[cfg(test)]
mod tests;
