//! Reads the files of a folder as one recording.

use super::files::found;
use crate::recording::item::{Begin, Closed, Item, Part};
use crate::recording::read::{Items, ReadError, Reader};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// A daemon's files, in their order.
#[derive(Clone, Debug)]
pub struct Folder {
    files: Vec<PathBuf>,
}

impl Folder {
    /// # Errors
    /// If it cannot be read, or has no recording of a daemon.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let files: Vec<PathBuf> = found(folder)?.into_iter().map(|file| file.path).collect();
        if files.is_empty() {
            return Err(io::Error::new(ErrorKind::NotFound, "no recordings of a daemon are in this folder"));
        }
        Ok(Folder { files })
    }

    /// Its files, in their order.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// How each file begins, with its place; without those of which nothing can be read.
    fn begins(&self) -> impl Iterator<Item = (usize, Begin)> {
        let begin = |path: &PathBuf| match reader(path).ok()?.next() {
            Some(Ok(Item::Begin(begin))) => Some(begin),
            _ => None,
        };
        self.files.iter().enumerate().filter_map(move |(at, path)| Some((at, begin(path)?)))
    }

    /// How the first one begins.
    #[must_use]
    pub fn first(&self) -> Option<Begin> {
        self.begins().next().map(|(_, begin)| begin)
    }

    /// All items, or those from the last file on that begins at or before this time, nanoseconds of the Unix epoch.
    #[must_use]
    pub fn items(&self, from_unix_ns: Option<i64>) -> Merged {
        let before = |from| self.begins().filter(|(_, begin)| begin.unix_ns <= from).last();
        let first = from_unix_ns.and_then(before).map_or(0, |(at, _)| at);
        let files = self.files[first..].iter().cloned().collect();
        Merged::new(files)
    }
}

pub(super) fn reader(path: &Path) -> io::Result<Reader<BufReader<File>>> {
    Ok(Reader::new(BufReader::with_capacity(64 << 10, File::open(path)?)))
}

/// The items of several files. Of a file that goes on where the last one ended the initial state is passed over; before
/// another one comes its [`Item::Begin`].
pub struct Merged {
    files: VecDeque<PathBuf>,
    reader: Option<Reader<BufReader<File>>>,
    /// The part of the last file.
    last: Option<Part>,
    /// It ended so that the next one may go on.
    goes_on: bool,
    /// Within an initial state that is known.
    skips: bool,
    /// Lines that begin so are passed over.
    passed: &'static [&'static str],
    /// The end of each file is an item, and not that of the last one alone.
    with_ends: bool,
    /// Bytes of text of the files before.
    text_bytes: u64,
}

impl Merged {
    fn new(files: VecDeque<PathBuf>) -> Self {
        let (goes_on, skips, with_ends) = (false, false, false);
        Merged { files, reader: None, last: None, goes_on, skips, passed: &[], with_ends, text_bytes: 0 }
    }

    /// With the end of each file as an item, and without lines that begin so.
    pub(super) fn with_ends_without(files: VecDeque<PathBuf>, passed: &'static [&'static str]) -> Self {
        Merged { passed, with_ends: true, ..Merged::new(files) }
    }

    /// The next file comes.
    fn close(&mut self) {
        self.text_bytes = self.text_bytes();
        self.reader = None;
    }

    /// What is returned of a file's item, if anything.
    fn of_file(&mut self, item: Item) -> Option<Item> {
        match item {
            Item::Begin(begin) => {
                let before = self.last.filter(|_| self.goes_on);
                self.skips = before.zip(begin.part).is_some_and(|(before, part)| part.follows(&before));
                (self.last, self.goes_on) = (begin.part, false);
                (!self.skips).then_some(Item::Begin(begin))
            }
            Item::Existing if self.skips => {
                self.skips = false;
                None
            }
            // They are of now, and not of the state.
            Item::Clock { .. } | Item::Sight { .. } | Item::Lost { .. } => Some(item),
            _ if self.skips => None,
            Item::Close { why, .. } => {
                self.goes_on = why == Closed::Rotated;
                (self.with_ends || self.files.is_empty()).then_some(item)
            }
            item => Some(item),
        }
    }
}

impl Iterator for Merged {
    type Item = Result<Item, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(reader) = &mut self.reader else {
                match self::reader(&self.files.pop_front()?) {
                    Ok(reader) => self.reader = Some(reader.without(self.passed)),
                    // A daemon removed it meanwhile: what it had is missing.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Some(Err(error.into())),
                }
                continue;
            };
            match reader.next() {
                Some(Ok(item)) => {
                    if let Some(item) = self.of_file(item) {
                        return Some(Ok(item));
                    }
                }
                // A crash, and the daemon began anew: the next file shows that something is missing.
                Some(Err(ReadError::Cut | ReadError::Damaged(_))) if !self.files.is_empty() => self.close(),
                Some(Err(error)) => {
                    self.files.clear();
                    return Some(Err(error));
                }
                None => self.close(),
            }
        }
    }
}

impl Items for Merged {
    fn text_bytes(&self) -> u64 {
        self.text_bytes + self.reader.as_ref().map_or(0, Items::text_bytes)
    }
}
