//! Writes a recording: lines into blocks, and blocks into a file by a thread of its own.

use super::item::Item;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

/// Bytes of text in a block. Blocks of 64 KiB would take 2 % more, of 1 MiB 6 % less.
pub(super) const BLOCK: usize = 256 << 10;

/// How long a line waits for its block to become full: so much a crash may cost.
pub(super) const OLDEST: Duration = Duration::from_secs(1);

/// Blocks that may wait for the disk; then the tracer waits, and the ring buffer fills.
const WAITING: usize = 64;

/// 3 makes them no smaller and takes half as long again.
const LEVEL: i32 = 1;

/// How long a disk may take for what waits: then it is taken to hang, as an NFS server may for hours. Ctrl-C is seen after
/// that.
const STUCK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {
    block: Vec<u8>,
    /// When the block's first line came.
    since: Option<Instant>,
    /// `None` when it is over.
    blocks: Option<SyncSender<Vec<u8>>>,
    /// What became of the thread; `None` when that was returned.
    written: Option<Receiver<io::Result<()>>>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// In the place of what the file has, which is removed with the first block. To be called after capabilities were
    /// given up: the thread keeps those that there are.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn new(file: File) -> io::Result<Self> {
        let (sender, blocks) = sync_channel(WAITING);
        let (done, written) = sync_channel(1);
        // The recorder may not wait for it any longer.
        let writes = move || drop(done.send(write(file, &blocks)));
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(writes)?;
        Ok(Recorder { block: Vec::new(), since: None, blocks: Some(sender), written: Some(written), thread })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If the file could not be written: it is whole up to what was written before.
    pub fn put(&mut self, item: &Item) -> io::Result<()> {
        self.since.get_or_insert_with(Instant::now);
        serde_json::to_writer(&mut self.block, item)?;
        self.block.push(b'\n');
        if self.block.len() < BLOCK { Ok(()) } else { self.send() }
    }

    /// Must be called at least once a second: writes what is old enough.
    ///
    /// # Errors
    /// As [`Recorder::put`].
    pub fn flush_old(&mut self) -> io::Result<()> {
        if self.since.is_some_and(|since| since.elapsed() >= OLDEST) {
            self.send()?;
        }
        // It may have failed since, and ends otherwise only when it is told to.
        if self.thread.is_finished() { self.end() } else { Ok(()) }
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// As [`Recorder::put`].
    pub fn finish(mut self) -> io::Result<()> {
        self.send()?;
        self.end()
    }

    fn send(&mut self) -> io::Result<()> {
        self.since = None;
        let mut block = std::mem::take(&mut self.block);
        if block.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        while let Some(blocks) = &self.blocks {
            match blocks.try_send(block) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) if begin.elapsed() < STUCK => {
                    block = back;
                    thread::sleep(PAUSE);
                }
                Err(TrySendError::Full(_)) => return Err(stuck()),
                Err(TrySendError::Disconnected(_)) => return self.end(),
            }
        }
        Ok(())
    }

    /// Waits for the thread. Returns its error once: what comes after it is not written.
    fn end(&mut self) -> io::Result<()> {
        self.blocks = None;
        let Some(written) = self.written.take() else { return Ok(()) };
        match written.recv_timeout(STUCK) {
            Ok(written) => written.map_err(|error| named(&error)),
            Err(RecvTimeoutError::Timeout) => Err(stuck()),
            Err(RecvTimeoutError::Disconnected) => Err(named(&io::Error::other("its thread panicked"))),
        }
    }
}

fn named(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the recording cannot be written further: {error}"))
}

fn stuck() -> io::Error {
    named(&io::Error::new(
        io::ErrorKind::TimedOut,
        format!("its disk takes nothing for {} s", STUCK.as_secs()),
    ))
}

/// A block of these lines.
///
/// # Errors
/// If there is no memory for it.
pub fn compress(lines: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.set_parameter(CParameter::ChecksumFlag(true))?;
    compressor.compress(lines)
}

fn write(mut file: File, blocks: &Receiver<Vec<u8>>) -> io::Result<()> {
    let mut whole = 0;
    let mut synced = Instant::now();
    for block in blocks {
        // A device has no length.
        if whole == 0 && file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let frame = compress(&block)?;
        if let Err(error) = file.write_all(&frame) {
            // Without it the file ends within a block, which readers know as well.
            let _ = file.set_len(whole);
            return Err(error);
        }
        whole += frame.len() as u64;
        // Where a GPU hangs, the machine is often reset.
        if synced.elapsed() >= OLDEST {
            file.sync_data()?;
            synced = Instant::now();
        }
    }
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::samples::begin;
    use crate::recording::{ReadError, Reader};
    use std::fs::OpenOptions;

    #[test]
    fn a_line_waits_a_second_at_most() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut recorder = Recorder::new(file.reopen().expect("the file")).expect("a recorder");
        recorder.put(&Item::Existing).expect("put");
        recorder.flush_old().expect("too early");
        assert!(recorder.since.is_some());
        thread::sleep(OLDEST);
        recorder.flush_old().expect("in time");
        assert!(recorder.since.is_none() && recorder.block.is_empty());
        recorder.finish().expect("written");
    }

    #[test]
    fn a_full_disk_ends_it_and_what_was_written_is_whole() {
        // Writing to it fails with ENOSPC (drivers/char/mem.c, write_full).
        let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut recorder = Recorder::new(full).expect("a recorder");
        recorder.put(&Item::Existing).expect("put");
        recorder.send().expect("it waits");
        while !recorder.thread.is_finished() {
            thread::sleep(PAUSE);
        }
        let error = recorder.flush_old().expect_err("the disk is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        recorder.put(&Item::Existing).expect("nothing is written any longer");
        recorder.finish().expect("the error was reported");
    }

    #[test]
    fn blocks_are_read_as_they_were_written() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut recorder = Recorder::new(file.reopen().expect("the file")).expect("a recorder");
        let clock = |wall_ns| Item::Clock { wall_ns, boot_ns: 0 };
        let items: Vec<Item> = [Item::Begin(begin())].into_iter().chain((0..50_000).map(clock)).collect();
        items.iter().for_each(|item| recorder.put(item).expect("put"));
        recorder.finish().expect("written");
        let bytes = std::fs::read(file.path()).expect("the file");
        assert!(bytes.windows(4).filter(|four| *four == [0x28, 0xb5, 0x2f, 0xfd]).count() > 1, "blocks");
        let read: Result<Vec<Item>, ReadError> = Reader::new(&bytes[..]).collect();
        assert_eq!(read.expect("whole"), items);
    }
}
