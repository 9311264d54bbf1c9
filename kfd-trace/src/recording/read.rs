//! Reads a recording, block by block. In: bytes. Out: items, and why there are no more.

use super::VERSION;
use super::item::Item;
use std::io::{self, BufRead, Read as _};
use std::iter::Once;
use zstd::stream::read::Decoder;
use zstd::zstd_safe::{DCtx, DParameter};

/// Bytes of a block's text: a line of a sample of 100,000 queues has a fifth of it. More is meant to fill the memory.
const LARGEST: u64 = 128 << 20;

/// log2 of the bytes to which a block may refer: those of zstd's level 19, which the recorder is far below.
const WINDOW: u32 = 23;

/// Why a recording ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("it ends within a block: it is still being written, or the program or the machine stopped")]
    Cut,
    #[error("a block is damaged: {0}")]
    Damaged(String),
    #[error("it is no recording of kfd-trace")]
    Foreign,
    #[error("version {0} of the format; this program knows {VERSION}: use a newer one")]
    Newer(u32),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Items that are read from text. After an error there are no more; all before it are whole.
pub trait Items: Iterator<Item = Result<Item, ReadError>> {
    /// Bytes of text that were decompressed until now: whoever reads ahead bounds by it what waits.
    fn text_bytes(&self) -> u64;
}

/// A file that could not be opened.
impl Items for Once<Result<Item, ReadError>> {
    fn text_bytes(&self) -> u64 {
        0
    }
}

/// The items of a recording. Each is parsed when it is taken: a block of short lines has far less text than items.
pub struct Reader<R> {
    from: R,
    context: DCtx<'static>,
    /// The block, and where its next line begins.
    block: String,
    next: usize,
    text_bytes: u64,
    /// A frame of zstd has begun, and the first line was read.
    is_zstd: bool,
    begun: bool,
    over: bool,
    /// Lines that begin so are passed over.
    passed: &'static [&'static str],
}

impl<R: BufRead> Reader<R> {
    pub fn new(from: R) -> Self {
        let mut context = DCtx::create();
        // It is within libzstd's bounds.
        let _ = context.set_parameter(DParameter::WindowLogMax(WINDOW));
        let (block, next, text_bytes) = (String::new(), 0, 0);
        let (is_zstd, begun, over) = (false, false, false);
        Reader { from, context, block, next, text_bytes, is_zstd, begun, over, passed: &[] }
    }

    /// Passes over lines that begin so, unread.
    #[must_use]
    pub(super) fn without(self, passed: &'static [&'static str]) -> Self {
        Reader { passed, ..self }
    }

    /// The text of the next block, empty for a frame that is meant to be skipped; `None` at the end of the file.
    fn block(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let start = self.from.fill_buf()?;
        if start.is_empty() {
            return if self.begun { Ok(None) } else { Err(ReadError::Cut) };
        }
        if !self.is_zstd && !is_zstd(start) {
            return Err(ReadError::Foreign);
        }
        self.is_zstd = true;
        let mut text = Vec::new();
        let frame = Decoder::with_context(&mut self.from, &mut self.context).single_frame();
        let read = frame.take(LARGEST + 1).read_to_end(&mut text);
        match read {
            Ok(_) if text.len() as u64 <= LARGEST => Ok(Some(text)),
            Ok(_) => Err(ReadError::Damaged("it is larger than any recorder's".to_owned())),
            Err(error) => Err(self.why(error)),
        }
    }

    /// With no further input, an error is the end of the file, which came too early.
    fn why(&mut self, error: io::Error) -> ReadError {
        // libzstd's own errors have no number of the system.
        if error.raw_os_error().is_some() {
            return ReadError::Io(error);
        }
        match self.from.fill_buf() {
            Ok([]) => ReadError::Cut,
            Ok(_) => ReadError::Damaged(error.to_string()),
            Err(error) => ReadError::Io(error),
        }
    }

    /// The next line, in this block or a later one; `None` at the end of the file.
    fn line(&mut self) -> Result<Option<&str>, ReadError> {
        while self.next >= self.block.len() {
            // Its memory goes before there is another one.
            (self.block, self.next) = (String::new(), 0);
            let Some(text) = self.block()? else { return Ok(None) };
            self.block = String::from_utf8(text).map_err(|error| ReadError::Damaged(error.to_string()))?;
            self.text_bytes += self.block.len() as u64;
        }
        let rest = &self.block[self.next..];
        let line = rest.split_once('\n').map_or(rest, |(line, _)| line);
        self.next += line.len() + 1;
        Ok(Some(line))
    }

    fn item(&mut self) -> Result<Option<Item>, ReadError> {
        let (begun, passed) = (self.begun, self.passed);
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            if !begun {
                version(line)?;
            }
            if passed.iter().any(|begin| line.starts_with(begin)) {
                continue;
            }
            let item = serde_json::from_str(line).map_err(|error| ReadError::Damaged(error.to_string()))?;
            self.begun = true;
            return Ok(Some(item));
        }
    }
}

/// Whether a file begins as one of zstd, or as a frame that is meant to be skipped (RFC 8878, 3.1).
fn is_zstd(start: &[u8]) -> bool {
    let begins = |magic: [u8; 4]| start.iter().zip(magic).all(|(byte, expected)| *byte == expected);
    begins([0x28, 0xb5, 0x2f, 0xfd]) || (0x50..=0x5f).any(|first| begins([first, 0x2a, 0x4d, 0x18]))
}

/// Checks the first line, before it is read as this version has it.
fn version(line: &str) -> Result<(), ReadError> {
    let value: serde_json::Value = serde_json::from_str(line).map_err(|_| ReadError::Foreign)?;
    match value["begin"]["kfd_trace_recording"].as_u64().and_then(|version| u32::try_from(version).ok()) {
        Some(version) if version > VERSION => Err(ReadError::Newer(version)),
        Some(_) => Ok(()),
        None => Err(ReadError::Foreign),
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Item, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let item = self.item().transpose();
        self.over = !matches!(item, Some(Ok(_)));
        item
    }
}

impl<R: BufRead> Items for Reader<R> {
    fn text_bytes(&self) -> u64 {
        self.text_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::samples::{begin, compressed};
    use serde_json::json;
    use std::io::Write as _;
    use zstd::zstd_safe::CParameter;

    fn read(bytes: &[u8]) -> (Vec<Item>, Option<ReadError>) {
        let mut error = None;
        let items = Reader::new(bytes).map_while(|item| item.map_err(|why| error = Some(why)).ok());
        (items.collect(), error)
    }

    fn blocks() -> [Vec<u8>; 3] {
        let first = [Item::Begin(begin()), Item::Existing];
        [compressed(&first), compressed(&[Item::Existing]), compressed(&[Item::Existing, Item::Existing])]
    }

    #[test]
    fn what_is_cut_anywhere_is_read_to_its_last_whole_block() {
        let [first, second, third] = blocks();
        let whole = [first.clone(), second.clone(), third].concat();
        let ends = [(first.len(), 2), (first.len() + second.len(), 3), (whole.len(), 5)];
        for length in 0..first.len() {
            assert!(matches!(read(&whole[..length]), (_, Some(ReadError::Cut))), "{length} bytes");
        }
        for length in first.len()..=whole.len() {
            let (items, error) = read(&whole[..length]);
            let expected = ends.iter().rev().find(|(end, _)| *end <= length).map(|(_, count)| *count);
            assert_eq!(Some(items.len()), expected, "{length} bytes");
            let is_whole = ends.iter().any(|(end, _)| *end == length);
            assert_eq!(matches!(error, Some(ReadError::Cut)), !is_whole, "{length} bytes: {error:?}");
        }
    }

    #[test]
    fn a_damaged_block_is_reported_after_what_was_before_it() {
        let [first, second, third] = blocks();
        let mut bytes = [first, second, third].concat();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let (items, error) = read(&bytes);
        assert_eq!(items.len(), 3);
        assert!(matches!(error, Some(ReadError::Damaged(_))), "{error:?}");
    }

    #[test]
    fn another_file_and_a_newer_version_are_refused() {
        let of = |value: serde_json::Value| {
            zstd::bulk::compress(value.to_string().as_bytes(), 1).expect("a frame")
        };
        assert!(matches!(read(b""), (_, Some(ReadError::Cut))), "it was begun, and nothing written yet");
        for foreign in [b"# text".to_vec(), of(json!({"event": "open"})), of(json!(7))] {
            assert!(matches!(read(&foreign), (items, Some(ReadError::Foreign)) if items.is_empty()));
        }
        let newer = of(json!({"begin": {"kfd_trace_recording": VERSION + 1, "unlike": []}}));
        assert!(matches!(read(&newer), (items, Some(ReadError::Newer(3))) if items.is_empty()));
    }

    #[test]
    fn a_block_that_would_fill_the_memory_is_refused() {
        let bomb = crate::recording::compress(&vec![b' '; usize::try_from(LARGEST).expect("bytes") + 1])
            .expect("a frame");
        assert!(bomb.len() < 1 << 20, "{}", bomb.len());
        assert!(matches!(read(&bomb), (_, Some(ReadError::Damaged(_)))));
    }
    #[test]
    fn a_block_that_refers_to_what_is_far_away_is_refused() {
        let of = |window: u32| {
            let mut whole = zstd::Encoder::new(Vec::new(), 1).expect("a frame");
            whole.set_parameter(CParameter::WindowLog(window)).expect("a window");
            for item in [Item::Begin(begin()), Item::Existing] {
                serde_json::to_writer(&mut whole, &item).expect("memory");
                whole.write_all(b"\n").expect("memory");
            }
            whole.finish().expect("memory")
        };
        assert!(matches!(read(&of(WINDOW)), (items, None) if items.len() == 2));
        assert!(matches!(read(&of(WINDOW + 1)), (_, Some(ReadError::Damaged(_)))));
    }

    #[test]
    fn what_is_meant_to_be_skipped_is_passed_over() {
        let [first, second, third] = blocks();
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let whole = [&skipped[..], &first, &skipped, &second, &third, &skipped].concat();
        assert!(matches!(read(&whole), (items, None) if items.len() == 5));
        for cut in 1..skipped.len() {
            assert!(
                matches!(read(&whole[..whole.len() - cut]), (items, Some(ReadError::Cut)) if items.len() == 5)
            );
        }
    }

    #[test]
    fn an_error_of_the_disk_and_what_is_appended_are_told_apart() {
        /// Once; then its file ends.
        #[derive(Default)]
        struct Broken(bool);
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    Ok(0)
                } else {
                    Err(io::Error::from_raw_os_error(5))
                }
            }
        }
        let [first, second, _] = blocks();
        let half = [&first[..], &second[..second.len() / 2]].concat();
        let all: Vec<_> = Reader::new(io::BufReader::new(half.chain(Broken::default()))).collect();
        assert!(matches!(all[..], [Ok(_), Ok(_), Err(ReadError::Io(_))]), "{all:?}");
        let appended = [&first[..], b"more"].concat();
        assert!(matches!(read(&appended), (items, Some(ReadError::Damaged(_))) if items.len() == 2));
    }
}
