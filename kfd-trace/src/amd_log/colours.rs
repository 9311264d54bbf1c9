//! Removes colours from lines.

use memchr::memchr;

const ESCAPE: u8 = 0x1b;

/// Whether the line may contain an escape sequence.
#[inline]
pub(super) fn any(line: &[u8]) -> bool {
    memchr(ESCAPE, line).is_some()
}

/// Copies the line into `bare` without its control sequences (`ESC [ ... letter`). Of other escape sequences
/// only the escape is removed.
pub(super) fn strip(mut line: &[u8], bare: &mut Vec<u8>) {
    bare.clear();
    while let Some(at) = memchr(ESCAPE, line) {
        bare.extend_from_slice(&line[..at]);
        line = &line[at + 1..];
        if let [b'[', rest @ ..] = line {
            let parameters = rest.iter().take_while(|byte| matches!(byte, 0x20..=0x3f)).count();
            let last = usize::from(rest.get(parameters).is_some_and(|byte| matches!(byte, 0x40..=0x7e)));
            line = &rest[parameters + last..];
        }
    }
    bare.extend_from_slice(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_colours_is_kept() {
        let stripped = |line: &str| {
            let mut bare = b"old".to_vec();
            strip(line.as_bytes(), &mut bare);
            String::from_utf8(bare).unwrap()
        };
        assert_eq!(stripped("\x1b[32m:3:a:1: hip\x1b[0m ( 1 )\x1b[1;31m"), ":3:a:1: hip ( 1 )");
        assert_eq!(stripped("a\x1bb\x1b[32"), "ab");
        assert!(any(b"\x1b[0m") && !any(b"[0m"));
    }
}
