//! Prometheus families, rebuilt at each scrape: removed objects leave no series behind.
//!
//! `kfd_*` describe the driver, `kfd_trace_*` the tracer itself. A family whose probe is not attached is not
//! exported: 0 would mean that nothing happened.

use crate::attribute::Topology;
use crate::events::tables::Tables;
use crate::events::undecoded::Undecoded;
use crate::model::verdict::ProbeStatus;
use crate::state::{IoctlTotals, SampleTotals, Snapshot};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::stat::IoctlStat;
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
mod single_queues;
mod table;
mod tracer;

pub use collectors::{BPF_MAPS, Collected, STATE, SYSFS};
pub use detail::Detail;
pub use prometheus::TEXT_FORMAT;
pub use table::{MetricDoc, describe};

/// Input of a scrape.
#[derive(Clone, Copy, Debug)]
pub struct Scrape<'a> {
    pub snapshot: &'a Snapshot,
    /// Queues cannot be probed, and are tracked by the arguments and results of the ioctls.
    pub queues_by_ioctl: bool,
    /// If queues cannot be probed: what sysfs shows at this scrape, adopted into a fresh state.
    pub sysfs: Option<&'a Snapshot>,
    /// `None`: not read. Families that need them are then not exported.
    pub tables: Option<&'a Tables>,
    /// Result of reading each source.
    pub collectors: &'a [Collected],
    /// Sums of processes whose rows were deleted from the maps.
    pub retired: &'a IoctlTotals,
    pub samples: &'a SampleTotals,
    pub probes: &'a [ProbeStatus],
    pub topology: &'a Topology,
    pub undecoded: &'a Undecoded,
    /// Name and capacity of the BPF maps that can run full: `ioctl_stats`, `ioctl_errors`, `in_flight`,
    /// `seats`, whose entries are in `tables`; for other maps only the capacity is exported.
    pub capacities: &'a [(&'static str, u64)],
    pub detail: Detail,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub now_ns: u64,
    /// Nanoseconds of the Unix epoch minus those of CLOCK_MONOTONIC.
    pub wall_minus_mono_ns: i64,
    /// The driver is loaded.
    pub driver_loaded: bool,
    /// Number of driver loads to which the probes were attached.
    pub driver_loads: u64,
    /// Start time of the tracer, Unix seconds.
    pub start_time_seconds: f64,
    /// Time taken to read the maps and the state, seconds.
    pub duration_seconds: f64,
}

impl<'a> Scrape<'a> {
    /// The source for series of single processes and queues.
    fn source(&self) -> &'a Snapshot {
        self.sysfs.filter(|_| !driver::sees_queues(self)).unwrap_or(self.snapshot)
    }

    /// Whether all of these probes are attached, at least to some of their functions.
    fn sees(&self, probes: &[ProbeId]) -> bool {
        probes.iter().all(|id| self.probes.iter().any(|probe| probe.id == *id && probe.verdict.sees()))
    }

    /// Runs of a probe's program that are counted as calls, not as hits (kfd-trace-ebpf/src/probes/ioctl.rs).
    fn calls_of(&self, probe: ProbeId) -> u64 {
        let counted: fn(&IoctlStat) -> u64 = match probe {
            ProbeId::Ioctl => |stat| stat.entered,
            ProbeId::IoctlReturn => |stat| stat.returned,
            _ => return 0,
        };
        let now = self.tables.into_iter().flat_map(|tables| &tables.ioctls).map(|row| &row.stat);
        now.chain(self.retired.iter().map(|(_, sum)| &sum.stat)).map(counted).sum()
    }
}

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
