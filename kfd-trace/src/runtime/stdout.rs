//! Standard output of the stream, written by a thread of its own.
//!
//! In: lines, and how many bytes of them may wait. Out: the lines in their order, as fast as they are read,
//! and the count of those that found no room, by kind. A reader that stops reading delays the caller by at
//! most [`TIMEOUT`] until it has caught up.

use super::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// Bytes per write. A write to a full pipe returns when everything has found room, and a pipe frees room in
/// whole pages: so it shows soon that a reader reads.
const CHUNK: usize = 4 << 10;

/// How long to wait for a full queue: long enough for a reader that only waits for a CPU, and too short to be
/// noticed.
const TIMEOUT: Duration = Duration::from_millis(100);

/// How long the end waits for a reader that reads nothing, if the end was requested.
pub const AT_THE_END: Duration = Duration::from_secs(3);

/// Interval between two lines that report dropped ones.
const NEWS: Duration = Duration::from_secs(10);

/// Bytes that may wait: a record becomes a line of a few times its size, and a whole ring buffer may come at
/// once.
#[must_use]
pub fn room(ring_bytes: u32) -> usize {
    (ring_bytes as usize).saturating_mul(8).clamp(256 << 10, 64 << 20)
}

/// An unbuffered copy of standard output's descriptor. Another process that shares it may have made it
/// non-blocking.
#[derive(Debug)]
pub struct Stdout {
    file: File,
    /// What was in it before the first write goes.
    replaces: bool,
}

impl Stdout {
    /// # Errors
    /// If there is no free descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Stdout { file: io::stdout().as_fd().try_clone_to_owned()?.into(), replaces: false })
    }

    /// The same of standard error, for a command that has standard output for itself.
    ///
    /// # Errors
    /// If there is no free descriptor.
    pub fn stderr() -> io::Result<Self> {
        Ok(Stdout { file: io::stderr().as_fd().try_clone_to_owned()?.into(), replaces: false })
    }

    /// A file in its place. It stays as it is until there is something to write: it may be an earlier run's, and this one may
    /// not begin.
    #[must_use]
    pub fn file(file: File) -> Self {
        Stdout { file, replaces: true }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A pipe or a device has nothing to remove.
        if std::mem::take(&mut self.replaces) && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        loop {
            match self.file.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The writer of the lines.
#[derive(Debug)]
pub struct StdoutWriter {
    shared: Arc<Shared>,
    /// Bytes that may wait.
    most: usize,
    /// The line that is being built.
    line: Vec<u8>,
    /// How long a slow reader is waited for in all.
    patience: Duration,
    /// The remainder of that until the reader has caught up.
    timeout: Duration,
    dropped: BTreeMap<&'static str, u64>,
    /// When dropped lines were last reported, and how many.
    reported: Option<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<LineQueue>,
    /// There is something to write, or nothing more will come.
    filled: Condvar,
    /// Something was written, or nothing more will be.
    moved: Condvar,
}

#[derive(Debug, Default)]
struct LineQueue {
    waiting: VecDeque<u8>,
    /// Bytes that were written or are being written, since the start.
    written: u64,
    taken: u64,
    /// Nothing more will come.
    closed: bool,
    /// Nothing more will be written.
    over: bool,
    error: Option<io::Error>,
}

impl StdoutWriter {
    /// # Errors
    /// If no thread can be started.
    pub fn new(out: impl Write + Send + 'static, most: usize) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        thread::Builder::new().name("output".to_owned()).spawn(move || of_thread.write_to(out))?;
        Ok(StdoutWriter {
            shared,
            most,
            line: Vec::new(),
            patience: TIMEOUT,
            timeout: TIMEOUT,
            dropped: BTreeMap::new(),
            reported: None,
        })
    }

    /// Writes one line, or several that belong together, if there is room.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn line(
        &mut self,
        kind: &'static str,
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.line.clear();
        write(&mut self.line)?;
        if self.has_room() {
            self.push();
        } else {
            *self.dropped.entry(kind).or_default() += 1;
        }
        Ok(())
    }

    /// Writes what must not be dropped; there is always room for it.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn always(&mut self, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        self.line.clear();
        write(&mut self.line)?;
        self.push();
        Ok(())
    }

    fn push(&mut self) {
        let mut queue = self.shared.queue();
        queue.waiting.extend(&self.line);
        if queue.waiting.len() >= CHUNK {
            self.shared.filled.notify_one();
        }
    }

    /// Whether the line fits; waits for the reader for some time, unless that time is used up already.
    fn has_room(&mut self) -> bool {
        let mut queue = self.shared.queue();
        let fits = |queue: &LineQueue| {
            queue.waiting.is_empty() || queue.waiting.len() + self.line.len() <= self.most
        };
        while !fits(&queue) && !queue.over && !self.timeout.is_zero() {
            self.shared.filled.notify_one();
            let begin = Instant::now();
            queue = self.shared.wait(queue, self.timeout);
            self.timeout = self.timeout.saturating_sub(begin.elapsed());
        }
        fits(&queue)
    }

    /// Hands the waiting lines to the output.
    ///
    /// # Errors
    /// The output's error for earlier lines, once.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut queue = self.shared.queue();
        // A reader that never catches up must not make each batch wait: records would be lost instead of
        // lines.
        if queue.waiting.len() <= self.most / 2 {
            self.timeout = self.patience;
        }
        self.shared.filled.notify_one();
        queue.error.take().map_or(Ok(()), Err)
    }

    /// Lines that found no room, by kind.
    #[must_use]
    pub fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.dropped
    }

    /// How many lines were dropped, if there are more than were reported; rate-limited.
    pub fn news(&mut self, now: Instant) -> Option<u64> {
        let dropped = self.dropped.values().sum();
        let due =
            self.reported.is_none_or(|(at, reported)| now.duration_since(at) >= NEWS && dropped > reported);
        if !due || dropped == 0 {
            return None;
        }
        self.reported = Some((now, dropped));
        Some(dropped)
    }

    /// Waits until everything is written; for a reader that reads nothing, not longer than `still`.
    ///
    /// # Errors
    /// The output's error, or how much was not written.
    pub fn finish(self, still: Duration) -> io::Result<()> {
        let mut queue = self.shared.queue();
        queue.closed = true;
        self.shared.filled.notify_one();
        let mut moved = (queue.written, Instant::now());
        while !queue.over {
            let now = Instant::now();
            if queue.written > moved.0 {
                moved = (queue.written, now);
            }
            let left = still.saturating_sub(now - moved.1);
            if left.is_zero() {
                let bytes = queue.waiting.len() as u64 + queue.taken - queue.written;
                let why =
                    format!("standard output is not read: up to {bytes} bytes at its end were not written");
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
            queue = self.shared.wait(queue, left);
        }
        queue.error.take().map_or(Ok(()), Err)
    }

    /// [`Self::finish`], unless a signal comes first. One that came before, while the probes were detached, does not
    /// count.
    ///
    /// # Errors
    /// As of `finish`; or that a signal ended the wait.
    pub async fn finish_unless(self, signals: &mut Signals, still: Duration) -> io::Result<()> {
        signals.forget().await;
        tokio::select! {
            finished = spawn_blocking(move || self.finish(still)) => finished.map_err(io::Error::other)?,
            () = signals.any() => Err(io::Error::other("stopped before all was written to standard output")),
        }
    }
}

impl Shared {
    /// The queue is consistent between any two statements.
    fn queue(&self) -> MutexGuard<'_, LineQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, LineQueue>, most: Duration) -> MutexGuard<'a, LineQueue> {
        self.moved.wait_timeout(queue, most).unwrap_or_else(PoisonError::into_inner).0
    }

    fn write_to(&self, mut out: impl Write) {
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut done = Ok(());
        while done.is_ok() && self.next(&mut chunk) {
            done = self.write_all(&mut out, &chunk);
        }
        let mut queue = self.queue();
        queue.over = true;
        queue.error = done.err();
        // It will never be read.
        queue.waiting = VecDeque::new();
        self.moved.notify_all();
    }

    /// The next bytes to write; waits for them. False if no more will come.
    fn next(&self, chunk: &mut Vec<u8>) -> bool {
        let mut queue = self.queue();
        while queue.waiting.is_empty() && !queue.closed {
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        chunk.clear();
        let (front, _) = queue.waiting.as_slices();
        chunk.extend_from_slice(&front[..front.len().min(CHUNK)]);
        queue.waiting.drain(..chunk.len());
        queue.taken += chunk.len() as u64;
        !chunk.is_empty()
    }

    fn write_all(&self, out: &mut impl Write, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match out.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.queue().written += written as u64;
                    self.moved.notify_all();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
