//! Builds a family: values by labels, so that each series occurs once.

use super::table::{Metric, MetricKind};
use crate::state::IoctlSum;
use crate::text::escape;
use kfd_trace_common::stat::upper_edge_ns;
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
    /// Adds to the series, which starts at 0.
    More(f64),
    Number(f64),
    Histogram(Box<IoctlSum>),
}

impl Value {
    /// Merges the next value of the same series.
    fn then(&mut self, next: Value) {
        *self = match (&*self, next) {
            (Value::More(sum), Value::More(more)) => Value::More(sum + more),
            (Value::Number(sum), Value::More(more)) => Value::Number(sum + more),
            (_, next) => next,
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
        self.push(labels, Value::More(number(value)));
    }

    /// Adds nanoseconds to a series of seconds, which starts at 0.
    pub(super) fn add_ns(&mut self, labels: &[&str], ns: u64) {
        self.push(labels, Value::More(number(ns) / 1e9));
    }

    pub(super) fn set(&mut self, labels: &[&str], value: f64) {
        self.push(labels, Value::Number(value));
    }

    pub(super) fn histogram(&mut self, labels: &[&str], sum: IoctlSum) {
        self.push(labels, Value::Histogram(Box::new(sum)));
    }

    /// `None` without a series: the format has no empty families.
    pub(super) fn build(self) -> Option<MetricFamily> {
        let Self { metric, mut values } = self;
        if values.is_empty() {
            return None;
        }
        // A stable sort: values with equal labels keep their order.
        values.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut series: Vec<(Vec<String>, Value)> = Vec::with_capacity(values.len());
        for (labels, value) in values {
            match series.last_mut() {
                Some((last, before)) if *last == labels => before.then(value),
                _ => series.push((labels, value)),
            }
        }
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
        Some(family)
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
        Value::More(value) | Value::Number(value) if metric.kind == MetricKind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            series.set_counter(counter);
        }
        Value::More(value) | Value::Number(value) => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            series.set_gauge(gauge);
        }
        Value::Histogram(sum) => series.set_histogram(histogram(&sum)),
    }
    series
}

/// Converts the histogram. Edges are exclusive in the kernel and inclusive in the format. For whole
/// nanoseconds this only matters for a latency of exactly the edge.
fn histogram(sum: &IoctlSum) -> Histogram {
    let mut histogram = Histogram::default();
    let mut below = 0;
    let mut buckets = Vec::new();
    for (index, count) in sum.stat.buckets.iter().enumerate() {
        below += count;
        if let Some(edge) = upper_edge_ns(index).filter(|_| index % EDGE_STEP == 0) {
            let mut bucket = Bucket::default();
            bucket.set_cumulative_count(below);
            bucket.set_upper_bound(number(edge) / 1e9);
            buckets.push(bucket);
        }
    }
    histogram.set_bucket(buckets);
    // The sum of the buckets, not `returned`: both are read while they change, and +Inf must equal the count.
    histogram.set_sample_count(below);
    histogram.set_sample_sum(number(sum.stat.latency_ns) / 1e9);
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::metrics::table as t;

    /// Labels and value of each series.
    fn built(family: Family) -> Vec<(Vec<String>, f64)> {
        let family = family.build().expect("it has series");
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
        assert!(Family::new(&t::QUEUES).build().is_none());
    }
}
