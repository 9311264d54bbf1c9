//! libtest's closing lines: read, summed over executables and kernels, written in the same form. Pure.

use std::fmt;
use std::time::Duration;

/// The results of one or several test executables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    pub(crate) measured: u64,
    pub(crate) filtered_out: u64,
}

impl Totals {
    /// `test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s`
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let rest = line.trim().strip_prefix("test result: ")?;
        let rest = rest.strip_prefix("ok. ").or_else(|| rest.strip_prefix("FAILED. "))?;
        let mut totals = Self::default();
        for part in rest.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let slot = match what {
                "passed" => &mut totals.passed,
                "failed" => &mut totals.failed,
                "ignored" => &mut totals.ignored,
                "measured" => &mut totals.measured,
                "filtered out" => &mut totals.filtered_out,
                _ => continue,
            };
            *slot = number.parse().ok()?;
        }
        Some(totals)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.measured += other.measured;
        self.filtered_out += other.filtered_out;
    }

    /// Tests that did run.
    pub(crate) fn run(&self) -> u64 {
        self.passed + self.failed + self.measured
    }

    /// The line in libtest's format.
    pub(crate) fn line(&self, ok: bool, took: Duration) -> String {
        let verdict = if ok { "ok" } else { "FAILED" };
        format!("test result: {verdict}. {self}; finished in {:.2}s", took.as_secs_f64())
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, ignored, measured, filtered_out } = self;
        write!(
            f,
            "{passed} passed; {failed} failed; {ignored} ignored; {measured} measured; {filtered_out} filtered out"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;
    use std::time::Duration;

    const OK: &str =
        "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.03s";
    const BAD: &str =
        "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.10s";

    #[test]
    fn lines_are_read_and_summed() {
        let mut totals = Totals::parse(OK).expect("a closing line");
        totals.add(Totals::parse(BAD).expect("a closing line"));
        let line = totals.line(false, Duration::from_millis(1500));
        assert_eq!(
            line,
            "test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 2 filtered out; finished in 1.50s"
        );
        assert_eq!(totals.run(), 6);
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        let totals = Totals::parse(OK).expect("a closing line");
        assert_eq!(Totals::parse(&totals.line(true, Duration::ZERO)), Some(totals));
    }

    #[test]
    fn other_lines_are_not_closing_lines() {
        for line in ["", "running 3 tests", "test result: maybe. 3 passed", "test result_is_kept ... ok"] {
            assert_eq!(Totals::parse(line), None, "{line}");
        }
    }
}
