//! The contents of the daemon's pages: shared between the task that follows the ring buffer and the scrapes.

use super::diagnoses::Diagnoses;
use crate::attribute::Topology;
use crate::events::tables::Tables;
use crate::events::undecoded::Undecoded;
use crate::kernel::Roots;
use crate::kernel::types::TypesReport;
use crate::model::ioctl::Named;
use crate::model::layout::QueueLayout;
use crate::model::verdict::ProbeStatus;
use crate::output::exported::Exported;
use crate::output::metrics::{BPF_MAPS, Collected, Detail, Newcomers, STATE, SYSFS};
use crate::output::page::Rates;
use crate::recording::Watch;
use crate::runtime::beat::Beat;
use crate::runtime::clock;
use crate::state::{History, Inventory, IoctlTotals, SampleTotals, Snapshot, State, StateLimits};
use crate::tracer::doctor::Examination;
use crate::tracer::engine::Tracer;
use crate::tracer::follow::Access;
use crate::tracer::inventory;
use kfd_trace_common::counter::ProbeId;
use kfd_trace_common::limits::{
    CALLER_SLOTS, IN_FLIGHT_MAX, IOCTL_ERRORS_MAX, IOCTL_STATS_MAX, PROCESSES_MAX,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A running tracer.
pub struct Serving {
    pub tracer: Tracer,
    /// Bytes of the ring buffer.
    pub ring_bytes: u32,
}

pub(super) enum Phase {
    /// Why nothing is traced now.
    Waiting {
        why: String,
        left: Box<Taken>,
    },
    Serving(Box<Serving>),
}

/// The daemon's pages.
pub struct SharedPage {
    /// Locked before `history`, if both are.
    pub(super) phase: Arc<Mutex<Phase>>,
    /// It outlives the driver.
    pub(super) history: Mutex<History>,
    pub(super) roots: Roots,
    pub(super) detail: Detail,
    /// Nanoseconds of the Unix epoch. Read once: else it would move with each reading of the two clocks.
    pub(super) started_unix_ns: i64,
    /// What the page's sparklines show. Locked alone, or last.
    pub(super) rates: Mutex<Arc<Rates>>,
    /// Empty where nothing is recorded.
    pub(super) recording: OnceLock<Watch>,
    /// Empty where nothing is exported.
    pub(super) exported: OnceLock<Exported>,
    /// Which processes have series. Locked alone.
    pub(super) newcomers: Mutex<Newcomers>,
    pub(super) diagnoses: Diagnoses<Examination>,
    /// The tracer's loop, which whoever shows these pages turns.
    pub(super) turned: Beat,
}

/// A scrape that panicked must not end the tracing: the state is consistent between any two statements.
pub(super) fn locked(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Access for &SharedPage {
    fn with<T>(&mut self, act: impl FnOnce(&mut Tracer) -> T) -> Option<T> {
        self.with_tracer(act)
    }
}

impl SharedPage {
    #[must_use]
    pub fn new(roots: Roots, detail: Detail) -> Self {
        let phase = Phase::Waiting { why: "starting".to_owned(), left: Box::default() };
        let (phase, diagnoses) = (Arc::new(Mutex::new(phase)), Diagnoses::default());
        let started_unix_ns = clock::unix_ns();
        let (history, rates) = (Mutex::default(), Mutex::default());
        let (recording, exported) = (OnceLock::new(), OnceLock::new());
        let newcomers = Mutex::new(Newcomers::new(detail.new_processes));
        SharedPage {
            phase,
            history,
            roots,
            detail,
            started_unix_ns,
            rates,
            recording,
            exported,
            newcomers,
            diagnoses,
            turned: Beat::default(),
        }
    }

    /// The tracer's loop: to be turned at least once a second.
    #[must_use]
    pub fn turned(&self) -> Beat {
        self.turned.clone()
    }

    /// What is traced is recorded, too.
    pub fn records(&self, recording: Watch) {
        // There is one.
        let _ = self.recording.set(recording);
    }

    /// What is traced is exported, too; `all`: also what the history does not keep.
    pub fn exports(&self, exported: Exported, all: bool) {
        self.history().start_outlet(all);
        // There is one.
        let _ = self.exported.set(exported);
    }

    /// The history goes on with that of an earlier daemon, which is known from `since_ns` on, nanoseconds of the Unix epoch.
    pub fn remembers(&self, earlier: History, since_ns: i64) {
        self.history().take_over(earlier, since_ns);
    }

    pub(super) fn phase(&self) -> MutexGuard<'_, Phase> {
        locked(&self.phase)
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn rates(&self) -> Arc<Rates> {
        Arc::clone(&self.rates.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The queues were sampled.
    pub fn sampled(&self, tracer: &Tracer) {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        // Copied only while a page is made of them.
        Arc::make_mut(&mut rates).add(&tracer.state, clock::mono_ns());
    }

    /// Once a second: what nobody can be given any more is dropped.
    pub fn drop_old(&self) {
        self.diagnoses.drop_old();
    }

    /// There is nothing to trace now. Returns what was served.
    pub fn waits_for(&self, why: &str) -> Option<Serving> {
        let mut phase = self.phase();
        let left = match &*phase {
            Phase::Serving(serving) => Box::new(left(&serving.tracer)),
            Phase::Waiting { left, .. } => left.clone(),
        };
        match std::mem::replace(&mut *phase, Phase::Waiting { why: why.to_owned(), left }) {
            Phase::Serving(serving) => Some(*serving),
            Phase::Waiting { .. } => None,
        }
    }

    /// From now on there is something to show.
    pub fn serves(&self, serving: Serving) {
        *self.phase() = Phase::Serving(Box::new(serving));
    }

    /// Uses the tracer; `None` if there is none.
    pub fn with_tracer<T>(&self, act: impl FnOnce(&mut Tracer) -> T) -> Option<T> {
        match &mut *self.phase() {
            Phase::Serving(serving) => Some(act(&mut serving.tracer)),
            Phase::Waiting { .. } => None,
        }
    }

    /// Uses the tracer and the history; `None` if there is no tracer.
    pub fn with_history<T>(&self, act: impl FnOnce(&mut Tracer, &mut History) -> T) -> Option<T> {
        self.with_tracer(|tracer| act(tracer, &mut self.history()))
    }

    /// A copy of everything that a scrape shows, so that the ring buffer does not wait while it is formatted.
    pub(super) fn take(&self) -> Taken {
        let phase = self.phase();
        let serving = match &*phase {
            Phase::Serving(serving) => serving,
            Phase::Waiting { why, left } => return Taken { why: Some(why.clone()), ..Taken::clone(left) },
        };
        let tracer = &serving.tracer;
        let (tables, maps) = collected(BPF_MAPS, || tracer.tables().map_err(|stop| stop.line));
        let begin = clock::mono_ns();
        let snapshot = tracer.state.snapshot();
        let took_ns = clock::mono_ns().saturating_sub(begin);
        let state = Collected { collector: STATE, took_ns, failed: None };
        Taken {
            why: None,
            tables,
            snapshot,
            collectors: vec![maps, state],
            retired: tracer.retired.clone(),
            samples: tracer.samples.clone(),
            probes: tracer.probes().to_vec(),
            queues_by_ioctl: tracer.queues_by_ioctl(),
            named: tracer.named(),
            topology: tracer.topology.clone(),
            undecoded: tracer.undecoded.clone(),
            capacities: vec![
                ("ioctl_stats", u64::from(IOCTL_STATS_MAX)),
                ("ioctl_errors", u64::from(IOCTL_ERRORS_MAX)),
                ("in_flight", u64::from(IN_FLIGHT_MAX)),
                ("seats", u64::from(CALLER_SLOTS)),
                ("processes", u64::from(PROCESSES_MAX)),
                ("ring_bytes", u64::from(serving.ring_bytes)),
            ],
            driver_loads: tracer.driver_loads,
            types: tracer.types(),
        }
    }

    /// What sysfs shows now, if queues cannot be probed; what cannot be read is left out.
    pub(super) fn sysfs(&self, probes: &[ProbeStatus], now_ns: u64) -> Option<(Snapshot, Collected)> {
        let probed = |id| probes.iter().any(|probe| probe.id == id && probe.verdict.sees());
        if probes.is_empty() || probed(ProbeId::QueueAdd) && probed(ProbeId::QueueDel) {
            return None;
        }
        let mut state = State::new(StateLimits::default());
        let begin = clock::mono_ns();
        let (found, unreadable) = inventory::sysfs(&self.roots, &QueueLayout::default());
        inventory::adopt(&mut state, &Inventory { read: now_ns.into(), ..found });
        let failed = unreadable.first().map(ToString::to_string);
        let took_ns = clock::mono_ns().saturating_sub(begin);
        Some((state.snapshot(), Collected { collector: SYSFS, took_ns, failed }))
    }
}

/// Reads a source; the others are read even if this one cannot be.
fn collected<T>(collector: &'static str, read: impl FnOnce() -> Result<T, String>) -> (Option<T>, Collected) {
    let begin = clock::mono_ns();
    let read = read();
    let took_ns = clock::mono_ns().saturating_sub(begin);
    let (read, failed) = match read {
        Ok(read) => (Some(read), None),
        Err(why) => (None, Some(why)),
    };
    if let Some(why) = &failed {
        log::warn!("{collector} cannot be read: {why}");
    }
    (read, Collected { collector, took_ns, failed })
}

/// The data for a scrape.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    /// Why nothing is traced now; `None` if something is.
    pub(super) why: Option<String>,
    pub(super) snapshot: Snapshot,
    /// `None` if they could not be read, and before there were any.
    pub(super) tables: Option<Tables>,
    pub(super) collectors: Vec<Collected>,
    pub(super) retired: IoctlTotals,
    pub(super) samples: SampleTotals,
    pub(super) probes: Vec<ProbeStatus>,
    /// Queues are followed by ioctls alone.
    pub(super) queues_by_ioctl: bool,
    pub(super) named: Named,
    pub(super) topology: Topology,
    pub(super) undecoded: Undecoded,
    pub(super) capacities: Vec<(&'static str, u64)>,
    pub(super) driver_loads: u64,
    pub(super) types: TypesReport,
}

impl Taken {
    /// # Errors
    /// Why a source could not be read.
    pub(super) fn whole(self) -> Result<Self, String> {
        match self.collectors.iter().find_map(|collected| collected.failed.clone()) {
            Some(why) => Err(why),
            None => Ok(self),
        }
    }
}

/// While nothing is traced, only the tracer's own counts are exported: these must not decrease meanwhile. All
/// counts of a session were taken over when it was released.
fn left(tracer: &Tracer) -> Taken {
    Taken {
        snapshot: Snapshot { totals: tracer.state.totals().clone(), ..Snapshot::default() },
        tables: collected(BPF_MAPS, || tracer.tables().map_err(|stop| stop.line)).0,
        retired: tracer.retired.clone(),
        samples: tracer.samples.clone(),
        undecoded: tracer.undecoded.clone(),
        driver_loads: tracer.driver_loads,
        types: tracer.types(),
        ..Taken::default()
    }
}

#[cfg(test)]
mod tests;
