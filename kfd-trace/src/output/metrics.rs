//! Prometheus families, built anew at each scrape: what is gone leaves no series behind.
//!
//! `kfd_*` is what the driver does, `kfd_trace_*` the tracer itself. A family whose probe is not attached is not
//! exported at all: 0 would say that nothing happened.

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

/// Everything that a scrape is made from.
#[derive(Clone, Copy, Debug)]
pub struct Scrape<'a> {
    pub snapshot: &'a Snapshot,
    /// Queues cannot be probed, and are followed by the arguments and results of the ioctls.
    pub queues_by_ioctl: bool,
    /// Where queues cannot be probed: what sysfs shows at this scrape, adopted into a fresh state.
    pub sysfs: Option<&'a Snapshot>,
    /// `None`: they were not read. What is made of them is not exported then.
    pub tables: Option<&'a Tables>,
    /// How the reading of each source went.
    pub collectors: &'a [Collected],
    /// Sums of the processes whose rows were deleted from the maps.
    pub retired: &'a IoctlTotals,
    pub samples: &'a SampleTotals,
    pub probes: &'a [ProbeStatus],
    pub topology: &'a Topology,
    pub undecoded: &'a Undecoded,
    /// Name and capacity of the BPF maps that can run full: `ioctl_stats`, `ioctl_errors`, `in_flight`, `seats`, whose
    /// entries are in `tables`; of others the capacity only is exported.
    pub capacities: &'a [(&'static str, u64)],
    pub detail: Detail,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub now_ns: u64,
    /// Nanoseconds of the Unix epoch less those of CLOCK_MONOTONIC.
    pub wall_minus_mono_ns: i64,
    /// There is a driver to trace.
    pub driver_loaded: bool,
    /// Loadings of the driver that the probes were put on.
    pub driver_loads: u64,
    /// Unix time at which the tracer started, seconds.
    pub start_time_seconds: f64,
    /// What it took to read the maps and the state, seconds.
    pub duration_seconds: f64,
}

impl<'a> Scrape<'a> {
    /// What tells of single processes and queues.
    fn source(&self) -> &'a Snapshot {
        self.sysfs.filter(|_| !driver::sees_queues(self)).unwrap_or(self.snapshot)
    }

    /// All of these probes are attached, at least to some of their functions.
    fn sees(&self, probes: &[ProbeId]) -> bool {
        probes.iter().all(|id| self.probes.iter().any(|probe| probe.id == *id && probe.verdict.sees()))
    }

    /// Runs of a probe's program that are counted as calls and not as hits (kfd-trace-ebpf/src/probes/ioctl.rs).
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

/// All families that have a value, ordered by name.
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

/// The text format ([`TEXT_FORMAT`]).
///
/// # Errors
/// Only for a family that is not well formed.
pub fn encode(families: &[MetricFamily]) -> Result<String, prometheus::Error> {
    TextEncoder::new().encode_to_string(families)
}

#[cfg(test)]
mod tests;
