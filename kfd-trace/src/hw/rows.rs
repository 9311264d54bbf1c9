//! Lines of either dump: a row of dwords, or words between two rows (kfd_debugfs.c; seq_hex_dump and dump_hqd).

use std::collections::BTreeMap;

/// Lines that are not understood are counted, and the first ones are kept.
const KEPT: usize = 3;

/// Bytes kept of such a line.
const LONGEST: usize = 80;

/// What was not understood, so that nothing is left out silently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strange {
    pub lines: usize,
    /// Number and text of the first ones.
    pub first: BTreeMap<usize, String>,
}

impl Strange {
    /// `number`: of the line, from 1 on.
    pub(super) fn add(&mut self, number: usize, line: &str) {
        self.lines += 1;
        if self.first.len() < KEPT {
            let line = line.trim();
            let end = line.floor_char_boundary(LONGEST);
            self.first.insert(number, line[..end].to_owned());
        }
    }
}

/// A row of up to eight dwords, and the offset or address of its first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) at: u32,
    pub(super) dwords: Vec<u32>,
}

/// `None`: it is no such row.
pub(super) fn row(line: &str) -> Option<Row> {
    let (at, words) = line.trim().split_once(':')?;
    let dword = |word: &str| {
        let hex = word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hex { u32::from_str_radix(word, 16).ok() } else { None }
    };
    let at = dword(at)?;
    let dwords: Vec<u32> = words.split_whitespace().map(dword).collect::<Option<_>>()?;
    (1..=8).contains(&dwords.len()).then_some(Row { at, dwords })
}

/// Number, from 1 on, of the line within which a text ends.
pub(super) fn cut_line(text: &str) -> Option<usize> {
    (!text.is_empty() && !text.ends_with('\n')).then(|| text.lines().count())
}

/// The rest of a line behind `words`, with other spaces between them allowed at its begin.
pub(super) fn after<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    line.trim().strip_prefix(words).map(str::trim)
}

/// A decimal number that ends a field.
pub(super) fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// A hexadecimal number, with or without `0x`.
pub(super) fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_an_offset_and_up_to_eight_dwords() {
        let read = row("    00000020: 00000000 0000000a").unwrap();
        assert_eq!(read, Row { at: 0x20, dwords: vec![0, 10] });
        for no_row in ["", "Node 2, gpu_id f7bc:", "  00000000:", "  0: 00000000", "  00000000: 0000000"] {
            assert_eq!(row(no_row), None, "{no_row}");
        }
        assert_eq!(row(&format!("00000000:{}", " 00000001".repeat(9))), None, "more than a row has");
    }

    #[test]
    fn what_is_not_understood_is_counted_and_the_first_is_kept() {
        let mut strange = Strange::default();
        for number in 1..=5 {
            strange.add(number, &"é".repeat(100));
        }
        assert_eq!((strange.lines, strange.first.len()), (5, KEPT));
        assert_eq!(strange.first[&1], "é".repeat(LONGEST / 2));
    }
}
