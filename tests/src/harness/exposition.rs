//! Prometheus' text format, as far as tests need it: samples by name and labels.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};

pub type Labels = BTreeMap<String, String>;

/// One scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    pub samples: BTreeMap<(String, Labels), f64>,
    /// Metric name to `counter`, `gauge`, `histogram`...
    pub types: BTreeMap<String, String>,
    pub with_help: BTreeSet<String>,
}

impl Metrics {
    pub fn parse(text: &str) -> Result<Self> {
        let mut metrics = Self::default();
        for (number, line) in text.lines().enumerate() {
            metrics.line(line).with_context(|| format!("line {}: `{line}`", number + 1))?;
        }
        Ok(metrics)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("no type")?;
            self.types.insert(name.to_owned(), kind.to_owned());
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, _) = rest.split_once(' ').context("no help")?;
            self.with_help.insert(name.to_owned());
        } else if !line.is_empty() && !line.starts_with('#') {
            let (key, value) = sample(line)?;
            ensure!(self.samples.insert(key, value).is_none(), "this series was there before");
        }
        Ok(())
    }

    /// The sum over all series of `name` that have these labels, among others; `None` if there is no such
    /// series, which is not the same as 0.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut matching = self
            .series(name)
            .filter(|(have, _)| labels.iter().all(|(key, value)| have.get(*key).is_some_and(|v| v == value)))
            .map(|(_, value)| value)
            .peekable();
        matching.peek()?;
        Some(matching.sum())
    }

    /// The counts since an earlier scrape: counters and histograms minus their earlier values, 0 for a series
    /// that did not exist then; gauges unchanged.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (key, value) in &mut since.samples {
            if self.counts(&key.0) {
                *value -= before.samples.get(key).copied().unwrap_or(0.0);
            }
        }
        since
    }

    /// Whether a sample's name is one of a counter or a histogram.
    fn counts(&self, name: &str) -> bool {
        let is = |name: &str, kind: &str| self.types.get(name).is_some_and(|reported| reported == kind);
        let mut ends = ["_bucket", "_sum", "_count"].iter();
        is(name, "counter")
            || ends.any(|end| name.strip_suffix(end).is_some_and(|name| is(name, "histogram")))
    }

    pub fn series<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Labels, f64)> {
        self.samples.iter().filter(move |(key, _)| key.0 == name).map(|(key, value)| (&key.1, *value))
    }
}

/// `name{key="value",...} number [timestamp]`
fn sample(line: &str) -> Result<((String, Labels), f64)> {
    let end = line.find(['{', ' ']).context("no value")?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"").context("no label value")?;
            let (value, after) = label_value(after)?;
            labels.insert(key.to_owned(), value);
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let number = rest.split_whitespace().next().context("no value")?;
    Ok(((name.to_owned(), labels), number.parse().context("value")?))
}

/// Up to the closing quote, with `\\`, `\"` and `\n` undone; and what follows the quote.
fn label_value(text: &str) -> Result<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                _ => bail!("no such escape"),
            },
            other => value.push(other),
        }
    }
    bail!("a label value without an end")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP kfd_x_total Calls.\n# TYPE kfd_x_total counter\n\
        kfd_x_total{ioctl=\"GET_VERSION\",errno=\"\"} 12\nkfd_x_total{ioctl=\"GET_VERSION\",errno=\"EBADF\"} 3\n\
        up 1 1700000000\n";

    #[test]
    fn series_are_summed_over_the_labels_not_named() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert_eq!(metrics.sum("kfd_x_total", &[("ioctl", "GET_VERSION")]), Some(15.0));
        assert_eq!(metrics.sum("kfd_x_total", &[("errno", "EBADF")]), Some(3.0));
        assert_eq!(metrics.sum("up", &[]), Some(1.0));
        assert_eq!(metrics.types["kfd_x_total"], "counter");
    }

    #[test]
    fn a_missing_series_is_not_zero() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert_eq!(metrics.sum("kfd_x_total", &[("errno", "EINVAL")]), None);
        assert_eq!(metrics.sum("kfd_y_total", &[]), None);
    }

    #[test]
    fn label_values_are_unescaped() {
        let metrics = Metrics::parse("a{c=\"x,\\\"y}\\\\\\n\",d=\"\"} +Inf\n").unwrap();
        let ((_, labels), value) = metrics.samples.first_key_value().unwrap();
        assert_eq!((labels["c"].as_str(), labels["d"].as_str(), *value), ("x,\"y}\\\n", "", f64::INFINITY));
    }

    #[test]
    fn only_what_counts_is_reported_since() {
        let at = |n: u32| {
            let text = format!(
                "# TYPE a counter\na{{l=\"x\"}} {n}\n# TYPE b gauge\nb {n}\n# TYPE c histogram\nc_count {n}\nd_count {n}\n"
            );
            Metrics::parse(&text).unwrap()
        };
        let since = at(7).since(&at(5));
        let reported = ["a", "b", "c_count", "d_count"].map(|name| since.sum(name, &[]));
        assert_eq!(reported, [Some(2.0), Some(7.0), Some(2.0), Some(7.0)]);
        assert_eq!(at(7).since(&Metrics::default()), at(7));
    }

    #[test]
    fn a_series_given_twice_or_half_is_refused() {
        for text in ["a 1\na 2\n", "a{b=\"c} 1\n", "a{b} 1\n", "a\n", "a x\n"] {
            assert!(Metrics::parse(text).is_err(), "{text:?}");
        }
    }
}
