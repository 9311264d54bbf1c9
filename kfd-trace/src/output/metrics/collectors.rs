//! The sources that a scrape reads, with the result and duration of each.

use super::Scrape;
use super::family::{Family, number};
use super::table as t;

/// Sums and counters of the BPF programs.
pub const BPF_MAPS: &str = "bpf_maps";
/// The tracer's state of processes, queues and GPUs. Copying it cannot fail: it has a duration metric, and no
/// success metric.
pub const STATE: &str = "state";
/// The driver's list of queues in sysfs, where queues cannot be probed.
pub const SYSFS: &str = "sysfs";

/// Result of reading one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// [`BPF_MAPS`], [`STATE`] or [`SYSFS`].
    pub collector: &'static str,
    pub took_ns: u64,
    /// Why it could not be read, or only in part.
    pub failed: Option<String>,
}

pub(super) fn families(scrape: &Scrape<'_>) -> [Family; 2] {
    let (mut success, mut duration) =
        (Family::new(&t::COLLECTOR_SUCCESS), Family::new(&t::COLLECTOR_DURATION));
    for collected in scrape.collectors {
        // A series that is always 1 would suggest a check that does not exist.
        if collected.collector != STATE {
            success.set(&[collected.collector], number(collected.failed.is_none().into()));
        }
        duration.set(&[collected.collector], number(collected.took_ns) / 1e9);
    }
    [success, duration]
}
