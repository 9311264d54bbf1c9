//! Where the items of a recording come from: a file, a pipe, or a folder of a daemon.

use crate::recording::{Begin, Closed, Folder, Item, ReadError, Reader};
use crate::runtime::exit::Stop;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// Chunks of items that the thread that reads may be ahead, and how many items a chunk has.
pub(in crate::command) const AHEAD: usize = 8;
pub(in crate::command) const CHUNK: usize = 1024;

/// Why a recording without its last item is not whole.
const NO_END: &str = "it has no end: it is still being written, or was cut between blocks";

/// Why a daemon's file is not all there was.
const GAP: &str = "what came next was lost; where a later file begins, it was recorded again";

/// Bytes per read, and per write.
pub(in crate::command) const BUFFER: usize = 64 << 10;

/// What is read.
pub(in crate::command) enum Source {
    Stream(Box<dyn Read + Send>),
    Folder(Folder),
}

pub(in crate::command) type Chunk = Vec<Result<Item, ReadError>>;

pub(in crate::command) type Items = dyn Iterator<Item = Result<Item, ReadError>>;

impl Source {
    /// Opens a recording; `-` is standard input.
    ///
    /// # Errors
    /// One line.
    pub(in crate::command) fn open(path: &Path) -> Result<Self, Stop> {
        if path.as_os_str() == "-" {
            return Ok(Source::Stream(Box::new(io::stdin())));
        }
        let cannot = |error| Stop::failed(format!("{}: {error}", path.display()));
        if fs::metadata(path).is_ok_and(|about| about.is_dir()) {
            return Folder::open(path).map(Source::Folder).map_err(cannot);
        }
        Ok(Source::Stream(Box::new(File::open(path).map_err(cannot)?)))
    }

    /// The begin of a folder's first file.
    pub(super) fn first(&self) -> Option<Begin> {
        match self {
            Source::Stream(_) => None,
            Source::Folder(folder) => folder.first(),
        }
    }

    /// Of a folder only what is needed from this time on, nanoseconds of the Unix epoch. Read by a thread: it takes as long
    /// as to print them.
    ///
    /// # Errors
    /// If there is no thread.
    pub(in crate::command) fn items(
        self,
        from_unix_ns: Option<i64>,
    ) -> io::Result<impl Iterator<Item = Result<Item, ReadError>>> {
        let (sender, chunks) = sync_channel(AHEAD);
        let items = move || -> Box<Items> {
            match self {
                Source::Stream(from) => Box::new(Reader::new(BufReader::with_capacity(BUFFER, from))),
                Source::Folder(folder) => Box::new(folder.items(from_unix_ns)),
            }
        };
        read_ahead(items, move |chunk| sender.send(chunk).is_ok())?;
        let chunks: Receiver<Chunk> = chunks;
        Ok(chunks.into_iter().flatten())
    }
}

/// Reads by a thread, which opens what it reads. `send`: false where nobody takes any more.
///
/// # Errors
/// If there is no thread.
pub(in crate::command) fn read_ahead(
    items: impl FnOnce() -> Box<Items> + Send + 'static,
    mut send: impl FnMut(Chunk) -> bool + Send + 'static,
) -> io::Result<()> {
    let read = move || {
        let mut items = items();
        loop {
            let chunk: Chunk = items.by_ref().take(CHUNK).collect();
            if chunk.is_empty() || !send(chunk) {
                return;
            }
        }
    };
    thread::Builder::new().name("reader".to_owned()).spawn(read).map(drop)
}

/// The first item.
pub(in crate::command) fn begin(items: &mut Items) -> Result<Begin, ReadError> {
    match items.next() {
        Some(Ok(Item::Begin(begin))) => Ok(begin),
        Some(Err(error)) => Err(error),
        _ => Err(ReadError::Foreign),
    }
}

/// How a recording ended.
#[derive(Debug, PartialEq)]
pub(in crate::command) enum Ended {
    Whole,
    /// What its tracer had lost until then.
    Lacking(String),
    Early(String),
}

impl Ended {
    /// Before the first item.
    pub(in crate::command) fn without_end() -> Self {
        Ended::Early(NO_END.to_owned())
    }

    /// With this item as the last one.
    pub(in crate::command) fn with(self, item: &Item) -> Self {
        match item {
            Item::End { .. } | Item::Close { why: Closed::Rotated | Closed::Stopped, .. } => Ended::Whole,
            Item::Close { why: Closed::Gap, .. } => Ended::Early(GAP.to_owned()),
            _ => self,
        }
    }
}
