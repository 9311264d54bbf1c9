//! Sends what the history gets to a collector, with what tells whether that is all. Nothing here waits for it.

use crate::attribute::Topology;
use crate::kernel::Roots;
use crate::otlp::{At, Feed, Host, Settings, Told};
use crate::runtime::clock;
use crate::runtime::exit::Stop;
use crate::serve::shared::SharedPage;
use crate::state::History;
use crate::tracer::engine::Tracer;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval at which losses are read from the kernel, with all that the programs' maps have.
const LOSSES: Duration = Duration::from_secs(5);

/// Interval at which it is told that the daemon traces.
const ALIVE: Duration = Duration::from_secs(300);

const MACHINE_ID: &str = "/etc/machine-id";

/// The export of a daemon.
#[derive(Debug)]
pub(super) struct Export {
    feed: Feed,
    all: bool,
    gpus: Option<Topology>,
    /// What was told last of losses.
    lost: BTreeMap<String, u64>,
    /// When these were read last; `None` while nothing is traced.
    looked: Option<Instant>,
    /// When it was told last that it traces.
    alive: Instant,
}

impl Export {
    /// # Errors
    /// If there is no thread for it. A collector that does not answer is tried again.
    pub(super) fn start(settings: &Settings, roots: &Roots) -> Result<Self, Stop> {
        let host = Host::read(&roots.procfs, Path::new(MACHINE_ID), clock::unix_ns());
        let feed = Feed::new(settings, &host);
        let feed = feed.map_err(|error| Stop::failed(format!("cannot export: {error}")))?;
        Ok(Export {
            feed,
            all: settings.all,
            gpus: None,
            lost: BTreeMap::new(),
            looked: None,
            alive: Instant::now(),
        })
    }

    /// Joins the page: its scrapes show what became of the records, its history has an outlet for them.
    pub(super) fn join(&self, page: &SharedPage) {
        page.exports(self.feed.exported(), self.all);
    }

    /// The tracer was attached, and what it found was added to the history.
    pub(super) fn attached(&mut self, tracer: &Tracer, history: &mut History) {
        let mut told = vec![Told::Begin(now(tracer))];
        self.gpus = None;
        told.extend(self.gpus(tracer));
        (self.looked, self.alive) = (Some(Instant::now()), Instant::now());
        told.extend(history.take_new().into_iter().map(Told::New));
        told.extend(self.losses(tracer));
        self.feed.put(told);
    }

    /// Hands over what has come. To be called after all that changes the history, and at least once a second.
    pub(super) fn save(&mut self, tracer: &Tracer, history: &mut History) {
        let new = history.take_new();
        let mut told: Vec<Told> = Vec::new();
        if !new.is_empty() {
            told.extend(self.gpus(tracer));
        }
        told.extend(new.into_iter().map(Told::New));
        if self.looked.is_some_and(|looked| looked.elapsed() >= LOSSES) {
            self.looked = Some(Instant::now());
            told.extend(self.losses(tracer));
            if self.alive.elapsed() >= ALIVE {
                self.alive = Instant::now();
                told.push(Told::Alive(now(tracer)));
            }
        }
        if !told.is_empty() {
            self.feed.put(told);
        }
    }

    /// The probes are gone, and what ended with them was added to the history.
    pub(super) fn detached(&mut self, tracer: &Tracer, history: &mut History) {
        if self.looked.take().is_none() {
            return;
        }
        let mut told: Vec<Told> = history.take_new().into_iter().map(Told::New).collect();
        told.extend(self.losses(tracer));
        told.push(Told::End(now(tracer)));
        self.feed.put(told);
    }

    /// Waits a little for the collector.
    pub(super) fn finish(self) {
        self.feed.finish();
    }

    /// The GPUs, where they are not as before.
    fn gpus(&mut self, tracer: &Tracer) -> Option<Told> {
        if self.gpus.as_ref() == Some(&tracer.topology) {
            return None;
        }
        self.gpus = Some(tracer.topology.clone());
        Some(Told::Gpus(now(tracer), tracer.topology.clone()))
    }

    /// What was lost until now, where that is not as before.
    fn losses(&mut self, tracer: &Tracer) -> Option<Told> {
        let lost = tracer.tables().ok()?.missing(&tracer.undecoded);
        if lost == self.lost {
            return None;
        }
        self.lost.clone_from(&lost);
        Some(Told::Lost(now(tracer), lost))
    }
}

fn now(tracer: &Tracer) -> At {
    let mono_ns = clock::mono_ns();
    let unix_ns = i128::from(mono_ns) + tracer.clock.mono_to_wall_ns;
    At { mono_ns, unix_ns: i64::try_from(unix_ns).unwrap_or(0) }
}
