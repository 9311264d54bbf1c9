//! A small family: values by labels, so that each series occurs once; for the library's encoder, or as text.

use super::sample::{Sample, TextFamily};
use super::table::{Metric, MetricKind};
use crate::state::IoctlSum;
use crate::text::{escape, exposition};
use kfd_trace_common::stat::{BUCKETS, upper_edge_ns};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, MetricFamily, MetricType};

/// Step between exported buckets of the kernel's histogram: every second edge, since each is a series.
const EDGE_STEP: usize = 2;

pub(super) struct Family {
    metric: &'static Metric,
    /// Values of each series, in insertion order. They arrive almost sorted, so sorting once at the end is
    /// cheaper than a lookup per series.
    values: Vec<(Vec<String>, Value)>,
}

enum Value {
    Sample(Sample),
    Histogram(Box<IoctlSum>),
}

impl Value {
    /// Merges the next value of the same series.
    fn merge(&mut self, next: Value) {
        match (self, next) {
            (Value::Sample(sample), Value::Sample(next)) => sample.merge(next),
            (own, next) => *own = next,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "the exposition format has doubles only")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

impl Family {
    pub(super) fn new(metric: &'static Metric) -> Self {
        Self { metric, values: Vec::new() }
    }

    /// A family with one series and no labels.
    pub(super) fn single(metric: &'static Metric, value: f64) -> Self {
        let mut family = Self::new(metric);
        family.set(&[], value);
        family
    }

    fn push(&mut self, labels: &[&str], value: Value) {
        debug_assert_eq!(labels.len(), self.metric.labels.len(), "{}", self.metric.name);
        self.values.push((labels.iter().map(|label| escape::terminal(label)).collect(), value));
    }

    /// Adds to a series, which starts at 0.
    pub(super) fn add(&mut self, labels: &[&str], value: u64) {
        self.push(labels, Value::Sample(Sample::More(number(value))));
    }

    /// Adds nanoseconds to a series of seconds, which starts at 0.
    pub(super) fn add_ns(&mut self, labels: &[&str], ns: u64) {
        self.push(labels, Value::Sample(Sample::More(number(ns) / 1e9)));
    }

    pub(super) fn set(&mut self, labels: &[&str], value: f64) {
        self.push(labels, Value::Sample(Sample::Number(value)));
    }

    pub(super) fn histogram(&mut self, labels: &[&str], sum: IoctlSum) {
        self.push(labels, Value::Histogram(Box::new(sum)));
    }

    /// Whether it is about the tracer itself.
    pub(super) fn is_tracers(&self) -> bool {
        self.metric.name.starts_with("kfd_trace_")
    }

    /// Each series once, in their order.
    fn sorted(self) -> Vec<(Vec<String>, Value)> {
        let mut values = self.values;
        // A stable sort: values with equal labels keep their order.
        values.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut series: Vec<(Vec<String>, Value)> = Vec::with_capacity(values.len());
        for (labels, value) in values {
            match series.last_mut() {
                Some((last, before)) if *last == labels => before.merge(value),
                _ => series.push((labels, value)),
            }
        }
        series
    }

    /// As text, which is what the library would encode.
    pub(super) fn write(self) -> TextFamily {
        let metric = self.metric;
        let edges = edges().filter(|_| metric.kind == MetricKind::Histogram);
        let edges: Vec<String> = edges.map(|(_, edge)| edge.to_string()).collect();
        let (mut series, mut labels) = (String::new(), String::new());
        for (values, value) in self.sorted() {
            labels.clear();
            for (name, value) in metric.labels.iter().zip(&values) {
                labels.push_str(if labels.is_empty() { "" } else { "," });
                exposition::label(&mut labels, name, value);
            }
            let mut line = |suffix: &str, labels: &str, value: f64| {
                series.push_str(metric.name);
                series.push_str(suffix);
                if !labels.is_empty() {
                    ["{", labels, "}"].iter().for_each(|part| series.push_str(part));
                }
                series.push(' ');
                exposition::number(&mut series, value);
                series.push('\n');
            };
            match value {
                Value::Sample(sample) => line("", &labels, sample.number()),
                Value::Histogram(sum) => {
                    let own = labels.len();
                    let (below, count) = buckets(&sum);
                    let inf = ("+Inf".to_owned(), count);
                    for (edge, below) in edges.iter().cloned().zip(below).chain([inf]) {
                        labels.truncate(own);
                        labels.push_str(if own == 0 { "" } else { "," });
                        exposition::label(&mut labels, "le", &edge);
                        line("_bucket", &labels, number(below));
                    }
                    line("_sum", &labels[..own], number(sum.stat.latency_ns) / 1e9);
                    line("_count", &labels[..own], number(count));
                }
            }
        }
        TextFamily { metric, series }
    }

    pub(super) fn build(self) -> MetricFamily {
        let metric = self.metric;
        let series = self.sorted();
        let mut family = MetricFamily::default();
        family.set_name(metric.name.to_owned());
        family.set_help(metric.help.to_owned());
        family.set_field_type(match metric.kind {
            MetricKind::Counter => MetricType::COUNTER,
            MetricKind::Gauge => MetricType::GAUGE,
            MetricKind::Histogram => MetricType::HISTOGRAM,
        });
        let series = series.into_iter().map(|(labels, value)| one(metric, labels, value));
        family.set_metric(series.collect());
        family
    }
}

fn one(metric: &Metric, labels: Vec<String>, value: Value) -> prometheus::proto::Metric {
    let labels = metric.labels.iter().zip(labels).map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value);
        pair
    });
    let mut series = prometheus::proto::Metric::from_label(labels.collect());
    match value {
        Value::Sample(value) if metric.kind == MetricKind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value.number());
            series.set_counter(counter);
        }
        Value::Sample(value) => {
            let mut gauge = Gauge::default();
            gauge.set_value(value.number());
            series.set_gauge(gauge);
        }
        Value::Histogram(sum) => series.set_histogram(histogram(&sum)),
    }
    series
}

/// Exported edges of the histogram, in seconds, and their buckets.
fn edges() -> impl Iterator<Item = (usize, f64)> {
    let all = (0..BUCKETS).step_by(EDGE_STEP);
    all.filter_map(|index| Some((index, number(upper_edge_ns(index)?) / 1e9)))
}

/// How many calls took less than each of the [`edges`], and how many there were. Edges are exclusive in the kernel
/// and inclusive in the format. For whole nanoseconds this only matters for a latency of exactly the edge.
fn buckets(sum: &IoctlSum) -> (Vec<u64>, u64) {
    let buckets = &sum.stat.buckets;
    let below = edges().map(|(index, _)| buckets[..=index].iter().sum()).collect();
    // The sum of the buckets, not `returned`: both are read while they change, and +Inf must equal the count.
    (below, buckets.iter().sum())
}

fn histogram(sum: &IoctlSum) -> Histogram {
    let mut histogram = Histogram::default();
    let (below, count) = buckets(sum);
    let buckets = edges().zip(below).map(|((_, edge), below)| {
        let mut bucket = Bucket::default();
        bucket.set_cumulative_count(below);
        bucket.set_upper_bound(edge);
        bucket
    });
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(count);
    histogram.set_sample_sum(number(sum.stat.latency_ns) / 1e9);
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::metrics::table as t;

    /// Labels and value of each series.
    fn built(family: Family) -> Vec<(Vec<String>, f64)> {
        let family = family.build();
        let series = family.get_metric().iter().map(|series| {
            let labels = series.get_label().iter().map(|pair| pair.value().to_owned()).collect();
            (labels, series.get_gauge().get_value())
        });
        series.collect()
    }

    #[test]
    fn each_series_occurs_once_in_any_order() {
        let mut family = Family::new(&t::QUEUES);
        family.add(&["9", "b"], 0);
        family.add(&["9", "a"], 1);
        family.set(&["8", "z"], 7.0);
        family.add(&["9", "b"], 2);
        family.add(&["8", "z"], 3);
        family.add(&["9", "b"], 4);
        family.set(&["9", "a"], 5.0);
        let series = [("8", "z", 10.0), ("9", "a", 5.0), ("9", "b", 6.0)];
        assert_eq!(
            built(family),
            series.map(|(gpu, kind, value)| (vec![gpu.to_owned(), kind.to_owned()], value))
        );
        assert!(Family::new(&t::QUEUES).build().get_metric().is_empty());
    }

    #[test]
    fn a_histogram_is_written_as_the_library_encodes_it() {
        let family = || {
            let mut family = Family::new(&t::IOCTL_DURATION);
            for (name, scale) in [("b", 1), ("a\\\"", 7), ("b", 3)] {
                let mut sum = IoctlSum::default();
                (0..).zip(&mut sum.stat.buckets).for_each(|(index, bucket)| *bucket = index * scale);
                sum.stat.latency_ns = 1_234_567_891 * scale;
                family.histogram(&[name], sum);
            }
            family
        };
        let encoded =
            prometheus::TextEncoder::new().encode_to_string(&[family().build()]).expect("well formed");
        let (_, series) = encoded.split_once("histogram\n").expect("a head");
        assert_eq!(family().write().series, series);
        assert_eq!(series.matches("le=\"+Inf\"} ").count(), 2);
    }
}
