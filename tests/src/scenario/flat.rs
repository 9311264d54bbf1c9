//! Whether samples over a long time have stopped growing. Pure.

use std::fmt::Write as _;
use std::time::Duration;

/// How many figures a sample has.
pub const FIGURES: usize = 9;

/// A figure, and its limits.
#[derive(Clone, Copy, Debug)]
struct Figure {
    name: &'static str,
    /// Allowed growth beyond what is allowed to all.
    slack: u64,
    /// Allowed growth per additional remembered process.
    per_process: u64,
}

/// In the order of [`Sample::figures`]. A process that has ended is reported for some minutes: its cost is
/// that of `cargo xtask bench daemon`, and the rows of its ioctls.
const TABLE: [Figure; FIGURES] = [
    Figure { name: "rss_kib", slack: 64, per_process: 8 },
    Figure { name: "anon_kib", slack: 64, per_process: 8 },
    Figure { name: "threads", slack: 1, per_process: 0 },
    Figure { name: "fds", slack: 1, per_process: 0 },
    Figure { name: "maps", slack: 0, per_process: 0 },
    Figure { name: "maps_kib", slack: 16, per_process: 4 },
    Figure { name: "ioctl_rows", slack: 32, per_process: 16 },
    Figure { name: "errno_rows", slack: 16, per_process: 8 },
    Figure { name: "in_flight", slack: 1, per_process: 0 },
];

/// Allowed growth of all figures, per cent.
const TOLERANCE: u64 = 3;

/// One sample of a tracer at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Since the begin.
    pub at: Duration,
    pub operations: usize,
    /// Processes that ended and are still reported.
    pub remembered: u64,
    pub figures: [u64; FIGURES],
}

/// The line above [`Sample::row`]s.
#[must_use]
pub fn heading() -> String {
    let names = TABLE.iter().map(|figure| format!(" {:>10}", figure.name));
    format!("{:>7} {:>10} {:>10}{}", "minute", "operations", "remembered", names.collect::<String>())
}

impl Sample {
    #[must_use]
    pub fn row(&self) -> String {
        let minute = self.at.as_secs_f64() / 60.0;
        let mut row = format!("{minute:>7.2} {:>10} {:>10}", self.operations, self.remembered);
        for value in self.figures {
            // writing to a String cannot fail
            let _ = write!(row, " {value:>10}");
        }
        row
    }
}

/// The rule: for each figure the median of the last quarter of all samples is at most that of the second
/// quarter and a little more: a value reached by fewer than half of the samples is no growth. Returns one
/// line per figure that violates it; also a line if there are not enough samples to decide.
#[must_use]
pub fn grown(samples: &[Sample]) -> Vec<String> {
    let quarter = samples.len() / 4;
    let parts = (samples.get(quarter..2 * quarter), samples.get(samples.len() - quarter..));
    let (Some(second @ [_, _, ..]), Some(last)) = parts else {
        return vec![format!("{} samples are too few to tell", samples.len())];
    };
    let remembered = |part: &[Sample]| median(part, |sample| sample.remembered);
    let more = remembered(last).saturating_sub(remembered(second));
    let look = |(at, figure): (usize, &Figure)| {
        let [before, now] = [second, last].map(|part| median(part, |sample| sample.figures[at]));
        let allowed = before + before * TOLERANCE / 100 + figure.slack + figure.per_process * more;
        let name = figure.name;
        (now > allowed).then(|| {
            format!("{name} has grown: {now} in the last quarter, {before} in the second, {allowed} allowed")
        })
    };
    TABLE.iter().enumerate().filter_map(look).collect()
}

/// The upper one of an even number.
fn median(part: &[Sample], of: impl Fn(&Sample) -> u64) -> u64 {
    let mut values = Vec::from_iter(part.iter().map(of));
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(figure: usize, values: &[u64], remembered: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |(at, value): (u64, &u64)| {
            let mut figures = [100; FIGURES];
            figures[figure] = *value;
            Sample { at: Duration::from_secs(at), operations: 0, remembered: remembered(at), figures }
        };
        (0..).zip(values).map(sample).collect()
    }

    #[test]
    fn growth_at_the_begin_is_none_and_later_growth_is_named() {
        let settled = [1, 5000, 9990, 10_000, 9000, 10_000, 10_300, 10_364];
        assert_eq!(grown(&samples(0, &settled, |_| 5)), Vec::<String>::new());
        let mut growing = settled;
        growing[7] = 10_365;
        let line = "rss_kib has grown: 10365 in the last quarter, 10000 in the second, 10364 allowed";
        assert_eq!(grown(&samples(0, &growing, |_| 5)), [line]);
    }

    #[test]
    fn what_comes_and_goes_is_no_growth() {
        let once = [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 900, 9];
        assert_eq!(grown(&samples(4, &once, |_| 5)), Vec::<String>::new());
        let mut stays = once;
        stays[11] = 900;
        assert_eq!(grown(&samples(4, &stays, |_| 5)).len(), 1);
    }

    #[test]
    fn what_is_remembered_may_take_room() {
        let values = [0, 0, 0, 0, 0, 0, 0, 32 + 16 * 4];
        assert_eq!(grown(&samples(6, &values, |at| at)), Vec::<String>::new());
        assert_eq!(grown(&samples(6, &values, |_| 7)).len(), 1);
        assert_eq!(grown(&samples(4, &[9, 9, 9, 9, 9, 9, 9, 10], |at| at * 10)).len(), 1);
    }

    #[test]
    fn few_samples_tell_nothing() {
        assert_eq!(grown(&[]), ["0 samples are too few to tell"]);
        assert_eq!(grown(&samples(0, &[1; 7], |_| 0)).len(), 1);
    }

    #[test]
    fn a_row_stands_below_its_heading() {
        let sample = samples(0, &[12], |_| 3)[0];
        assert_eq!(sample.row().len(), heading().len());
        assert!(heading().ends_with("in_flight") && sample.row().starts_with("   0.00"));
    }
}
