//! A session with the memory of what it saw: the part that the stream and the daemon share. The memory
//! outlives the session: the driver may be unloaded and loaded again ([`super::driver`]).

use super::intake::{Intake, TakenIn};
use super::inventory::InventoryReader;
use super::past::Past;
use super::preflight::{self, chain};
use super::reconcile::Pending;
use super::types::{Known, Trust};
use crate::attribute::Topology;
use crate::events::decode::Undecodable;
use crate::events::ring::Ring;
use crate::events::tables::Tables;
use crate::events::undecoded::Undecoded;
use crate::kernel::types::{TypesReport, TypesSource};
use crate::kernel::{Loading, Roots, thread};
use crate::model::event::{Event, ProcessId};
use crate::model::ioctl::{self, Mismatch, Named};
use crate::model::selected::Selected;
use crate::model::verdict::ProbeStatus;
use crate::probes::error::LoadError;
use crate::probes::events::{self, ReturnEvents};
use crate::probes::load::Options;
use crate::probes::plan::{Choice, PlanRequest};
use crate::probes::session::Session;
use crate::runtime::clock;
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::state::{IoctlTotals, SampleTotals, State, StateLimits};
use crate::text::clock::Clock;
use jiff::tz::TimeZone;
use kfd_trace_common::counter::ProbeId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What is requested of a tracer.
#[derive(Clone, Debug)]
pub struct TraceRequest {
    pub roots: Roots,
    pub ioctl_records: bool,
    pub selected: Selected,
    /// Bytes of the ring buffer.
    pub ring_bytes: u32,
    pub choice: Choice,
    /// Interval between samples of queues; zero for none.
    pub sample: Duration,
    pub limits: StateLimits,
}

/// A tracer.
pub struct Tracer {
    /// `None` while the driver is not loaded.
    pub(crate) session: Option<Session>,
    /// The loading of the driver that the session's probes are attached to.
    pub(crate) loading: Option<Loading>,
    pub(crate) roots: Roots,
    request: TraceRequest,
    /// The driver's ioctls that have a name, and the size of their arguments; after an unload those of the last one.
    named: Named,
    ioctl_sizes: BTreeMap<u8, u32>,
    /// Where the driver's types came from.
    types: TypesSource,
    /// How far they are compared with the driver; `None` if they need not be.
    trust: Option<Trust>,
    pub state: State,
    pub samples: SampleTotals,
    pub topology: Topology,
    pub clock: Clock,
    /// Sums of the processes whose rows were removed from the maps.
    pub retired: IoctlTotals,
    pub undecoded: Undecoded,
    /// The counts of the previous sessions.
    pub(crate) past: Past,
    /// Number of driver loadings that probes were attached to.
    pub driver_loads: u64,
    /// When probes were attached for the first time, CLOCK_MONOTONIC nanoseconds.
    pub started_ns: u64,
    /// When all probes of the session were attached, CLOCK_MONOTONIC nanoseconds: before what exists was read.
    pub(crate) attached_ns: u64,
    pub(crate) pending: Pending,
    #[cfg(debug_assertions)]
    log: LogTasks,
}

/// The task that shows the log lines of the BPF side; it ends when this is dropped.
#[cfg(debug_assertions)]
type LogTasks = tokio::task::JoinSet<std::io::Result<()>>;

/// A session with attached probes, and the results of the same reading of the kernel.
pub(crate) struct AttachedSession {
    session: Session,
    ring: Ring,
    reader: InventoryReader,
    ioctl_sizes: BTreeMap<u8, u32>,
    types: TypesSource,
    trust: Option<Trust>,
    refuted: Vec<(TypesSource, String)>,
    #[cfg(debug_assertions)]
    log: LogTasks,
}

impl Tracer {
    /// Without probes: see [`Tracer::attach`].
    #[must_use]
    pub fn new(request: &TraceRequest) -> Self {
        let interval_ns = u64::try_from(request.sample.as_nanos()).unwrap_or(u64::MAX);
        Tracer {
            session: None,
            loading: None,
            roots: request.roots.clone(),
            request: request.clone(),
            named: Named::default(),
            ioctl_sizes: BTreeMap::new(),
            types: TypesSource::None,
            trust: None,
            state: State::new(request.limits),
            samples: SampleTotals { interval_ns, ..SampleTotals::default() },
            topology: Topology::default(),
            clock: wall_clock(),
            retired: IoctlTotals::default(),
            undecoded: Undecoded::default(),
            past: Past::default(),
            driver_loads: 0,
            started_ns: clock::mono_ns(),
            attached_ns: clock::mono_ns(),
            pending: Pending::default(),
            #[cfg(debug_assertions)]
            log: LogTasks::new(),
        }
    }

    /// Reads the kernel and attaches the probes; does not change the tracer yet.
    ///
    /// # Errors
    /// If nothing could be seen.
    pub(crate) fn probe(&self) -> Result<AttachedSession, Stop> {
        let request = &self.request;
        let Known { kernel, mut facts, trust, refuted } = preflight::read(&request.roots)?;
        log::info!("types of the driver: {}", kernel.types);
        for finding in kernel.types_findings() {
            say(finding);
        }
        if request.selected.ancestor().is_some() && facts.field("TASK_REAL_PARENT").is_err() {
            say("the command's children are not followed: the layout of the kernel's tasks is unknown");
        }
        if request.choice.tracepoints {
            facts = facts.with_tracepoints(&request.roots.sysfs);
        }
        let wanted = events::wanted(request.choice.attach);
        let events = ReturnEvents::of(&request.roots, &kernel, &wanted);
        if let Some(why) = events.why_not() {
            log::info!("the return of kfd_ioctl has no event of tracefs: {why}");
        }
        facts.return_events = events.functions();
        let options = Options {
            request: PlanRequest { ioctl_records: request.ioctl_records, choice: request.choice.clone() },
            selected: request.selected.clone(),
            ring_bytes: request.ring_bytes,
            read_pointers: !request.sample.is_zero(),
            possible_cpus: kernel.preflight.possible_cpus.unwrap_or(1),
            cpu_ids: kernel.preflight.cpu_ids,
            procfs: request.roots.procfs.clone(),
        };
        let mut session = Session::load(&kernel.symbols, &facts, &options, events)
            .map_err(|error| Stop::failed(chain(&error)))?;
        let mut reader = InventoryReader::new(&request.roots, &kernel, &facts, request.selected.clone());
        reader.number(&mut session);
        session.attach();
        if let Some(why) = session.blindness() {
            return Err(Stop::failed(format!("no probe could be attached: {why}; see `kfd-trace status`")));
        }
        for probe in session.probes() {
            log::info!("{} {}: {}", probe.kind, probe.id.name(), probe.verdict.word());
            log::debug!("{} is attached to {}", probe.id.name(), probe.symbols.join(", "));
        }
        #[cfg(debug_assertions)]
        let log = session.take_log().map(crate::events::ring::follow_log).into_iter().collect();
        let ring = session.take_ring().map_err(|error| Stop::failed(chain(&error)))?;
        let mut maker = session.maker().clone();
        if !session.sees(&ProbeId::SUSPENSIONS) {
            // What a queue's creation or a list shows of it would not stay true.
            maker.layout.is_suspended = None;
            reader.without_suspensions();
        }
        let ring = Ring::new(ring, maker).map_err(|error| Stop::failed(chain(&error)))?;
        Ok(AttachedSession {
            session,
            ring,
            reader,
            ioctl_sizes: facts.ioctl_sizes,
            types: kernel.types,
            trust,
            refuted,
            #[cfg(debug_assertions)]
            log,
        })
    }

    /// Continues with these probes.
    pub(crate) fn take_over(&mut self, probed: AttachedSession, loading: Loading) -> Ring {
        self.attached_ns = clock::mono_ns();
        #[cfg(debug_assertions)]
        {
            self.log = probed.log;
        }
        let AttachedSession { session, ring, reader, ioctl_sizes, types, trust, refuted, .. } = probed;
        (self.types, self.trust) = (types, trust);
        self.request.roots.types.refuted = refuted;
        self.named = session.named();
        let (session, reader) = (self.session.insert(session), Arc::new(reader));
        self.topology = Topology::read_with_compute_units(&self.roots.sysfs, &Topology::default());
        // The probes are attached: from here on starts and ends are seen, so what exists is added once.
        if let Some(line) = reader.adopt(session, &mut self.state, &self.topology) {
            say(line);
        }
        self.pending = Pending::new(reader, self.undecoded.total());
        self.ioctl_sizes = ioctl_sizes;
        self.loading = Some(loading);
        if self.driver_loads == 0 {
            self.started_ns = clock::mono_ns();
        }
        self.driver_loads += 1;
        ring
    }

    /// Compares types that are not the kernel's with new records, before these are processed, and until the driver
    /// agreed with all of them, with its structures. Those that contradict the types, and all after it, are removed.
    ///
    /// # Errors
    /// What the driver contradicts: then [`Tracer::types_refuted`] must be called.
    pub(crate) fn vet(&mut self, records: &mut Vec<Result<Event, Undecodable>>) -> Result<(), String> {
        let Some(trust) = &mut self.trust else { return Ok(()) };
        let mut memory = self.session.as_ref().and_then(Session::memory);
        trust.confirm_counts(records, memory.as_mut());
        if trust.is_complete() {
            return Ok(());
        }
        let sysfs = &self.roots.sysfs;
        if let Some((index, why)) = trust.contradicted(records, sysfs) {
            records.truncate(index);
            return Err(why);
        }
        let Some(mut memory) = memory else { return Ok(()) };
        trust.compare(&mut memory, sysfs)?;
        if trust.is_complete() {
            log::info!("types of the driver ({}) agree with it: {}", trust.source, trust.compared);
        }
        Ok(())
    }

    /// Forgets all that was learned by types that the driver contradicts. They are not used again.
    pub(crate) fn types_refuted(&mut self, why: String) -> Option<Session> {
        let source = std::mem::take(&mut self.types);
        say(format_args!("types of the driver ({source}) contradict it: {why}; they are not used any more"));
        self.request.roots.types.refuted.push((source, why));
        self.trust = None;
        self.state.start_anew();
        // This loading is counted again when its probes are attached again.
        self.driver_loads = self.driver_loads.saturating_sub(1);
        self.end_session()
    }

    /// What is known of the driver's types.
    #[must_use]
    pub fn types(&self) -> TypesReport {
        TypesReport {
            source: self.types.clone(),
            agree: self.trust.as_ref().map(Trust::is_complete),
            refuted: self.request.roots.types.refuted.clone(),
        }
    }

    /// Processes one record: see [`Intake::take_in`].
    pub fn take_in<'r>(&mut self, record: &'r Result<Event, Undecodable>) -> Option<TakenIn<'r>> {
        let queues_by_ioctl = self.queues_by_ioctl();
        let Self { state, undecoded, roots, .. } = self;
        Intake { state, undecoded, roots, queues_by_ioctl }.take_in(record)
    }

    /// The requested interval between samples of queues; zero for none.
    pub(crate) fn sample_interval(&self) -> Duration {
        self.request.sample
    }

    /// Queues are followed by their ioctls alone, since they cannot be probed.
    #[must_use]
    pub fn queues_by_ioctl(&self) -> bool {
        self.session.as_ref().is_some_and(Session::queues_by_ioctl)
    }

    /// Bytes of the arguments of the driver's ioctls by number, as far as they are known.
    #[must_use]
    pub fn ioctl_sizes(&self) -> &BTreeMap<u8, u32> {
        &self.ioctl_sizes
    }

    /// The driver's ioctls that have a name.
    #[must_use]
    pub fn named(&self) -> Named {
        self.named
    }

    /// The verdict on every probe.
    #[must_use]
    pub fn probes(&self) -> &[ProbeStatus] {
        self.session.as_ref().map_or(&[], Session::probes)
    }

    /// The contents of the maps, what the kernel skipped, and the counts of earlier sessions.
    ///
    /// # Errors
    /// If the kernel refuses to read them.
    pub fn tables(&self) -> Result<Tables, Stop> {
        let mut tables = match &self.session {
            Some(session) => Tables { missed: session.missed(), ..maps(session, &self.roots.procfs)? },
            None => Tables::default(),
        };
        self.past.count_on(&mut tables);
        Ok(tables)
    }

    /// Detaches the probes; the ring and the maps can still be read.
    pub fn detach(&mut self) {
        if let Some(session) = &mut self.session {
            session.detach();
        }
    }

    /// Must be called before events are reported: the clock may have been set, or gone on while the machine slept.
    pub fn renew_clock(&mut self) {
        self.clock = self.clock_now();
    }

    /// The clock at this moment.
    #[must_use]
    pub fn clock_now(&self) -> Clock {
        Clock { mono_to_wall_ns: i128::from(clock::wall_minus_mono_ns()), ..self.clock.clone() }
    }

    /// Removes what ended long enough ago, and frees room in the maps; must be called once a second.
    ///
    /// # Errors
    /// If the kernel refuses to read or change the maps.
    pub fn expire(&mut self) -> Result<(), Stop> {
        let now_ns = clock::mono_ns();
        let gone: BTreeSet<ProcessId> = self.state.expire(now_ns).into_iter().collect();
        let Some(session) = self.session.as_mut() else { return Ok(()) };
        let failed = |error: LoadError| Stop::failed(chain(&error));
        self.pending.released.extend(session.tidy().map_err(failed)?);
        if gone.is_empty() {
            return Ok(());
        }
        // From here on nothing more is counted for them, not even for one that was wrongly taken for ended.
        session.forget(&gone).map_err(failed)?;
        let mut tables = maps(session, &self.roots.procfs)?;
        tables.ioctls.retain(|row| gone.contains(&row.process));
        tables.errors.retain(|row| gone.contains(&row.process));
        session.retire(&gone).map_err(failed)?;
        self.retired.retire(&tables);
        Ok(())
    }

    /// User space and this kernel disagree on the size of an ioctl's arguments.
    #[must_use]
    pub fn mismatch(&self, event: &Event) -> Option<Mismatch> {
        ioctl::mismatch_of(event, &self.ioctl_sizes)
    }
}

impl Tracer {
    /// Without probes: for tests, and for a daemon whose state is generated (tests/load).
    #[must_use]
    pub fn idle(roots: &Roots) -> Self {
        Tracer::new(&TraceRequest {
            roots: roots.clone(),
            ioctl_records: false,
            selected: Selected::All,
            ring_bytes: 0,
            choice: Choice::default(),
            sample: Duration::ZERO,
            limits: StateLimits::default(),
        })
    }
}

/// The contents of the maps. A call in progress needs a thread: one whose thread has ended is not in flight.
fn maps(session: &Session, procfs: &Path) -> Result<Tables, Stop> {
    let mut tables = session.tables().map_err(|error| Stop::failed(chain(&error)))?;
    tables.close(|call| thread::has_ended(procfs, call.caller_tgid, call.tid));
    Ok(tables)
}

/// Wall time of this machine, in its time zone.
#[must_use]
pub fn wall_clock() -> Clock {
    Clock { mono_to_wall_ns: i128::from(clock::wall_minus_mono_ns()), zone: TimeZone::system() }
}
