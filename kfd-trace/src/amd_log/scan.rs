//! Parses a line from its front, piece by piece.

use memchr::memmem;

/// Rest of a line. A piece that does not match is not consumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineScan<'a>(pub(super) &'a [u8]);

impl<'a> LineScan<'a> {
    /// Consumes this text.
    pub(super) fn tag(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text.as_bytes())?;
        Some(())
    }

    pub(super) fn spaces(&mut self) {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    /// Consumes decimal digits, at least one, of a number below 2^64.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        self.0.first().filter(|byte| byte.is_ascii_digit())?;
        self.digits(0)
    }

    /// Consumes the further digits, if there are any, of a number below 2^64 whose first ones are those of `value`.
    #[inline]
    pub(super) fn digits(&mut self, mut value: u64) -> Option<u64> {
        let mut digits = 0;
        for byte in self.0 {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
            digits += 1;
        }
        self.0 = &self.0[digits..];
        Some(value)
    }

    /// Consumes hexadecimal digits, 1 to 16, with or without `0x`.
    pub(super) fn hex(&mut self) -> Option<u64> {
        let digits = self.0.strip_prefix(b"0x").unwrap_or(self.0);
        let length = digits.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if !(1..=16).contains(&length) {
            return None;
        }
        let value = digits[..length].iter().fold(0u64, |value, byte| {
            let digit = char::from(*byte).to_digit(16).unwrap_or(0);
            value << 4 | u64::from(digit)
        });
        self.0 = &digits[length..];
        Some(value)
    }

    /// Returns what is before this text, and consumes both.
    pub(super) fn until(&mut self, text: &str) -> Option<&'a [u8]> {
        let at = memmem::find(self.0, text.as_bytes())?;
        let before = &self.0[..at];
        self.0 = &self.0[at + text.len()..];
        Some(before)
    }

    /// Finds `NAME[a, b, c]` anywhere in the rest; consumes nothing.
    pub(super) fn triple(self, name: &str) -> Option<[u64; 3]> {
        let mut scan = self;
        scan.until(name)?;
        let mut of = [0; 3];
        for (index, value) in of.iter_mut().enumerate() {
            *value = scan.number()?;
            scan.tag(if index < 2 { ", " } else { "]" })?;
        }
        Some(of)
    }

    /// Finds the number after the first `NAME`; consumes nothing.
    pub(super) fn field(self, name: &str) -> Option<u64> {
        let mut scan = self;
        scan.until(name)?;
        scan.number()
    }

    /// Whether a number can end here: at the end of the line, a comma, a bracket or a space.
    pub(super) fn ends(self) -> bool {
        matches!(self.0.first(), None | Some(b',' | b')' | b' '))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stop_where_they_end() {
        let mut scan = LineScan(b"12x");
        assert_eq!((scan.number(), scan.0, scan.number()), (Some(12), b"x".as_slice(), None));
        assert_eq!(LineScan(b"18446744073709551616").number(), None);
        assert_eq!(LineScan(b"18446744073709551615").number(), Some(u64::MAX));
        let mut scan = LineScan(b"0x7fAd66c00000, ");
        assert_eq!((scan.hex(), scan.0), (Some(0x7fad_66c0_0000), b", ".as_slice()));
        assert_eq!(LineScan(b"7f316f4006c0]").hex(), Some(0x7f31_6f40_06c0));
        assert_eq!((LineScan(b"0x").hex(), LineScan(b"00000000000000001").hex()), (None, None));
    }

    #[test]
    fn triples_are_whole_or_nothing() {
        assert_eq!(LineScan(b"a, grid=[20480, 1, 2], b").triple("grid=["), Some([20480, 1, 2]));
        assert_eq!(LineScan(b"grid=[20480, 1, 2").triple("grid=["), None);
        assert_eq!(LineScan(b"grid=[1, 2]").triple("grid=["), None);
    }
}
