//! What a build printed. In: its bytes. Out: the lines that tell why it failed, and the whole for a file.

use std::collections::VecDeque;

/// Bytes of the begin and of the end that are kept: a whole driver prints some 3 MB.
const BEGIN: usize = 8 << 20;
const END: usize = 64 << 10;

/// Lines that are shown: the first errors, and the end.
const ERRORS: usize = 8;
const LAST: usize = 12;

/// How compilers, make, shells and configure scripts mark what went wrong.
const MARKS: [&str; 6] = ["error:", "*** ", "No such file", "not found", "ermission denied", "undefined"];

#[derive(Clone, Debug, Default)]
pub(super) struct BuildLog {
    begin: Vec<u8>,
    end: VecDeque<u8>,
    left_out: u64,
}

impl BuildLog {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(BEGIN - self.begin.len()));
        self.begin.extend(first);
        self.end.extend(rest);
        let too_many = self.end.len().saturating_sub(END);
        self.end.drain(..too_many);
        self.left_out += too_many as u64;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begin.is_empty()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut all = self.begin.clone();
        if self.left_out > 0 {
            all.extend(format!("\n[{} bytes are left out here]\n", self.left_out).bytes());
        }
        all.extend(&self.end);
        all
    }

    /// The first lines that report an error, and the last ones.
    pub(super) fn excerpt(&self) -> Vec<String> {
        let bytes = self.bytes();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let (before, last) = lines.split_at(lines.len().saturating_sub(LAST));
        let is_error = |line: &&&str| MARKS.iter().any(|mark| line.contains(mark));
        let errors = before.iter().filter(is_error).take(ERRORS).map(|line| format!("  {line}"));
        let mut shown: Vec<String> = errors.collect();
        if !shown.is_empty() {
            shown.insert(0, "first errors of the build:".to_owned());
        }
        if !last.is_empty() {
            shown.push("end of the build's output:".to_owned());
        }
        shown.extend(last.iter().map(|line| format!("  {line}")));
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_shown_as_well_as_the_end() {
        let mut log = BuildLog::default();
        assert!(log.is_empty() && log.excerpt().is_empty());
        log.push(b"checking for gcc... yes\nx.c:1:10: fatal error: config.h: No such file\n");
        for line in 0..40 {
            log.push(format!("line {line}\n").as_bytes());
        }
        let shown = log.excerpt();
        assert_eq!(
            shown[..3],
            [
                "first errors of the build:",
                "  x.c:1:10: fatal error: config.h: No such file",
                "end of the build's output:"
            ]
        );
        assert_eq!(shown.len(), 3 + LAST);
        assert_eq!((shown[3].as_str(), shown.last().map(String::as_str)), ("  line 28", Some("  line 39")));
    }

    #[test]
    fn a_log_without_end_is_bounded() {
        let mut log = BuildLog::default();
        for _ in 0..10 {
            log.push(&vec![b'a'; 1 << 20]);
        }
        log.push(b"\nlast\n");
        let bytes = log.bytes();
        assert!(bytes.len() < BEGIN + END + 100 && bytes.ends_with(b"\nlast\n"), "{}", bytes.len());
        assert_eq!(log.left_out, (2 << 20) + 6 - END as u64);
    }
}
