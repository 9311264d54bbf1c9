//! A time in a recording, as a user gives it. In: text, and when the recording begins. Out: a time.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::str::FromStr;

/// A time in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    At(Timestamp),
    /// When clocks of the reader's zone show this.
    Local(DateTime),
    /// The first time that they show this.
    OfDay(Time),
    /// After the begin.
    After(SignedDuration),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let after = text
            .strip_prefix('+')
            .and_then(|span| span.parse().ok())
            .filter(|span| !SignedDuration::is_negative(span));
        // A date alone is a DateTime, too, and a date with a time a Time.
        let has_time = text.contains(':');
        let has_date = text.contains('-');
        after
            .map(When::After)
            .or_else(|| text.parse().ok().map(When::At))
            .or_else(|| text.parse().ok().filter(|_| has_time && has_date).map(When::Local))
            .or_else(|| text.parse().ok().filter(|_| has_time && !has_date).map(When::OfDay))
            .ok_or_else(|| "try 14:03:27, 2026-11-24T14:03:27Z or +90s (after its begin)".to_owned())
    }
}

impl When {
    /// Nanoseconds of the Unix epoch. `begin_ns`: of the recording, likewise. `None`: outside of the years that these
    /// can express.
    #[must_use]
    pub fn unix_ns(self, begin_ns: i64, zone: &TimeZone) -> Option<i64> {
        let begin = Timestamp::from_nanosecond(i128::from(begin_ns)).ok()?;
        let at = match self {
            When::At(at) => at,
            When::Local(at) => at.to_zoned(zone.clone()).ok()?.timestamp(),
            When::After(span) => begin.checked_add(span).ok()?,
            When::OfDay(time) => {
                let day = begin.to_zoned(zone.clone());
                let first = day.with().time(time).build().ok()?;
                let first = if first < day {
                    first.date().tomorrow().ok()?.to_datetime(time).to_zoned(zone.clone()).ok()?
                } else {
                    first
                };
                first.timestamp()
            }
        };
        i64::try_from(at.as_nanosecond()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;
    /// 2026-09-21T14:13:20Z
    const BEGIN: i64 = 1_790_000_000 * S;

    fn seconds(text: &str) -> Option<i64> {
        let when: When = text.parse().ok()?;
        when.unix_ns(BEGIN, &TimeZone::UTC).map(|at| (at - BEGIN) / S)
    }

    #[test]
    fn a_time_is_absolute_or_of_the_day_or_after_the_begin() {
        let texts =
            ["2026-09-21T14:13:30Z", "2026-09-21T16:13:30+02:00", "14:13:30", "14:13:30.5", "+10s", "+1m30s"];
        assert_eq!(texts.map(seconds), [Some(10), Some(10), Some(10), Some(10), Some(10), Some(90)]);
        assert_eq!(
            ["2026-09-21T14:13:30", "2026-09-21 14:13:30"].map(seconds),
            [Some(10); 2],
            "in the reader's zone"
        );
        assert_eq!(seconds("2026-09-20T14:13:30"), Some(10 - 24 * 3600), "the date counts");
        assert_eq!(seconds("14:13"), Some(24 * 3600 - 20), "of the next day: it was over at the begin");
    }

    #[test]
    fn what_is_no_time_is_refused_with_examples() {
        for text in ["", "10s", "+", "+-5s", "yesterday", "25:00", "2026-09-21", "14", "141330"] {
            let why = text.parse::<When>().expect_err(text);
            assert!(why.contains("+90s"), "{why}");
        }
    }
}
