//! Exports what the history gets to a collector, with losses and signs of life, so that gaps show. Nothing here waits for
//! the collector.

use crate::attribute::Topology;
use crate::kernel::Roots;
use crate::otlp::{At, Feed, Host, Item, Settings};
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

/// Interval of `trace_alive`.
const ALIVE: Duration = Duration::from_secs(300);

const MACHINE_ID: &str = "/etc/machine-id";

/// The export of a daemon.
#[derive(Debug)]
pub(super) struct Export {
    feed: Feed,
    all: bool,
    gpus: Option<Topology>,
    /// The losses exported last.
    lost: BTreeMap<String, u64>,
    /// When these were read last; `None` while nothing is traced.
    looked: Option<Instant>,
    /// When `trace_alive` was exported last.
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
        let mut items = vec![Item::Begin(now(tracer))];
        self.gpus = None;
        items.extend(self.gpus(tracer));
        (self.looked, self.alive) = (Some(Instant::now()), Instant::now());
        items.extend(history.take_new().into_iter().map(Item::New));
        items.extend(self.losses(tracer));
        self.feed.put(items);
    }

    /// Hands over what has come. To be called after all that changes the history, and at least once a second.
    pub(super) fn save(&mut self, tracer: &Tracer, history: &mut History) {
        let new = history.take_new();
        let mut items: Vec<Item> = Vec::new();
        if !new.is_empty() {
            items.extend(self.gpus(tracer));
        }
        items.extend(new.into_iter().map(Item::New));
        if self.looked.is_some_and(|looked| looked.elapsed() >= LOSSES) {
            self.looked = Some(Instant::now());
            items.extend(self.losses(tracer));
            if self.alive.elapsed() >= ALIVE {
                self.alive = Instant::now();
                items.push(Item::Alive(now(tracer)));
            }
        }
        if !items.is_empty() {
            self.feed.put(items);
        }
    }

    /// The probes are gone, and what ended with them was added to the history.
    pub(super) fn detached(&mut self, tracer: &Tracer, history: &mut History) {
        if self.looked.take().is_none() {
            return;
        }
        let mut items: Vec<Item> = history.take_new().into_iter().map(Item::New).collect();
        items.extend(self.losses(tracer));
        items.push(Item::End(now(tracer)));
        self.feed.put(items);
    }

    /// Waits a little for the collector.
    pub(super) fn finish(self) {
        self.feed.finish();
    }

    /// The GPUs, where they are not as before.
    fn gpus(&mut self, tracer: &Tracer) -> Option<Item> {
        if self.gpus.as_ref() == Some(&tracer.topology) {
            return None;
        }
        self.gpus = Some(tracer.topology.clone());
        Some(Item::Gpus(now(tracer), tracer.topology.clone()))
    }

    /// What was lost until now, where that is not as before.
    fn losses(&mut self, tracer: &Tracer) -> Option<Item> {
        let lost = tracer.tables().ok()?.missing(&tracer.undecoded);
        if lost == self.lost {
            return None;
        }
        self.lost.clone_from(&lost);
        Some(Item::Lost(now(tracer), lost))
    }
}

fn now(tracer: &Tracer) -> At {
    let mono_ns = clock::mono_ns();
    let unix_ns = i128::from(mono_ns) + tracer.clock.mono_to_wall_ns;
    At { mono_ns, unix_ns: i64::try_from(unix_ns).unwrap_or(0) }
}
