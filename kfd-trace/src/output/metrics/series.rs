//! Families with a series for each process or queue: written as text, without an object for each label.

use super::family::number;
use super::sample::{Sample, TextFamily};
use super::table::Metric;
use crate::text::{escape, exposition};
use std::collections::BTreeSet;

/// Position of labels among those of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(usize);

/// The labels that follow those of the process, in the order of the exposition.
pub(super) struct Ranked<K> {
    /// Ordered by key.
    ranks: Vec<(K, Rank)>,
    /// By rank: all that stands between the labels of the process and the value.
    texts: Vec<String>,
}

impl<K: Ord> Ranked<K> {
    /// `keys`: all that can occur. `values`: their label values.
    pub(super) fn new<const N: usize>(
        names: [&str; N],
        keys: impl IntoIterator<Item = K>,
        values: impl Fn(&K) -> [String; N],
    ) -> Self {
        // Most are equal to another: `collect` would sort them all, and an insertion costs more than a look.
        let mut different = BTreeSet::new();
        for key in keys {
            if !different.contains(&key) {
                different.insert(key);
            }
        }
        let safe = |key: &K| values(key).map(|value| escape::terminal(&value));
        let mut sorted: Vec<([String; N], K)> = different.into_iter().map(|key| (safe(&key), key)).collect();
        sorted.sort();
        let mut all = Ranked { ranks: Vec::with_capacity(sorted.len()), texts: Vec::new() };
        let mut last = None;
        for (values, key) in sorted {
            if last.as_ref() != Some(&values) {
                all.texts.push(rest(names, &values));
            }
            all.ranks.push((key, Rank(all.texts.len() - 1)));
            last = Some(values);
        }
        all.ranks.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// `None` for a key that [`Ranked::new`] was not given.
    pub(super) fn known(&self, key: &K) -> Option<Rank> {
        let at = self.ranks.partition_point(|(other, _)| other < key);
        self.ranks.get(at).filter(|(found, _)| found == key).map(|(_, rank)| *rank)
    }

    /// # Panics
    /// For a key that [`Ranked::new`] was not given: its series would be missing.
    pub(super) fn rank(&self, key: &K) -> Rank {
        let at = self.ranks.partition_point(|(other, _)| other < key);
        let (found, rank) = &self.ranks[at];
        assert!(found == key, "labels of something else");
        *rank
    }
}

fn rest<const N: usize>(names: [&str; N], values: &[String; N]) -> String {
    let mut text = String::new();
    for (name, value) in names.iter().zip(values) {
        text.push(',');
        exposition::label(&mut text, name, value);
    }
    text.push_str("} ");
    text
}

/// A family that is being written, process by process.
pub(super) struct Series<'a> {
    metric: &'static Metric,
    /// The begin of the lines of a process, after the end of the line before: that is one call less for each line.
    head: String,
    /// How much of it is that of every line.
    begin: usize,
    texts: &'a [String],
    /// Of the process that is being written.
    own: Vec<(Rank, Sample)>,
    text: String,
}

impl<'a> Series<'a> {
    pub(super) fn new<K>(metric: &'static Metric, labels: &'a Ranked<K>) -> Self {
        let head = format!("\n{}{{", metric.name);
        let begin = head.len();
        Series { metric, head, begin, texts: &labels.texts, own: Vec::new(), text: String::new() }
    }

    /// Adds to a series, which starts at 0.
    pub(super) fn add(&mut self, rank: Rank, value: u64) {
        self.own.push((rank, Sample::More(number(value))));
    }

    /// Adds nanoseconds to a series of seconds, which starts at 0.
    pub(super) fn add_ns(&mut self, rank: Rank, ns: u64) {
        self.own.push((rank, Sample::More(number(ns) / 1e9)));
    }

    pub(super) fn set(&mut self, rank: Rank, value: f64) {
        self.own.push((rank, Sample::Number(value)));
    }

    /// Writes the series of a process; call it in the order of processes.
    pub(super) fn end(&mut self, identity: &str) {
        if self.own.is_empty() {
            return;
        }
        // Nearly always it is sorted. A stable sort: values with equal labels keep their order.
        if !self.own.is_sorted_by_key(|(rank, _)| *rank) {
            self.own.sort_by_key(|(rank, _)| *rank);
        }
        self.own.dedup_by(|(next_rank, next), (rank, value)| {
            let same = next_rank == rank;
            if same {
                value.merge(*next);
            }
            same
        });
        self.head.truncate(self.begin);
        self.head.push_str(identity);
        // No line is before the first one.
        let mut head = &self.head[usize::from(self.text.is_empty())..];
        for (rank, value) in self.own.drain(..) {
            self.text.push_str(head);
            head = &self.head;
            self.text.push_str(&self.texts[rank.0]);
            exposition::number(&mut self.text, value.number());
        }
    }

    pub(super) fn family(mut self) -> TextFamily {
        debug_assert!(self.own.is_empty(), "a process was not ended");
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        TextFamily { metric: self.metric, series: self.text }
    }
}
