//! One file, or standard input.

use super::bar::{Bar, INTERVAL};
use super::compressed::Compression;
use crate::amd_log::Lines;
use crate::amd_log::lines::LogLine;
use crate::amd_log::report::LogInput;
use crate::runtime::exit::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes per read: they fit into a processor's second-level cache, and calls are few.
const CHUNK: usize = 256 << 10;

/// Set by a signal: the report covers what was read until then.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndFlag(Arc<AtomicBool>);

impl EndFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A source and what is known about it.
pub(crate) struct LogSource {
    pub(super) path: PathBuf,
    /// It has the same position in the file as `text`. `None`: for pipes and compressed files.
    pub(super) file: Option<File>,
    text: Box<dyn Read + Send>,
    /// The pipe that must have bytes before a read.
    pipe: Option<OwnedFd>,
    lines: Lines,
    input: LogInput,
    /// Bytes; 0: unknown.
    size: u64,
    failure: Option<String>,
    chunk: Vec<u8>,
}

impl LogSource {
    /// # Errors
    /// One line: it cannot be opened, or not followed.
    pub(crate) fn open(path: &Path, follow: bool) -> Result<LogSource, Stop> {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let cannot = |error: io::Error| {
            Stop::failed(format!("cannot read {name}: {error}; name a log of AMD_LOG_LEVEL"))
        };
        let opened = if is_stdin {
            io::stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(path)
        };
        LogSource::of(path, name.clone(), opened.map_err(cannot)?, follow)
    }

    /// The same of a file that is open, `name`d for messages.
    ///
    /// # Errors
    /// As of [`LogSource::open`].
    pub(crate) fn of(path: &Path, name: String, mut file: File, follow: bool) -> Result<LogSource, Stop> {
        let is_stdin = path == Path::new("-");
        let cannot = |error: io::Error| {
            Stop::failed(format!("cannot read {name}: {error}; name a log of AMD_LOG_LEVEL"))
        };
        let about = file.metadata().map_err(cannot)?;
        if about.is_dir() {
            return Err(Stop::failed(format!("{name} is a folder; name the logs in it")));
        }
        let regular = about.is_file();
        if follow && (is_stdin || !regular) {
            return Err(Stop::usage(format!(
                "{name} cannot be followed (it is a pipe, and read to its end anyway); omit --follow"
            )));
        }
        let (compression, text, file, pipe) = if regular {
            let compression = Compression::of(&first_bytes(&mut file).map_err(cannot)?);
            let same = file.try_clone().map_err(cannot)?;
            let text: Box<dyn Read + Send> = match compression {
                Some(compression) => compression.text(BufReader::with_capacity(CHUNK, file)),
                None => Box::new(file),
            };
            (compression, text, compression.is_none().then_some(same), None)
        } else {
            let pipe = file.as_fd().try_clone_to_owned().map_err(cannot)?;
            let mut buffered = BufReader::with_capacity(CHUNK, file);
            let compression = Compression::of(buffered.fill_buf().map_err(cannot)?);
            let text: Box<dyn Read + Send> = match compression {
                Some(compression) => compression.text(buffered),
                None => Box::new(buffered),
            };
            (compression, text, None, Some(pipe))
        };
        if let (Some(compression), true) = (compression, follow) {
            let of = compression.name();
            return Err(Stop::usage(format!(
                "{name} is compressed ({of}) and cannot be followed; leave --follow out"
            )));
        }
        let size = if file.is_some() { about.len() } else { 0 };
        let input = LogInput { name, compression: compression.map(Compression::name), ..LogInput::default() };
        let (path, chunk) = (path.to_owned(), vec![0; CHUNK]);
        Ok(LogSource { path, file, text, pipe, lines: Lines::default(), input, size, failure: None, chunk })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Its name, and why it could not be read to its end.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Reads to the end, or until a signal.
    pub(super) fn read_all(&mut self, each: &mut dyn FnMut(LogLine<'_>), end: &EndFlag, bar: &Bar) {
        while self.read_some(each, bar) {
            if end.is_set() {
                self.input.problem = Some("a signal ended the reading".to_owned());
                return;
            }
        }
    }

    /// Reads the next bytes, or waits a moment for them; `false` at the end.
    pub(super) fn read_some(&mut self, each: &mut dyn FnMut(LogLine<'_>), bar: &Bar) -> bool {
        if self.pipe.as_ref().is_some_and(|pipe| !has_bytes(pipe)) {
            return true;
        }
        match self.text.read(&mut self.chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.input.bytes += count as u64;
                bar.read(count as u64);
                self.lines.push(&self.chunk[..count], each);
                true
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(error) => {
                self.stopped(&error);
                false
            }
        }
    }

    fn stopped(&mut self, error: &io::Error) {
        let why = if self.input.compression.is_some() && error.kind() == ErrorKind::UnexpectedEof {
            "the end of the compressed data is missing".to_owned()
        } else {
            format!("it cannot be read any further: {error}")
        };
        self.failure = Some(format!("{}: {why}", self.input.name));
        self.input.problem = Some(why);
    }

    /// Continues at the start of this file, which is now at the path.
    pub(super) fn begin_anew(&mut self, mut file: File) -> io::Result<()> {
        file.rewind()?;
        self.text = Box::new(file.try_clone()?);
        self.file = Some(file);
        self.lines.forget();
        self.input.restarts += 1;
        Ok(())
    }

    /// The summary of the source.
    pub(crate) fn finish(mut self) -> LogInput {
        self.input.cut = self.lines.forget();
        self.input.nuls = self.lines.nuls();
        self.input
    }
}

/// Up to four; the position in the file is unchanged.
fn first_bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    let place = file.stream_position()?;
    file.take(4).read_to_end(&mut first)?;
    file.seek(SeekFrom::Start(place))?;
    Ok(first)
}

/// `true` also at the end, and if it cannot be queried: then the read shows it.
fn has_bytes(pipe: &OwnedFd) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: INTERVAL.subsec_nanos().into() };
    !matches!(poll(&mut [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)], Some(&timeout)), Ok(0))
}
