//! `kfd-trace top`: what all processes and GPUs do now, on the whole terminal.

mod player;
mod recorded;
mod screen;
mod watched;

use crate::events::ring::Ring;
use crate::kernel::Roots;
use crate::model::selected::Selected;
use crate::output::status;
use crate::output::top::{Moment, RECENT};
use crate::probes::plan::Choice;
use crate::probes::session::Session;
use crate::runtime::clock;
use crate::runtime::exit::{NOTHING_TO_TRACE, Stop};
use crate::runtime::signals::Signals;
use crate::state::{Filter, History, StateLimits};
use crate::tracer::driver::{self, UNLOADED};
use crate::tracer::engine::{TraceRequest, Tracer};
use crate::tracer::follow::{self, Follow, Happened, TURN};
use crate::tracer::history;
pub use recorded::{RecordedOptions, play};
use screen::{Screen, await_first};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
pub use watched::{WatchOptions, watch};

/// What is requested.
#[derive(Clone, Debug)]
pub struct TopOptions {
    pub roots: Roots,
    /// Between two moments that are shown.
    pub interval: Duration,
    pub colour: bool,
    pub ring_bytes: u32,
    /// Interval between samples of queues; zero for none.
    pub sample: Duration,
    pub choice: Choice,
}

/// Runs until the user ends it.
///
/// # Errors
/// One line and an exit code.
pub async fn run(options: &TopOptions) -> Result<(), Stop> {
    if let Err(stop) = crate::tracer::preflight::check(&crate::kernel::Preflight::read(&options.roots)) {
        return watched::instead(stop, options.interval, options.colour).await;
    }
    let mut signals = Signals::of_a_terminal().map_err(Stop::failed)?;
    let top = Top::new(options).attached();
    let shown = await_first(top, ATTACHING, options.colour, &mut signals).await?;
    let Some(((mut top, follow), mut screen)) = shown else { return Ok(()) };
    let shown = top.all(follow, &mut screen, &mut signals).await;
    screen.close().await;
    top.tracer.detach();
    shown
}

/// Shown until all probes are attached.
const ATTACHING: &str = "attaching probes";

struct Top<'a> {
    options: &'a TopOptions,
    tracer: Tracer,
    history: History,
    /// Why nothing is traced now, if so.
    why_not: Option<String>,
}

impl<'a> Top<'a> {
    fn new(options: &'a TopOptions) -> Self {
        let tracer = Tracer::new(&TraceRequest {
            roots: options.roots.clone(),
            ioctl_records: false,
            selected: Selected::All,
            ring_bytes: options.ring_bytes,
            choice: options.choice.clone(),
            sample: options.sample,
            limits: StateLimits::default(),
        });
        Top { options, tracer, history: History::default(), why_not: None }
    }

    /// With its probes attached, which takes the kernel seconds: another thread waits for it. Dropped, that ends with the
    /// program.
    async fn attached(mut self) -> Result<(Self, Follow), Stop> {
        let ring = self.attach().await?;
        let follow = self.begin(ring)?;
        Ok((self, follow))
    }

    async fn attach(&mut self) -> Result<Ring, Stop> {
        let mut tracer = std::mem::replace(&mut self.tracer, Tracer::idle(&self.options.roots));
        let attempt = spawn_blocking(move || {
            let ring = tracer.attach();
            (tracer, ring)
        });
        let (tracer, ring) = attempt.await.map_err(Stop::failed)?;
        self.tracer = tracer;
        ring
    }

    async fn all(&mut self, follow: Follow, screen: &mut Screen, signals: &mut Signals) -> Result<(), Stop> {
        let mut follow = Some(follow);
        let mut due = interval(self.options.interval);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(TURN);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let happened = tokio::select! {
                happened = follow::next(follow.as_mut(), &mut self.tracer, signals) => happened?,
                _ = due.tick() => {
                    screen.show(self.moment());
                    continue;
                }
                _ = look.tick(), if follow.is_none() => {
                    tokio::select! {
                        attached = self.attach_again() => follow = attached?,
                        ended = screen.ended() => return ended,
                        () = signals.any() => return Ok(()),
                    }
                    continue;
                }
                ended = screen.ended() => return ended,
            };
            if let Some(follow) = &mut follow {
                self.tracer.renew_clock();
                history::records(&mut self.tracer, &mut self.history, &follow.records);
                follow.records.clear();
            }
            match (happened, &mut follow) {
                (Happened::Listed(seen), _) => {
                    let reported = self.tracer.reconcile(*seen);
                    history::reported(&self.tracer, &mut self.history, &reported);
                }
                (Happened::Sampled(pass), Some(follow)) => follow.sampled(&mut self.tracer, &pass),
                (Happened::DriverGone, _) => {
                    follow = None;
                    let session = self.driver_unloaded();
                    screen.show(self.moment());
                    drop(session);
                }
                (Happened::TypesRefuted(why), _) => {
                    drop(self.tracer.types_refuted(why));
                    self.why_not = Some(ATTACHING.to_owned());
                    screen.show(self.moment());
                    let ring = tokio::select! {
                        ring = self.attach() => ring?,
                        ended = screen.ended() => return ended,
                        () = signals.any() => return Ok(()),
                    };
                    follow = Some(self.begin(ring)?);
                }
                (Happened::Signal, _) => return Ok(()),
                (Happened::Records | Happened::Sampled(_), _) => {}
            }
        }
    }

    fn begin(&mut self, ring: Ring) -> Result<Follow, Stop> {
        self.why_not = None;
        history::begins(&mut self.tracer, &mut self.history);
        let follow = Follow::new(ring, &self.tracer, TURN);
        follow.map_err(|error| Stop::failed(format!("cannot continue: {error}")))
    }

    /// Returns the session that must be dropped, which takes the kernel seconds.
    fn driver_unloaded(&mut self) -> Option<Session> {
        self.why_not = Some(format!("{UNLOADED}; waiting for it"));
        history::driver_unloaded(&mut self.tracer, &mut self.history)
    }

    /// `None` while the driver is not loaded.
    ///
    /// # Errors
    /// If it is loaded and cannot be traced.
    async fn attach_again(&mut self) -> Result<Option<Follow>, Stop> {
        if driver::absence(&self.options.roots).is_some() {
            return Ok(None);
        }
        match self.attach().await {
            Ok(ring) => self.begin(ring).map(Some),
            Err(stop) if stop.code == NOTHING_TO_TRACE => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    fn moment(&mut self) -> Moment {
        self.tracer.renew_clock();
        let tracer = &self.tracer;
        Moment {
            snapshot: tracer.state.snapshot(),
            topology: tracer.topology.clone(),
            clock: tracer.clock.clone(),
            now_ns: clock::mono_ns(),
            boot_ns: clock::boot_ns(),
            recent: self.history.find(&Filter::newest(RECENT)).entries.into_iter().map(Into::into).collect(),
            sight: status::sight(tracer.probes(), tracer.queues_by_ioctl()),
            lost: tracer.tables().ok().map(|tables| tables.missing(&tracer.undecoded)),
            why_not: self.why_not.clone(),
            sample: Some(Duration::from_nanos(tracer.samples.interval_ns)),
            played: None,
            watched: None,
        }
    }
}

#[cfg(test)]
mod tests;
