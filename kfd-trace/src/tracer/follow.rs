//! The main loop: waits for the next event of a tracer, for the stream and the daemon alike.
//!
//! In: the ring buffer, a tick each second, the driver's lists, samples, signals. Out: [`Happened`], and in
//! [`Follow::records`] all records that came before it, to be processed first.

use super::engine::Tracer;
use super::reconcile::background::BackgroundScan;
use super::reconcile::scan::Scan;
use super::sample::pass::Pass;
use super::sample::schedule::{Sampling, Step};
use crate::events::decode::Undecodable;
use crate::events::ring::Ring;
use crate::model::event::Event;
use crate::runtime::exit::Stop;
use crate::runtime::signals::Signals;
use crate::runtime::ticks::Ticks;
use std::io;
use std::time::Duration;

/// Interval between turns: ended processes are removed, new GPUs are attached to, lists are read if due.
pub const TURN: Duration = Duration::from_secs(1);

/// Access to the tracer: direct or behind a lock.
pub trait Access {
    /// Uses it; `None` if there is none.
    fn with<T>(&mut self, act: impl FnOnce(&mut Tracer) -> T) -> Option<T>;
}

impl Access for Tracer {
    fn with<T>(&mut self, act: impl FnOnce(&mut Tracer) -> T) -> Option<T> {
        Some(act(self))
    }
}

/// What happened. All of it is later than [`Follow::records`].
#[derive(Debug)]
pub enum Happened {
    /// Records came, or a tick is over.
    Records,
    /// The driver's lists were read: [`Tracer::reconcile`] compares with them.
    Listed(Box<Scan>),
    /// Queues were sampled: [`Follow::sampled`] processes the sample.
    Sampled(Pass),
    /// The driver was unloaded. There is nothing more to follow.
    DriverGone,
    /// The driver contradicts its types: [`Tracer::types_refuted`] forgets them. There is nothing more to follow.
    TypesRefuted(String),
    /// A signal requests the end.
    Signal,
}

/// A tracer that is followed, from its attachment until its driver is unloaded.
pub struct Follow {
    ring: Ring,
    lists: BackgroundScan,
    sampling: Sampling,
    /// The driver is checked at each tick.
    ticks: Ticks,
    /// A turn is due after this many ticks.
    ticks_per_turn: u128,
    ticks_seen: u128,
    /// Records that are not processed yet; the caller clears them.
    pub records: Vec<Result<Event, Undecodable>>,
}

impl Follow {
    /// `tracer`: the attached one. `check`: how soon an unloaded driver is noticed, at most [`TURN`].
    ///
    /// # Errors
    /// If there is no timer for the ticks.
    pub fn new(ring: Ring, tracer: &Tracer, check: Duration) -> io::Result<Self> {
        let procfs = tracer.roots.procfs.clone();
        Ok(Follow {
            ring,
            lists: BackgroundScan::default(),
            sampling: Sampling::new(tracer.sample_interval(), procfs, tracer.samples.waiting.clone()),
            ticks: Ticks::each(check)?,
            ticks_per_turn: (TURN.as_nanos() / check.as_nanos()).max(1),
            ticks_seen: 0,
            records: Vec::new(),
        })
    }

    /// Waits for the next event. Cancel-safe: dropped while it waits, it has missed nothing.
    ///
    /// # Errors
    /// If the ring buffer or the maps cannot be read, or a scan of the lists or a sample panicked.
    pub async fn next(&mut self, access: &mut impl Access, signals: &mut Signals) -> Result<Happened, Stop> {
        let happened = self.wait(access, signals).await?;
        match access.with(|tracer| tracer.vet(&mut self.records)) {
            Some(Err(why)) => Ok(Happened::TypesRefuted(why)),
            _ => Ok(happened),
        }
    }

    async fn wait(&mut self, access: &mut impl Access, signals: &mut Signals) -> Result<Happened, Stop> {
        tokio::select! {
            read = self.ring.read(&mut self.records) => {
                read.map_err(|error| Stop::failed(format!("ring buffer: {error}")))?;
                Ok(Happened::Records)
            }
            ticked = self.ticks.tick() => {
                ticked.map_err(|error| Stop::failed(format!("timer: {error}")))?;
                self.tick(access)
            }
            seen = self.lists.seen() => {
                let seen = seen.map_err(Stop::failed)?;
                self.drain();
                Ok(Happened::Listed(Box::new(seen)))
            }
            step = self.sampling.step() => match step.map_err(Stop::failed)? {
                Step::Due => {
                    let targets = access.with(|tracer| tracer.state.sought());
                    self.sampling.begin(targets.unwrap_or_default());
                    Ok(Happened::Records)
                }
                Step::Done(pass) => {
                    // A reading is of the queue that had the id then: what ended before must be known.
                    self.drain();
                    Ok(Happened::Sampled(pass))
                }
            },
            () = signals.any() => Ok(Happened::Signal),
        }
    }

    fn tick(&mut self, access: &mut impl Access) -> Result<Happened, Stop> {
        if access.with(|tracer| tracer.driver_has_gone()).unwrap_or(false) {
            self.drain();
            return Ok(Happened::DriverGone);
        }
        let is_turn = self.ticks_seen.is_multiple_of(self.ticks_per_turn);
        self.ticks_seen += 1;
        if is_turn { self.turn(access) } else { Ok(Happened::Records) }
    }

    fn turn(&mut self, access: &mut impl Access) -> Result<Happened, Stop> {
        give_back(&mut self.records);
        access.with(|tracer| tidy(tracer, &mut self.lists)).transpose()?;
        if let Some(line) = self.sampling.overdue() {
            log::warn!("{line}");
        }
        if self.sampling.is_late() {
            access.with(|tracer| tracer.state.samples_are_late());
        }
        self.sampling.turn();
        Ok(Happened::Records)
    }

    /// Processes a sample.
    pub fn sampled(&mut self, tracer: &mut Tracer, pass: &Pass) {
        self.sampling.take(tracer, pass);
    }

    /// Adds what is in the ring buffer now to the records.
    pub fn drain(&mut self) {
        self.ring.drain(&mut self.records);
    }
}

/// Records for which memory is kept, 256 KiB: more come at once in a burst only.
const KEPT: usize = 1 << 10;

/// Gives back what a burst of records took. None of them is dropped.
fn give_back(records: &mut Vec<Result<Event, Undecodable>>) {
    records.shrink_to(KEPT);
}

/// The next event; without a driver only a signal. Cancel-safe as [`Follow::next`].
///
/// # Errors
/// As [`Follow::next`].
pub async fn next(
    follow: Option<&mut Follow>,
    access: &mut impl Access,
    signals: &mut Signals,
) -> Result<Happened, Stop> {
    match follow {
        Some(follow) => follow.next(access, signals).await,
        None => {
            signals.any().await;
            Ok(Happened::Signal)
        }
    }
}

fn tidy(tracer: &mut Tracer, lists: &mut BackgroundScan) -> Result<(), Stop> {
    tracer.renew_clock();
    tracer.expire()?;
    tracer.follow_gpus();
    lists.tick(tracer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::samples::{event, seen};

    #[test]
    fn the_memory_of_a_burst_is_given_back_and_no_record_is_dropped() {
        let mut records: Vec<Result<Event, Undecodable>> = Vec::with_capacity(8 * KEPT);
        records.extend((0..3).map(|at_ns| Ok(event(at_ns, 1, 700, seen(false)))));
        let before = records.clone();
        give_back(&mut records);
        assert!(records.capacity() < 2 * KEPT, "{}", records.capacity());
        assert_eq!(records, before);
        records.extend((0..2 * KEPT).map(|_| Ok(event(9, 1, 700, seen(false)))));
        give_back(&mut records);
        assert_eq!(records.len(), 2 * KEPT + 3);
    }
}
