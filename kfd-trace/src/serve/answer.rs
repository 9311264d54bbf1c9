//! The contents of the pages.
//!
//! In: the request, the state, the history and the clock. Out: texts. No text is written under a lock.

use super::shared::{Phase, SharedPage, Taken};
use crate::events::tables::Tables;
use crate::kernel::Loading;
use crate::output::api::{self, ApiQuery, ApiView, EventsView, HeldView, Refusal, Resource, Tracing};
use crate::output::exported::Exported;
use crate::output::metrics::{self, Build, Format, Scrape};
use crate::output::page::{self, PageQuery, PageView, Past, Place, Subject};
use crate::output::status::Losses;
use crate::recording::Watch;
use crate::runtime::clock;
use crate::serve::question::PageSource;
use crate::state::{Class, Filter, History, Kept};
use crate::text::clock::Clock;
use jiff::tz::TimeZone;
use kfd_trace_common::counter::ProbeId;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

/// A loop that has not turned for so long hangs: it turns once a second.
const HANGS: Duration = Duration::from_secs(10);

/// The time of a response.
struct Now {
    clock: Clock,
    ns: u64,
    ts: Option<String>,
    /// The daemon's start, nanoseconds of the Unix epoch.
    began_ns: i64,
    /// From when on the history is known, likewise.
    known_since_ns: i64,
}

impl Now {
    fn unix_ns(&self) -> i64 {
        self.clock.unix_ns(self.ns).unwrap_or(i64::MAX)
    }
}

impl SharedPage {
    fn now(&self) -> Now {
        let clock = Clock { mono_to_wall_ns: i128::from(clock::wall_minus_mono_ns()), zone: TimeZone::UTC };
        let ns = clock::mono_ns();
        let ts = clock.rfc3339(ns);
        let began_ns = self.started_unix_ns;
        let known_since_ns = self.history().earlier_since_ns().unwrap_or(began_ns);
        Now { clock, ns, ts, began_ns, known_since_ns }
    }

    fn kept(&self) -> [(Class, Kept); Class::ALL.len()] {
        kept(&self.history())
    }

    /// A document of what lives.
    fn live(&self, of: impl FnOnce(&ApiView<'_>) -> serde_json::Result<String>) -> Result<String, Refusal> {
        let now = self.now();
        let (snapshot, topology) = match &*self.phase() {
            Phase::Serving(serving) => {
                let tracer = &serving.tracer;
                (tracer.state.snapshot(), tracer.topology.clone())
            }
            Phase::Waiting { why, .. } => return Err(Refusal::NotTraced(why.clone())),
        };
        written(of(&ApiView { snapshot: &snapshot, topology: &topology, clock: &now.clock, now_ns: now.ns }))
    }

    fn held(&self, at_ns: i64) -> Result<String, Refusal> {
        let now = self.now();
        not_in_the_future(at_ns, &now)?;
        // What ends between the two readings is in both.
        let (snapshot, topology) = match &*self.phase() {
            Phase::Serving(serving) => (serving.tracer.state.snapshot(), serving.tracer.topology.clone()),
            Phase::Waiting { .. } => Default::default(),
        };
        let (ended, kept, traced) = {
            let history = self.history();
            (history.ended_after(at_ns), history.kept(Class::Queues), history.was_traced(at_ns))
        };
        let view = ApiView { snapshot: &snapshot, topology: &topology, clock: &now.clock, now_ns: now.ns };
        written(api::held(&HeldView {
            now: &view,
            ended: &ended,
            at_ns,
            known_since_ns: now.known_since_ns,
            kept,
            traced,
        }))
    }

    fn events(&self, filter: &Filter) -> Result<String, Refusal> {
        let now = self.now();
        // Both of one moment.
        let (found, kept) = {
            let history = self.history();
            (history.find(filter), kept(&history))
        };
        let Now { ts, began_ns, known_since_ns, .. } = now;
        written(api::events(&EventsView { ts, began_ns, known_since_ns, found: &found, kept: &kept }))
    }

    /// Shows the state of the tracing.
    fn with_tracing<T>(&self, taken: &Taken, now: &Now, show: impl FnOnce(&Tracing<'_>) -> T) -> T {
        let none = Tables::default();
        let tables = taken.tables.as_ref().unwrap_or(&none);
        let of_probe = |probe: &ProbeId| (*probe, tables.losses_of(*probe, &taken.undecoded));
        let losses: BTreeMap<ProbeId, Losses> = tables.missed.keys().map(of_probe).collect();
        show(&Tracing {
            ts: &now.ts,
            began_ns: now.began_ns,
            known_since_ns: now.known_since_ns,
            why_not: taken.why.as_deref(),
            probes: &taken.probes,
            missed: &tables.missed,
            losses: &losses,
            lost: &tables.missing(&taken.undecoded),
            queues_by_ioctl: taken.queues_by_ioctl,
            sample_interval_ns: taken.samples.interval_ns,
            driver_loads: taken.driver_loads,
            types: &taken.types,
            topology: &taken.topology,
            kept: &self.kept(),
        })
    }

    pub(super) fn document(&self, query: &ApiQuery) -> Result<String, Refusal> {
        match query {
            ApiQuery::Queues => self.live(api::queues),
            ApiQuery::QueuesAt(at_ns) => self.held(*at_ns),
            ApiQuery::Processes => self.live(api::processes),
            ApiQuery::Gpus => self.live(api::gpus),
            ApiQuery::Status => self.status(self.take()),
            ApiQuery::Events(filter) => self.events(filter),
            ApiQuery::Memory(filter) => self.live(|view| api::memory(view, *filter)),
            ApiQuery::Doctor(pid) => self.diagnosis(*pid),
        }
    }

    pub(super) fn status(&self, taken: Taken) -> Result<String, Refusal> {
        let now = self.now();
        let taken = taken.whole().map_err(Refusal::Failed)?;
        written(self.with_tracing(&taken, &now, api::status))
    }
}

fn not_in_the_future(at_ns: i64, now: &Now) -> Result<(), Refusal> {
    if at_ns > now.unix_ns() {
        return Err(Refusal::Bad("at lies in the future: give a time up to now".to_owned()));
    }
    Ok(())
}

fn kept(history: &History) -> [(Class, Kept); Class::ALL.len()] {
    Class::ALL.map(|class| (class, history.kept(class)))
}

pub(super) fn written(document: serde_json::Result<String>) -> Result<String, Refusal> {
    document.map_err(|error| Refusal::Failed(error.to_string()))
}

impl PageSource for SharedPage {
    fn metrics(&self, format: Format) -> Result<String, String> {
        let begin = clock::mono_ns();
        let mut taken = self.take();
        let sysfs = self.sysfs(&taken.probes, begin).map(|(listed, collected)| {
            taken.collectors.push(collected);
            listed
        });
        let now_ns = clock::mono_ns();
        let mut scrape = Scrape {
            snapshot: &taken.snapshot,
            queues_by_ioctl: taken.queues_by_ioctl,
            named: taken.named,
            sysfs: sysfs.as_ref(),
            tables: taken.tables.as_ref(),
            collectors: &taken.collectors,
            retired: &taken.retired,
            samples: &taken.samples,
            probes: &taken.probes,
            topology: &taken.topology,
            undecoded: &taken.undecoded,
            capacities: &taken.capacities,
            detail: self.detail,
            admitted: None,
            now_ns,
            wall_minus_mono_ns: clock::wall_minus_mono_ns(),
            build: Build::OWN,
            types: &taken.types,
            recording: self.recording.get().map(Watch::figures),
            exported: self.exported.get().map(Exported::figures),
            driver_loaded: Loading::can_be_traced(&self.roots.sysfs),
            driver_loads: taken.driver_loads,
            start_time_seconds: clock::seconds(u64::try_from(self.started_unix_ns).unwrap_or(0)),
            duration_seconds: clock::seconds(now_ns.saturating_sub(begin)),
        };
        let admitted = self.detail.processes.map(|most| {
            let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
            newcomers.admit(&scrape.candidates(), most, now_ns)
        });
        scrape.admitted = admitted.as_ref();
        metrics::exposition(&scrape, format).map_err(|error| error.to_string())
    }

    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal> {
        let query = PageQuery::new(place, pairs).map_err(Refusal::Bad)?;
        let now = self.now();
        if let Subject::At(at_ns) = query.subject {
            not_in_the_future(at_ns, &now)?;
        }
        let taken = self.take().whole().map_err(Refusal::Failed)?;
        let past = Past::of(&query.subject, &self.history());
        let view = ApiView {
            snapshot: &taken.snapshot,
            topology: &taken.topology,
            clock: &now.clock,
            now_ns: now.ns,
        };
        let live = taken.why.is_none().then_some(&view);
        let rates = self.rates();
        let made = self.with_tracing(&taken, &now, |tracing| {
            page::html(&PageView { now: live, tracing, past: &past, rates: &rates }, &query)
        });
        made.map_err(Refusal::Failed)
    }

    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal> {
        self.document(&ApiQuery::new(resource, pairs).map_err(Refusal::Bad)?)
    }

    fn ready(&self) -> Result<(), String> {
        match &*self.phase() {
            Phase::Serving(_) => Ok(()),
            Phase::Waiting { why, .. } => Err(why.clone()),
        }
    }

    fn healthy(&self) -> Result<(), String> {
        let age = self.turned.age();
        if age < HANGS {
            return Ok(());
        }
        Err(format!(
            "the tracer's loop has not turned for {} s: see its log and /proc/PID/stack",
            age.as_secs()
        ))
    }
}
