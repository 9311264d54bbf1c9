//! A family under construction: values by labels, so that each series stands once.

use std::collections::BTreeMap;

use kfd_trace_common::stat::upper_edge_ns;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, MetricFamily, MetricType};

use super::table::{Kind, Metric};
use crate::state::IoctlSum;

/// Buckets of the kernel's histogram that are exported: every second edge, since each is a series.
const EDGE_STEP: usize = 2;

pub(super) struct Family {
    metric: &'static Metric,
    values: BTreeMap<Vec<String>, Value>,
}

enum Value {
    Number(f64),
    Histogram(Box<IoctlSum>),
}

#[expect(clippy::cast_precision_loss, reason = "the exposition format has doubles only")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

impl Family {
    pub(super) fn new(metric: &'static Metric) -> Self {
        Self { metric, values: BTreeMap::new() }
    }

    /// A family with one series and no labels.
    pub(super) fn single(metric: &'static Metric, value: f64) -> Self {
        let mut family = Self::new(metric);
        family.set(&[], value);
        family
    }

    fn key(&self, labels: &[&str]) -> Vec<String> {
        debug_assert_eq!(labels.len(), self.metric.labels.len(), "{}", self.metric.name);
        labels.iter().map(|label| (*label).to_owned()).collect()
    }

    /// Adds to a series, which begins at 0.
    pub(super) fn add(&mut self, labels: &[&str], value: u64) {
        if let Value::Number(sum) = self.values.entry(self.key(labels)).or_insert(Value::Number(0.0)) {
            *sum += number(value);
        }
    }

    /// Adds nanoseconds to a series of seconds, which begins at 0.
    pub(super) fn add_ns(&mut self, labels: &[&str], ns: u64) {
        if let Value::Number(sum) = self.values.entry(self.key(labels)).or_insert(Value::Number(0.0)) {
            *sum += number(ns) / 1e9;
        }
    }

    pub(super) fn set(&mut self, labels: &[&str], value: f64) {
        self.values.insert(self.key(labels), Value::Number(value));
    }

    pub(super) fn histogram(&mut self, labels: &[&str], sum: IoctlSum) {
        self.values.insert(self.key(labels), Value::Histogram(Box::new(sum)));
    }

    /// `None` without a series: the format has no empty families.
    pub(super) fn build(self) -> Option<MetricFamily> {
        if self.values.is_empty() {
            return None;
        }
        let metric = self.metric;
        let mut family = MetricFamily::default();
        family.set_name(metric.name.to_owned());
        family.set_help(metric.help.to_owned());
        family.set_field_type(match metric.kind {
            Kind::Counter => MetricType::COUNTER,
            Kind::Gauge => MetricType::GAUGE,
            Kind::Histogram => MetricType::HISTOGRAM,
        });
        let series = self.values.into_iter().map(|(labels, value)| one(metric, labels, value));
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
        Value::Number(value) if metric.kind == Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            series.set_counter(counter);
        }
        Value::Number(value) => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            series.set_gauge(gauge);
        }
        Value::Histogram(sum) => series.set_histogram(histogram(&sum)),
    }
    series
}

/// Edges are exclusive in the kernel and inclusive in the format: the same for whole nanoseconds, but for a
/// latency of exactly the edge.
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
    // What the buckets hold, not `returned`: both are read while they change, and +Inf must equal the count.
    histogram.set_sample_count(below);
    histogram.set_sample_sum(number(sum.stat.latency_ns) / 1e9);
    histogram
}
