//! Input of a scrape, and which sources it has for the families.

use super::detail::Detail;
use super::newcomers::{Admitted, identity};
use crate::attribute::Topology;
use crate::events::tables::Tables;
use crate::events::undecoded::Undecoded;
use crate::kernel::types::TypesReport;
use crate::model::ioctl::Named;
use crate::model::verdict::{ProbeStatus, QUEUES, all_see};
use crate::output::exported::ExportFigures;
use crate::recording::Figures;
use crate::state::{IoctlTotals, Process, SampleTotals, Snapshot};
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::stat::IoctlStat;

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

/// What a binary was built from, and for.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    pub version: &'static str,
    /// The commit; `None`: not known.
    pub revision: Option<&'static str>,
    pub target: &'static str,
}

impl Build {
    /// Of this binary.
    pub const OWN: Build = Build {
        version: env!("CARGO_PKG_VERSION"),
        // xtask/src/build.rs sets it.
        revision: option_env!("KFD_TRACE_REVISION"),
        target: env!("KFD_TRACE_TARGET"),
    };
}

/// Input of a scrape.
#[derive(Clone, Copy, Debug)]
pub struct Scrape<'a> {
    pub snapshot: &'a Snapshot,
    /// Queues cannot be probed, and are tracked by the arguments and results of the ioctls.
    pub queues_by_ioctl: bool,
    /// The driver's ioctls that have a name.
    pub named: Named,
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
    /// Of [`Scrape::candidates`]; `None`: all of them.
    pub admitted: Option<&'a Admitted>,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub now_ns: u64,
    /// Nanoseconds of the Unix epoch minus those of CLOCK_MONOTONIC.
    pub wall_minus_mono_ns: i64,
    pub build: Build,
    /// Where the driver's types came from.
    pub types: &'a TypesReport,
    /// `None` where nothing is recorded.
    pub recording: Option<Figures>,
    /// `None` where nothing is exported.
    pub exported: Option<ExportFigures>,
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
    pub(super) fn source(&self) -> &'a Snapshot {
        self.sysfs.filter(|_| !self.sees_queues()).unwrap_or(self.snapshot)
    }

    /// The processes that could have series of their own: live ones, the oldest first, then those that ended most recently. The
    /// order does not change from scrape to scrape while they stay the same.
    #[must_use]
    pub fn candidates(&self) -> Vec<&'a Process> {
        let mut all: Vec<&Process> = self.source().processes.iter().collect();
        all.retain(|row| self.detail.shows(row, self.now_ns));
        all.sort_by_key(|row| match row.released_ns {
            None => (0, row.first_seen_ns, row.key),
            Some(released) => (1, u64::MAX - released, row.key),
        });
        all
    }

    /// Whether it is one of those that have series of their own.
    pub(super) fn admits(&self, process: &Process) -> bool {
        self.admitted.is_none_or(|admitted| admitted.processes.contains(&identity(process)))
    }

    /// Whether all of these probes are attached, at least to some of their functions.
    pub(super) fn sees(&self, probes: &[ProbeId]) -> bool {
        all_see(self.probes, probes)
    }

    /// Whether both creation and destruction of queues are seen.
    pub(super) fn sees_queues(&self) -> bool {
        self.queues_by_ioctl || self.probes_queues()
    }

    /// Whether they are seen by probes, not only by the ioctls.
    pub(super) fn probes_queues(&self) -> bool {
        self.sees(&QUEUES)
    }

    /// Runs of a probe's program that are counted as calls, not as hits (kfd-trace-ebpf/src/probes/ioctl.rs).
    pub(super) fn calls_of(&self, probe: ProbeId) -> u64 {
        let counted: fn(&IoctlStat) -> u64 = match probe {
            ProbeId::Ioctl => |stat| stat.entered,
            ProbeId::IoctlReturn => |stat| stat.returned,
            _ => return 0,
        };
        let now = self.tables.into_iter().flat_map(|tables| &tables.ioctls).map(|row| &row.stat);
        now.chain(self.retired.iter().map(|(_, sum)| &sum.stat)).map(counted).sum()
    }
}
