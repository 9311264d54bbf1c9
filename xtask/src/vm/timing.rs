//! Durations in the guests: read from the lines they report, with the clocks at each line. Pure.

use std::fmt::Write as _;
use std::time::Duration;

/// Readings of the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The guest's own, since its boot.
    pub(crate) guest: Duration,
    /// CPU time that QEMU has used: a boot's cost, however busy the host is.
    pub(crate) cpu: Duration,
    /// Tracers started so far.
    pub(crate) starts: u64,
}

impl Mark {
    fn since(self, before: Self) -> Self {
        Self {
            guest: self.guest.saturating_sub(before.guest),
            cpu: self.cpu.saturating_sub(before.cpu),
            starts: self.starts.saturating_sub(before.starts),
        }
    }
}

/// A test, or a stage including its preparation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    /// `Linux 6.12.1, stage sim`
    stage: String,
    /// Of a test; `None` for a stage.
    test: Option<String>,
    took: Mark,
}

/// What has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    steps: Vec<Step>,
    stage: String,
    /// When the stage and the test began.
    began: (Mark, Mark),
    /// A test that printed something before its end.
    speaking: Option<String>,
}

impl Timing {
    /// Processes a line of the guest's. A test's line is complete when the test has ended, unless the test
    /// has written to it: then its outcome is on a line of its own.
    pub(crate) fn line(&mut self, line: &str, now: Mark) {
        let outcome = |word: &str| word == "ok" || word == "FAILED" || word.starts_with("ignored");
        if let Some(stage) = line.strip_prefix("==> ") {
            // A guest's first stage includes its boot or resume.
            let cpu = if self.stage.is_empty() { Duration::ZERO } else { now.cpu };
            stage.clone_into(&mut self.stage);
            self.began = (Mark { cpu, ..now }, now);
            self.speaking = None;
        } else if let Some((test, rest)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            if outcome(rest) {
                self.test_ended(test.to_owned(), now);
            } else {
                self.speaking = Some(test.to_owned());
            }
        } else if let Some(test) = self.speaking.take_if(|_| outcome(line)) {
            self.test_ended(test, now);
        } else if line.starts_with("test result: ") {
            self.ended(None, now.since(self.began.0));
        }
    }

    fn test_ended(&mut self, test: String, now: Mark) {
        self.ended(Some(test), now.since(self.began.1));
        self.began.1 = now;
    }

    fn ended(&mut self, test: Option<String>, took: Mark) {
        self.steps.push(Step { stage: self.stage.clone(), test, took });
    }

    /// Something that is no stage and has no tests.
    pub(crate) fn of(what: String, took: Mark) -> Self {
        let step = Step { stage: what, test: None, took };
        Self { steps: vec![step], ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.steps.extend(other.steps);
    }

    /// No stage was run: each had passed before (`--resume`).
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// A table of the stages, and one of the tests that took most CPU time.
    pub(crate) fn tables(&self) -> String {
        let tests_of = |stage: &Step| {
            self.steps
                .iter()
                .filter(|step| step.test.is_some() && step.stage == stage.stage)
                .count()
                .to_string()
        };
        let stages = self.steps.iter().filter(|step| step.test.is_none());
        let mut stages: Vec<_> = stages.map(|stage| row(stage, &stage.stage, tests_of(stage))).collect();
        stages.sort();
        let mut text = table(["stage", "tests", "guest s", "CPU s", "starts"], &stages);
        let _ = writeln!(text);
        text += &self.tests("slowest tests", SLOWEST);
        text
    }

    /// A table of all tests.
    pub(crate) fn all(&self) -> String {
        self.tests("test", usize::MAX)
    }

    /// The tests that took most CPU time.
    fn tests(&self, head: &str, most: usize) -> String {
        let mut tests: Vec<&Step> = self.steps.iter().filter(|step| step.test.is_some()).collect();
        tests.sort_by_key(|test| std::cmp::Reverse(test.took.cpu));
        let rows = tests.into_iter().take(most);
        let rows = rows.map(|step| row(step, step.test.as_deref().unwrap_or_default(), step.stage.clone()));
        table([head, "stage", "guest s", "CPU s", "starts"], &rows.collect::<Vec<_>>())
    }
}

/// Tests that are listed.
const SLOWEST: usize = 10;

fn row(step: &Step, name: &str, second: String) -> [String; 5] {
    let Mark { guest, cpu, starts } = step.took;
    let seconds = |time: Duration| format!("{:.0}", time.as_secs_f64());
    [name.to_owned(), second, seconds(guest), seconds(cpu), starts.to_string()]
}

fn table(head: [&str; 5], rows: &[[String; 5]]) -> String {
    let head = head.map(str::to_owned);
    let lines = || std::iter::once(&head).chain(rows);
    let widths: [usize; 5] =
        std::array::from_fn(|column| lines().map(|line| line[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(guest: u64, starts: u64) -> Mark {
        Mark { guest: Duration::from_secs(guest), cpu: Duration::from_secs(2 * guest), starts }
    }

    #[test]
    fn stages_and_tests_are_timed_by_their_lines() {
        let mut timing = Timing::default();
        for (line, mark) in [
            ("==> Linux 6.12.1, stage sim", at(10, 0)),
            ("running 2 tests", at(11, 0)),
            ("test usual::quick ... ok", at(12, 1)),
            ("test usual::slow ... says something", at(20, 2)),
            ("and more", at(25, 2)),
            ("FAILED", at(30, 4)),
            (
                "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 20s",
                at(30, 4),
            ),
            ("==> Linux 6.12.1, stage life", at(31, 4)),
            (
                "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9s",
                at(40, 4),
            ),
        ] {
            timing.line(line, mark);
        }
        let mut all = Timing::default();
        all.add(timing);
        all.add(Timing::of("Linux 6.12.1, snapshots for sim".to_owned(), at(25, 0)));
        let tables = all.tables();
        let lines: Vec<&str> = tables.lines().collect();
        let expected = [
            "stage                            tests  guest s  CPU s  starts",
            "Linux 6.12.1, snapshots for sim  0           25     50       0",
            "Linux 6.12.1, stage life         0            9     18       0",
            "Linux 6.12.1, stage sim          2           20     60       4",
            "",
            "slowest tests  stage                    guest s  CPU s  starts",
            "usual::slow    Linux 6.12.1, stage sim       18     36       3",
            "usual::quick   Linux 6.12.1, stage sim        2      4       1",
        ];
        assert_eq!(lines, expected);
    }
}
