//! CLOCK_MONOTONIC to times for people and machines.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::cell::RefCell;

/// Converts CLOCK_MONOTONIC nanoseconds to wall-clock time.
#[derive(Clone, Debug)]
pub struct Clock {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, nanoseconds. It changes when the wall clock is set: the caller
    /// renews it.
    pub mono_to_wall_ns: i128,
    /// For text; JSON is in UTC.
    pub zone: TimeZone,
}

impl Clock {
    fn timestamp(&self, mono_ns: u64) -> Option<Timestamp> {
        Timestamp::from_nanosecond(i128::from(mono_ns).checked_add(self.mono_to_wall_ns)?).ok()
    }

    /// RFC 3339 in UTC with nanoseconds: `2026-11-21T05:49:28.000000001Z`. `None` outside the years that it
    /// can express.
    #[must_use]
    pub fn rfc3339(&self, mono_ns: u64) -> Option<String> {
        rfc3339(self.unix_ns(mono_ns)?)
    }

    /// Nanoseconds since the Unix epoch. `None` outside 1677 to 2262.
    #[must_use]
    pub fn unix_ns(&self, mono_ns: u64) -> Option<i64> {
        i128::from(mono_ns).checked_add(self.mono_to_wall_ns)?.try_into().ok()
    }

    /// Time of day in the zone, with microseconds: `05:49:28.000001`.
    #[must_use]
    pub fn time_of_day(&self, mono_ns: u64) -> String {
        self.timestamp(mono_ns).map_or_else(
            || "--:--:--.------".to_owned(),
            |at| {
                let time = self.zone.to_datetime(at).time();
                let micros = time.subsec_nanosecond() / 1000;
                format!("{:02}:{:02}:{:02}.{micros:06}", time.hour(), time.minute(), time.second())
            },
        )
    }
}

/// Formats nanoseconds since the Unix epoch as RFC 3339 in UTC with nanoseconds.
#[must_use]
pub fn rfc3339(unix_ns: i64) -> Option<String> {
    let (second, ns) = (unix_ns.div_euclid(NS), unix_ns.rem_euclid(NS));
    let mut text = String::with_capacity("2026-11-21T05:49:28.000000001Z".len());
    SECOND.with_borrow_mut(|(last, begin)| {
        if *last != second || begin.is_empty() {
            let at = Timestamp::from_second(second).ok()?;
            *last = second;
            *begin = at.to_string().trim_end_matches('Z').to_owned();
        }
        text += begin;
        Some(())
    })?;
    let mut digits = *b".000000000Z";
    let mut left = ns.unsigned_abs();
    for digit in digits[1..=9].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    text += str::from_utf8(&digits).ok()?;
    Some(text)
}

const NS: i64 = 1_000_000_000;

thread_local! {
    /// The second that was formatted last, without its end: events often share it, and a date takes as long as the
    /// rest of a short line.
    static SECOND: RefCell<(i64, String)> = const { RefCell::new((0, String::new())) };
}

/// A latency: `800ns`, `12.3us`, `4.56ms`, `1.20s`.
#[must_use]
pub fn latency(ns: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{:.1}us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}ms", value / 1e6),
        _ => format!("{:.2}s", value / 1e9),
    }
}

/// A duration of any length: formatted as a latency below a minute, else as an age.
#[must_use]
pub fn span(ns: u64) -> String {
    if ns < 60_000_000_000 { latency(ns) } else { age(ns) }
}

/// An age in whole seconds: `42s`, `5m 3s`, `2d 3h 4m 5s`; below a second in milliseconds.
#[must_use]
pub fn age(ns: u64) -> String {
    if ns < 1_000_000_000 {
        return format!("{}ms", ns / 1_000_000);
    }
    let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
    let printer = jiff::fmt::friendly::SpanPrinter::new();
    let days = seconds / 86_400;
    let rest = printer.duration_to_string(&SignedDuration::from_secs(seconds % 86_400));
    if days == 0 { rest } else { format!("{days}d {rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        Clock { mono_to_wall_ns: 1_790_000_000_000_000_000, zone }
    }

    #[test]
    fn wall_clock_is_monotonic_plus_the_offset() {
        assert_eq!(clock().rfc3339(1).as_deref(), Some("2026-09-21T14:13:20.000000001Z"));
        assert_eq!(clock().rfc3339(1_500_000_000).as_deref(), Some("2026-09-21T14:13:21.500000000Z"));
        assert_eq!(clock().time_of_day(1_500_000), "16:13:20.001500");
        assert_eq!(rfc3339(-1).as_deref(), Some("1969-12-31T23:59:59.999999999Z"));
        assert_eq!(rfc3339(0).as_deref(), Some("1970-01-01T00:00:00.000000000Z"));
        let broken = Clock { mono_to_wall_ns: i128::MAX, ..clock() };
        assert_eq!((broken.rfc3339(1), broken.time_of_day(1).as_str()), (None, "--:--:--.------"));
    }

    #[test]
    fn durations_have_a_unit() {
        let shown: Vec<_> = [0, 999, 12_340, 4_560_000, 1_200_000_000].map(latency).into();
        assert_eq!(shown, ["0ns", "999ns", "12.3us", "4.56ms", "1.20s"]);
        assert_eq!((span(59_999_999_999), span(60_000_000_000)), ("60.00s".to_owned(), "1m".to_owned()));
        assert_eq!(age(12_000_000), "12ms");
        assert_eq!(age(303_900_000_000), "5m 3s");
        assert_eq!(age(183_845_000_000_000), "2d 3h 4m 5s");
    }
}
