//! The exposition as a whole, in the order of names: the tracer's own families by the library's registry and
//! encoder, the driver's as they were written.

use super::family::Family;
use super::sample::TextFamily;
use super::table::{self, Metric, MetricKind};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};
use std::sync::{Mutex, PoisonError};

/// Families that were made for one scrape. The registry orders them, and leaves out those without a series: the
/// format has none.
struct Made(Mutex<Vec<MetricFamily>>);

impl Collector for Made {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A format that Prometheus reads.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Format {
    /// The text format, version 0.0.4.
    #[default]
    Text,
    /// OpenMetrics 1.0: other heads of counters, and an end, so that half an exposition is no exposition.
    OpenMetrics,
}

impl Format {
    /// Its `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Adds what precedes the series of a family. No help has a character that is escaped in one of the formats
    /// (a test of the table).
    fn head(self, text: &mut String, metric: &Metric) {
        let Metric { name, help, kind, .. } = metric;
        let family = match self {
            // There `_total` is a part of the names of the series.
            Format::OpenMetrics if *kind == MetricKind::Counter => {
                name.strip_suffix("_total").unwrap_or(name)
            }
            Format::Text | Format::OpenMetrics => name,
        };
        for part in ["# HELP ", family, " ", help, "\n# TYPE ", family, " ", kind.name(), "\n"] {
            text.push_str(part);
        }
    }
}

/// # Errors
/// Only for a malformed family.
pub(super) fn write(
    format: Format,
    small: Vec<Family>,
    large: Vec<TextFamily>,
) -> Result<String, prometheus::Error> {
    let registry = Registry::new();
    let (own, drivers): (Vec<Family>, Vec<Family>) = small.into_iter().partition(Family::is_tracers);
    registry.register(Box::new(Made(Mutex::new(own.into_iter().map(Family::build).collect()))))?;
    let all = large.into_iter().chain(drivers.into_iter().map(Family::write));
    let mut large: Vec<_> = all.filter(|family| !family.series.is_empty()).collect();
    large.sort_by_key(|family| family.metric.name);
    let length = large.iter().map(|family| family.series.len()).sum::<usize>();
    let mut text = String::with_capacity(length + SMALL);
    let mut large = large.into_iter().peekable();
    for family in registry.gather() {
        while let Some(before) = large.next_if(|large| large.metric.name < family.name()) {
            written(format, &mut text, &before);
        }
        encoded(format, &mut text, family)?;
    }
    large.for_each(|family| written(format, &mut text, &family));
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    Ok(text)
}

/// More bytes than the tracer's own families and the heads of the others have.
const SMALL: usize = 64 << 10;

fn written(format: Format, text: &mut String, family: &TextFamily) {
    format.head(text, family.metric);
    text.push_str(&family.series);
}

/// The library knows the text format only: of OpenMetrics it writes the series, which are the same.
fn encoded(format: Format, text: &mut String, family: MetricFamily) -> Result<(), prometheus::Error> {
    let metric = table::find(family.name()).filter(|_| format == Format::OpenMetrics);
    let Some(metric) = metric else { return TextEncoder::new().encode_utf8(&[family], text) };
    let family = TextEncoder::new().encode_to_string(&[family])?;
    let series = family.splitn(HEAD + 1, '\n').nth(HEAD).unwrap_or_default();
    format.head(text, metric);
    text.push_str(series);
    Ok(())
}

/// Lines before the series of a family.
const HEAD: usize = 2;
