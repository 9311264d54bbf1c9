//! Compressed files: recognized by their first bytes, not by their names.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use std::io::{self, BufRead, ErrorKind, Read};

/// The compression by the file's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    pub(super) fn of(first: &[u8]) -> Option<Compression> {
        match first {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }

    /// The decompressed text.
    pub(super) fn text<R: BufRead + Send + 'static>(self, from: R) -> Box<dyn Read + Send> {
        match self {
            Compression::Gzip => Box::new(MultiGzDecoder::new(from)),
            Compression::Zstd => Box::new(Zstd { from, decoder: FrameDecoder::new(), within: false }),
        }
    }
}

/// Any number of frames; skippable frames are skipped. A frame requires the memory of its window, 128 MiB at
/// most.
struct Zstd<R> {
    from: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> Zstd<R> {
    /// An error with no input left is the end of the file, which came too early.
    fn why(&mut self, error: FrameDecoderError) -> io::Error {
        match self.from.fill_buf() {
            Ok([]) => ErrorKind::UnexpectedEof.into(),
            Ok(_) => io::Error::other(error),
            Err(error) => error,
        }
    }

    /// `false`: there is none.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.from.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.from) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut (&mut self.from).take(u64::from(length)), &mut io::sink())?;
                }
                Err(error) => return Err(self.why(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        use ruzstd::decoding::BlockDecodingStrategy::UptoBlocks;
        loop {
            if !self.within {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.within = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                if let Err(error) = self.decoder.decode_blocks(&mut self.from, UptoBlocks(1)) {
                    return Err(self.why(error));
                }
            }
            let count = self.decoder.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            self.within = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression as Level;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write as _;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut out = GzEncoder::new(Vec::new(), Level::fast());
        out.write_all(text).unwrap();
        out.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn read(bytes: Vec<u8>) -> (Vec<u8>, io::Result<()>) {
        let mut text = Vec::new();
        let mut from = Compression::of(&bytes).unwrap().text(io::Cursor::new(bytes));
        let done = from.read_to_end(&mut text).map(|_| ());
        (text, done)
    }

    #[test]
    fn several_parts_in_one_file_are_one_text() {
        let long = b"line of text\n".repeat(100_000);
        for pack in [gzip, zstd] {
            let (text, done) = read([pack(&long), pack(b"last\n")].concat());
            assert!(done.is_ok() && text == [long.as_slice(), b"last\n"].concat());
        }
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3].to_vec();
        let (text, done) = read([skipped, zstd(b"text")].concat());
        assert!(done.is_ok() && text == b"text");
        assert_eq!(Compression::of(b":3:rocdevice.cpp"), None);
    }

    #[test]
    fn what_is_damaged_is_not_taken_for_a_cut() {
        let mut bytes = zstd(b"text");
        bytes.extend([0; 100]);
        let (text, done) = read(bytes);
        assert_eq!((text.as_slice(), done.unwrap_err().kind()), (b"text".as_slice(), ErrorKind::Other));
    }

    #[test]
    fn a_cut_file_gives_what_is_before_the_cut() {
        let mut text = String::new();
        for number in 0..200_000u64 {
            text.push_str(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string());
        }
        for pack in [gzip, zstd] {
            let mut bytes = pack(text.as_bytes());
            bytes.truncate(bytes.len() * 2 / 3);
            let (read, done) = read(bytes);
            assert_eq!(done.unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert!(read.len() > text.len() / 3, "{}", read.len());
            assert!(text.as_bytes().starts_with(&read));
        }
    }
}
