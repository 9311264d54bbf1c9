//! When queues are sampled, and the sample in progress, separate from the thread that follows the ring
//! buffer.
//!
//! In: the requested interval and the cost of a [`Pass`]. Out: when the next one is due, and the result of
//! the last one. A memory read may block: a caller that awaits [`Sampling::step`] beside the ring buffer and
//! the signals serves those meanwhile, and the thread is left to the process that blocks it.

use super::pass::{Pass, Read, Reader, Sampler};
use crate::runtime::timeout::Timeout;
use crate::state::{Target, WaitingReaders};
use crate::tracer::engine::Tracer;
use std::future::pending;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

/// Sampling takes at most 1/`SHARE` of a CPU's time: else the interval is stretched.
const SHARE: u32 = 100;

/// No interval is stretched beyond this.
const LONGEST: Duration = Duration::from_secs(60);

/// At most one sample at a time.
#[derive(Debug)]
pub(crate) struct Sampling {
    interval: Duration,
    due: Instant,
    /// `None` if sampling is off.
    sampler: Option<Sampler>,
    /// The one that reads, if a sample is in progress, and those that wait for a process each.
    threads: JoinSet<Read>,
    /// The sample in progress.
    running: Option<Timeout>,
    /// When to see whether a process blocks it.
    watched: Instant,
    /// A sample without targets, which ends at once.
    empty: Option<Pass>,
    /// The last sample had no targets: a turn of the main loop begins the next one, so that it needs no timer.
    resting: bool,
}

/// How often a sample in progress is watched. Most are over before.
const WATCH: Duration = Duration::from_millis(100);

/// A turn may be this much earlier than a second after the last one.
const EARLY: Duration = Duration::from_millis(500);

/// What to do now.
#[derive(Debug)]
pub(crate) enum Step {
    /// [`Sampling::begin`].
    Due,
    /// [`Sampling::take`].
    Done(Pass),
}

impl Sampling {
    /// `interval`: zero for never.
    pub(crate) fn new(interval: Duration, procfs: PathBuf, waiting: WaitingReaders) -> Self {
        let sampler = (!interval.is_zero()).then(|| Sampler::new(procfs, waiting));
        let (threads, due) = (JoinSet::new(), Instant::now());
        Sampling { interval, due, sampler, threads, running: None, watched: due, empty: None, resting: false }
    }

    /// Waits until there is something to do, forever if sampling is off. Called again, it continues the same
    /// wait.
    ///
    /// # Errors
    /// If a sample panicked.
    pub(crate) async fn step(&mut self) -> Result<Step, JoinError> {
        loop {
            if let Some(pass) = self.empty.take() {
                return Ok(Step::Done(pass));
            }
            let has_timer = self.running.is_none() && self.sampler.is_some() && !self.resting;
            let read = tokio::select! {
                read = joined(&mut self.threads) => read?,
                () = until(self.due), if has_timer => return Ok(Step::Due),
                () = until(self.watched), if self.running.is_some() => {
                    self.watched = Instant::now() + WATCH;
                    self.watch().iter().for_each(|line| log::warn!("{line}"));
                    continue;
                }
            };
            match read {
                Read::All(pass) => {
                    self.running = None;
                    return Ok(Step::Done(pass));
                }
                Read::Returned(key) => {
                    if let Some(sampler) = &mut self.sampler {
                        sampler.returned(key, std::time::Instant::now());
                    }
                }
            }
        }
    }

    /// Must be called once a second.
    pub(crate) fn turn(&mut self) {
        let now = Instant::now();
        if self.resting && self.due <= now + EARLY {
            self.due = now;
            self.resting = false;
        }
    }

    /// Begins a sample.
    pub(crate) fn begin(&mut self, targets: Vec<Target>) {
        let now = Instant::now();
        self.due = now + self.interval;
        self.resting = targets.is_empty();
        let Some(sampler) = &mut self.sampler else { return };
        let reader = sampler.begin(targets, std::time::Instant::now());
        if self.resting {
            // It does not block: avoids waking up another thread.
            if let Read::All(pass) = reader.run() {
                self.empty = Some(pass);
            }
            return;
        }
        self.running = Some(Timeout::new(now.into_std()));
        self.watched = now + WATCH;
        self.reads(reader);
    }

    fn reads(&mut self, reader: Reader) {
        self.threads.spawn_blocking(|| reader.run());
    }

    /// Sees whether a process blocks the sample in progress, and leaves its thread to it: another one goes on.
    /// Returns lines for the log, also of processes and tenants that have answered too slowly.
    fn watch(&mut self) -> Vec<String> {
        let now = std::time::Instant::now();
        let Some(sampler) = &mut self.sampler else { return Vec::new() };
        let mut lines = Vec::new();
        let blocks = sampler.blocks(now);
        let reader = blocks.and_then(|_| sampler.set_aside(now));
        if let (Some(tgid), Some(_)) = (blocks, &reader) {
            lines.push(format!(
                "process {tgid} blocks whoever reads its memory: its queues are not measured until it answers; the others are"
            ));
        }
        lines.extend(sampler.slow(now).into_iter().map(|tgid| {
            format!("reading the memory of process {tgid} takes too long: its queues are not measured for a while; the others are")
        }));
        lines.extend(sampler.slow_tenants().into_iter().map(|tenant| {
            format!("reading the memory of the processes of {tenant} takes too long together: some of them are left out of samples")
        }));
        reader.into_iter().for_each(|reader| self.reads(reader));
        lines
    }

    /// Processes a sample, and sets when the next one is due.
    pub(crate) fn take(&mut self, tracer: &mut Tracer, pass: &Pass) {
        self.watch().iter().for_each(|line| log::warn!("{line}"));
        let interval = stretched(self.interval, Duration::from_nanos(pass.cpu_ns));
        self.due += interval.saturating_sub(self.interval);
        let now = Instant::now();
        if self.due <= now {
            // It was blocked: a process that blocks again must not be read again at once.
            self.due = now + interval;
        }
        let Tracer { samples, state, .. } = tracer;
        samples.interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        samples.take(state, &pass.samples, pass.cpu_ns, pass.at_ns);
    }

    /// The sample in progress takes so long that earlier readings are no longer current.
    pub(crate) fn is_late(&self) -> bool {
        let now = Instant::now().into_std();
        self.running.as_ref().is_some_and(|running| running.is_over(now).is_some())
    }

    /// A log line, once per sample that takes long.
    pub(crate) fn overdue(&mut self) -> Option<String> {
        let took = self.running.as_mut()?.ends(Instant::now().into_std())?;
        let blocks = self.sampler.as_ref().and_then(|sampler| sampler.blocks(std::time::Instant::now()));
        let at = blocks.map_or_else(String::new, |tgid| format!(" and reads the memory of process {tgid}"));
        Some(format!("sampling has taken {} s{at}: until it ends, no activity is measured", took.as_secs()))
    }
}

/// The end of the next thread; never where there is none.
async fn joined(threads: &mut JoinSet<Read>) -> Result<Read, JoinError> {
    match threads.join_next().await {
        Some(read) => read,
        None => pending().await,
    }
}

/// A timer whose time is over still takes up to a millisecond.
async fn until(due: Instant) {
    if due > Instant::now() {
        sleep_until(due).await;
    }
}

/// The interval between samples at which a sample that took `cpu` CPU time stays within its share, up to
/// [`LONGEST`]: the end of a process may be counted there once, if its memory is freed during a reading.
fn stretched(interval: Duration, cpu: Duration) -> Duration {
    interval.max(cpu.saturating_mul(SHARE).min(LONGEST))
}

#[cfg(test)]
mod tests;
