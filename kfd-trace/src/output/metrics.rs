//! Prometheus families, rebuilt at each scrape: removed objects leave no series behind.
//!
//! `kfd_*` describe the driver, `kfd_trace_*` the tracer itself. A family whose probe is not attached is not
//! exported: 0 would mean that nothing happened.

use prometheus::TextEncoder;
use prometheus::proto::MetricFamily;

mod activity;
mod collectors;
mod detail;
mod driver;
mod family;
mod gpus;
mod ioctls;
mod life;
mod processes;
mod scrape;
mod single_queues;
mod table;
mod tracer;

pub use detail::Detail;
pub use prometheus::TEXT_FORMAT;
pub use scrape::{BPF_MAPS, Collected, STATE, SYSFS, Scrape};
pub use table::{MetricDoc, describe};

/// All families with a value, ordered by name.
#[must_use]
pub fn families(scrape: &Scrape<'_>) -> Vec<MetricFamily> {
    let mut all = driver::families(scrape);
    all.extend(gpus::families(scrape));
    all.extend(life::families(scrape));
    all.extend(ioctls::families(scrape));
    all.extend(processes::families(scrape));
    all.extend(single_queues::families(scrape));
    all.extend(collectors::families(scrape));
    all.extend(activity::of_sampling(scrape));
    all.extend(tracer::families(scrape));
    let mut all: Vec<_> = all.into_iter().filter_map(family::Family::build).collect();
    all.sort_by(|one, other| one.name().cmp(other.name()));
    all
}

/// Encodes the text format ([`TEXT_FORMAT`]).
///
/// # Errors
/// Only for a malformed family.
pub fn encode(families: &[MetricFamily]) -> Result<String, prometheus::Error> {
    TextEncoder::new().encode_to_string(families)
}

#[cfg(test)]
mod tests;
