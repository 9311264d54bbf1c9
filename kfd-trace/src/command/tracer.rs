//! A session with the memory of what it saw: what the stream and the daemon have in common.

use super::clock;
use super::ground::{self, chain};
use super::intake::{Intake, TakenIn};
use super::reconcile::Doubt;
use super::standing::Standings;
use super::stop::Stop;
use crate::attribute::Topology;
use crate::events::decode::DecodeError;
use crate::events::event::{Body, Event, ProcessId};
use crate::events::ioctl::{self, Mismatch};
use crate::events::ring::Ring;
use crate::events::tables::{InFlightRow, Tables};
use crate::kernel::Roots;
use crate::output::clock::Clock;
use crate::probes::load;
use crate::probes::plan::{Ask, Choice};
use crate::probes::session::{Options, Session};
use crate::state::{IoctlTotals, State, StateLimits};
use crate::verdict::ProbeStatus;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a tracer is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub roots: Roots,
    pub ioctl_records: bool,
    /// tgids; empty for every process.
    pub pids: Vec<u32>,
    /// Bytes of the ring buffer.
    pub ring_bytes: u32,
    pub choice: Choice,
    pub limits: StateLimits,
}

/// A running tracer.
pub struct Tracer {
    pub(super) session: Session,
    pub(super) roots: Roots,
    ioctl_sizes: BTreeMap<u8, u32>,
    pub state: State,
    pub topology: Topology,
    pub clock: Clock,
    /// Sums of the processes whose rows have left the maps.
    pub retired: IoctlTotals,
    /// Records that could not be decoded, by reason.
    pub decode_errors: BTreeMap<&'static str, u64>,
    /// CLOCK_MONOTONIC nanoseconds.
    pub started_ns: u64,
    /// Unix time, seconds.
    pub start_time_seconds: f64,
    /// Pairs of process and command that the sums of ioctls have room for.
    pub stats_entries: u32,
    pub(super) doubt: Doubt,
}

impl Tracer {
    /// Attaches the probes; the ring is given apart, so that it can be awaited while the rest is used.
    ///
    /// # Errors
    /// When nothing could be seen.
    pub fn start(request: &Request) -> Result<(Tracer, Ring), Stop> {
        let (kernel, mut facts) = ground::read(&request.roots)?;
        if request.choice.tracepoints {
            facts = facts.with_tracepoints(&request.roots.sysfs);
        }
        let options = Options {
            ask: Ask { ioctl_records: request.ioctl_records, choice: request.choice.clone() },
            pids: request.pids.clone(),
            ring_bytes: request.ring_bytes,
            possible_cpus: kernel.preflight.possible_cpus.unwrap_or(1),
            cpu_ids: kernel.preflight.cpu_ids,
            procfs: request.roots.procfs.clone(),
        };
        let mut session =
            Session::load(&kernel.symbols, &facts, &options).map_err(|error| Stop::failed(chain(&error)))?;
        let standings = Standings::new(&request.roots, &kernel, &facts, &request.pids);
        standings.number(&mut session);
        session.attach(clock::mono_ns());
        if !session.sees_something() {
            let why = session.probes().iter().filter(|probe| probe.required).find_map(|probe| {
                probe.verdict.reason().map(|why| format!("{}: {why}", probe.symbols.join(", ")))
            });
            let why = why.unwrap_or_else(|| "no function of the driver that could be probed".to_owned());
            return Err(Stop::failed(format!(
                "nothing can be seen here: {why}; `kfd-trace status` tells more"
            )));
        }
        for probe in session.probes() {
            log::info!("{} {}: {}", probe.kind, probe.id.name(), probe.verdict.word());
            log::debug!("{} sits on {}", probe.id.name(), probe.symbols.join(", "));
        }
        #[cfg(debug_assertions)]
        if let Some(logger) = session.take_log() {
            tokio::spawn(crate::events::ring::follow_log(logger));
        }
        let ring = session.take_ring().map_err(|error| Stop::failed(chain(&error)))?;
        let ring = Ring::new(ring, session.layout().clone()).map_err(|error| Stop::failed(chain(&error)))?;
        let mut tracer = Tracer {
            session,
            ioctl_sizes: facts.ioctl_sizes.clone(),
            state: State::new(request.limits),
            topology: Topology::read(&request.roots.sysfs),
            clock: wall_clock(),
            retired: IoctlTotals::default(),
            decode_errors: DecodeError::REASONS.map(|reason| (reason, 0)).into(),
            started_ns: clock::mono_ns(),
            start_time_seconds: clock::unix_seconds(clock::mono_ns()),
            stats_entries: load::stats_entries(options.possible_cpus),
            roots: request.roots.clone(),
            doubt: Doubt::new(Arc::new(standings)),
        };
        // The probes are on: from here on births and ends are seen, so what stands is taken in once.
        if let Some(why) = tracer.adopt() {
            eprintln!("kfd-trace: queues from before have no addresses: {why}");
        }
        Ok((tracer, ring))
    }

    /// Takes in one record: see [`Intake::take_in`].
    pub fn take_in<'r>(&mut self, record: &'r Result<Event, DecodeError>) -> Option<TakenIn<'r>> {
        let queues_by_ioctl = self.queues_by_ioctl();
        let Self { state, decode_errors, roots, .. } = self;
        Intake { state, decode_errors, procfs: &roots.procfs, queues_by_ioctl }.take_in(record)
    }

    /// Queues are followed by their ioctls alone, since they cannot be probed.
    #[must_use]
    pub fn queues_by_ioctl(&self) -> bool {
        self.session.queues_by_ioctl()
    }

    /// The verdict on every probe.
    #[must_use]
    pub fn probes(&self) -> &[ProbeStatus] {
        self.session.probes()
    }

    /// What the maps hold, and what the kernel left out.
    ///
    /// # Errors
    /// When the kernel refuses the reading.
    pub fn tables(&self) -> Result<Tables, Stop> {
        Ok(Tables { missed: self.session.missed(), ..self.maps()? })
    }

    /// What the maps hold. A call under way needs a thread: one whose thread has ended is not in flight, its return
    /// was not seen.
    fn maps(&self) -> Result<Tables, Stop> {
        let mut tables = self.session.tables().map_err(|error| Stop::failed(chain(&error)))?;
        let procfs = &self.roots.procfs;
        let alive = |row: &InFlightRow| procfs.join(format!("{}/task/{}", row.tgid, row.tid)).exists();
        let (in_flight, ended) = std::mem::take(&mut tables.in_flight).into_iter().partition(alive);
        tables.in_flight = in_flight;
        let ended: Vec<InFlightRow> = ended;
        for call in ended {
            let row = tables.ioctls.iter_mut().find(|row| (row.process, row.cmd) == (call.process, call.cmd));
            if let Some(row) = row {
                row.stat.no_return_seen += 1;
            }
        }
        Ok(tables)
    }

    /// Takes the probes off; the ring and the maps can still be read.
    pub fn detach(&mut self) {
        self.session.detach();
    }

    /// The wall clock may have been set.
    pub fn renew_clock(&mut self) {
        self.clock.mono_to_wall_ns = i128::from(clock::wall_minus_mono_ns());
    }

    /// Forgets what has ended long enough ago, and makes room in the maps.
    ///
    /// # Errors
    /// When the kernel refuses to read or change the maps.
    pub fn expire(&mut self) -> Result<(), Stop> {
        let now_ns = clock::mono_ns();
        let gone: BTreeSet<ProcessId> = self.state.expire(now_ns).into_iter().collect();
        if gone.is_empty() {
            return Ok(());
        }
        let Tables { mut ioctls, mut errors, .. } = self.maps()?;
        ioctls.retain(|row| gone.contains(&row.process));
        errors.retain(|row| gone.contains(&row.process));
        self.session.retire(&gone, now_ns).map_err(|error| Stop::failed(chain(&error)))?;
        self.retired.retire(&ioctls, &errors);
        Ok(())
    }

    /// User space and this kernel disagree on the size of an ioctl's arguments.
    #[must_use]
    pub fn mismatch(&self, event: &Event) -> Option<Mismatch> {
        let Body::Ioctl(call) = &event.body else { return None };
        ioctl::mismatch(call.cmd, self.ioctl_sizes.get(&ioctl::nr(call.cmd)).copied())
    }
}

/// Wall time of this machine, in its zone.
#[must_use]
pub fn wall_clock() -> Clock {
    Clock { mono_to_wall_ns: i128::from(clock::wall_minus_mono_ns()), zone: TimeZone::system() }
}
