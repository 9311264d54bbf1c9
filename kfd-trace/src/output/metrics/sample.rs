//! What a family is made of: values, and its series as text.

use super::table::Metric;

/// A family's series as text, without its head.
pub(super) struct TextFamily {
    pub(super) metric: &'static Metric,
    pub(super) series: String,
}

/// A value of a series that is no histogram.
#[derive(Clone, Copy)]
pub(super) enum Sample {
    /// Adds to the series, which starts at 0.
    More(f64),
    Number(f64),
}

impl Sample {
    /// Merges the next value of the same series.
    pub(super) fn merge(&mut self, next: Sample) {
        *self = match (*self, next) {
            (Sample::More(sum), Sample::More(more)) => Sample::More(sum + more),
            (Sample::Number(sum), Sample::More(more)) => Sample::Number(sum + more),
            (_, next) => next,
        }
    }

    pub(super) fn number(self) -> f64 {
        match self {
            Sample::More(value) | Sample::Number(value) => value,
        }
    }
}
