//! Where the items of a recording come from: a file, a pipe, or a folder of a daemon.

use crate::model::verdict::Sight;
use crate::recording::{self, Begin, Closed, Folder, Item, ReadError, Reader};
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::text::escape;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// Chunks of items that the thread that reads may be ahead, and how many items, and bytes of text, a chunk has.
pub(in crate::command) const AHEAD: usize = 8;
pub(in crate::command) const CHUNK: usize = 1024;
const CHUNK_TEXT: u64 = 1 << 20;

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

/// What is left of them.
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
        let items = move || -> Box<dyn recording::Items> {
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

/// Reads by a thread, which opens what it reads. `send`: false where nobody takes any more. A chunk of much text is followed
/// by empty ones, which take its places among those that wait: anybody can write a recording of long lines.
///
/// # Errors
/// If there is no thread.
pub(in crate::command) fn read_ahead(
    items: impl FnOnce() -> Box<dyn recording::Items> + Send + 'static,
    mut send: impl FnMut(Chunk) -> bool + Send + 'static,
) -> io::Result<()> {
    let read = move || {
        let mut items = items();
        loop {
            let begin = items.text_bytes();
            let mut chunk = Chunk::new();
            while chunk.len() < CHUNK && items.text_bytes() - begin < CHUNK_TEXT {
                let Some(item) = items.next() else { break };
                chunk.push(item);
            }
            let is_over = chunk.is_empty();
            if is_over || !send(chunk) {
                return;
            }
            let places = (items.text_bytes() - begin) / CHUNK_TEXT;
            if !(1..places).take(AHEAD).all(|_| send(Chunk::new())) {
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

/// What its tracer did not see, reported once per line.
#[derive(Default)]
pub(in crate::command) struct Gaps(BTreeSet<String>);

/// Lines that are reported at most: a tracer has one per topic.
const MOST_GAPS: usize = 100;

impl Gaps {
    pub(in crate::command) fn report(&mut self, sight: &Sight) {
        for gap in sight.gaps() {
            if self.0.len() < MOST_GAPS && !self.0.contains(&gap) {
                say(escape::terminal(&gap));
                self.0.insert(gap);
            }
        }
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
