//! Text encodings by a byte order mark. In: chunks as they are read. Out: bytes of UTF-8, without the mark.
//!
//! PowerShell's `>` writes UTF-16, and many editors put a mark before UTF-8.

/// Longest mark, bytes.
const MARK: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// Passed on as it is: also what is not UTF-8 at all.
    Bytes,
    Utf16Little,
    Utf16Big,
}

/// Decoder of one input; holds at most a mark or an unfinished character.
#[derive(Clone, Debug, Default)]
pub(super) struct Decoder {
    /// `None` until the first bytes are known.
    encoding: Option<Encoding>,
    held: Vec<u8>,
    text: Vec<u8>,
}

impl Decoder {
    /// Decodes the next chunk. Unpaired surrogates become U+FFFD.
    pub(super) fn decode<'a>(&'a mut self, chunk: &'a [u8]) -> &'a [u8] {
        match self.encoding {
            Some(Encoding::Bytes) => chunk,
            Some(Encoding::Utf16Little) => self.utf16(chunk, u16::from_le_bytes),
            Some(Encoding::Utf16Big) => self.utf16(chunk, u16::from_be_bytes),
            None => self.begin(chunk),
        }
    }

    fn begin<'a>(&'a mut self, chunk: &'a [u8]) -> &'a [u8] {
        self.held.extend_from_slice(chunk);
        let (encoding, mark) = match &self.held[..] {
            [0xff, 0xfe, ..] => (Encoding::Utf16Little, 2),
            [0xfe, 0xff, ..] => (Encoding::Utf16Big, 2),
            [0xef, 0xbb, 0xbf, ..] => (Encoding::Bytes, MARK),
            [] | [0xff | 0xfe] | [0xef] | [0xef, 0xbb] => return &[],
            _ => (Encoding::Bytes, 0),
        };
        self.encoding = Some(encoding);
        let mut first = std::mem::take(&mut self.held);
        first.drain(..mark);
        if encoding == Encoding::Bytes {
            self.text = first;
            return &self.text;
        }
        self.decode_owned(&first)
    }

    fn decode_owned(&mut self, first: &[u8]) -> &[u8] {
        match self.encoding {
            Some(Encoding::Utf16Big) => self.utf16(first, u16::from_be_bytes),
            _ => self.utf16(first, u16::from_le_bytes),
        }
    }

    fn utf16(&mut self, chunk: &[u8], unit: fn([u8; 2]) -> u16) -> &[u8] {
        self.held.extend_from_slice(chunk);
        let (pairs, odd) = self.held.as_chunks::<2>();
        let mut units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
        let mut rest = odd.to_vec();
        // The other half of a character is in the next chunk.
        if units.last().is_some_and(|last| (0xd800..0xdc00).contains(last)) {
            units.pop();
            rest = self.held[units.len() * 2..].to_vec();
        }
        self.held = rest;
        self.text.clear();
        for character in char::decode_utf16(units) {
            let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        &self.text
    }

    /// Bytes of a mark or a character that are not complete at the end of the input.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(chunks: &[&[u8]]) -> (String, Vec<u8>) {
        let mut decoder = Decoder::default();
        let text: Vec<u8> = chunks.iter().flat_map(|chunk| decoder.decode(chunk).to_vec()).collect();
        (String::from_utf8(text).unwrap(), decoder.finish())
    }

    #[test]
    fn text_is_the_same_wherever_the_chunks_end() {
        let text = ":3:a:1: 7 us: \u{1f600} \u{e4}\n";
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for input in [
            text.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            [b"\xff\xfe", &little[..]].concat(),
            [b"\xfe\xff", &big[..]].concat(),
        ] {
            for at in 0..input.len() {
                assert_eq!(decoded(&[&input[..at], &input[at..]]), (text.to_owned(), Vec::new()), "{at}");
            }
            let single: Vec<&[u8]> = input.chunks(1).collect();
            assert_eq!(decoded(&single).0, text);
        }
    }

    #[test]
    fn what_is_not_whole_is_kept_or_marked() {
        assert_eq!(decoded(&[b"\xff\xfea\0b"]), ("a".to_owned(), vec![b'b']));
        assert_eq!(decoded(&[b"\xff\xfe\x00\xdca\0"]).0, "\u{fffd}a");
        assert_eq!(decoded(&[b"\xef\xbb"]), (String::new(), b"\xef\xbb".to_vec()));
        assert_eq!(decoded(&[]), (String::new(), Vec::new()));
    }
}
