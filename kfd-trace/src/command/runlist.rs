//! `kfd-trace runlist`: at intervals, what each GPU runs, who preempted it and who waited.

use crate::events::ring::Ring;
use crate::kernel::Roots;
use crate::model::selected::Selected;
use crate::model::verdict::{self, PREEMPTIONS};
use crate::output::runlist::{Counted, RunlistView};
use crate::output::status;
use crate::probes::plan::Choice;
use crate::runtime::clock;
use crate::runtime::exit::{NOTHING_TO_TRACE, Stop};
use crate::runtime::signals::Signals;
use crate::runtime::stderr::say;
use crate::runtime::stdout::{self, Stdout, StdoutWriter};
use crate::state::{Snapshot, StateLimits};
use crate::tracer::driver::UNLOADED;
use crate::tracer::engine::{TraceRequest, Tracer};
use crate::tracer::follow::{Follow, Happened, TURN};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// What is requested.
#[derive(Clone, Debug)]
pub struct RunlistOptions {
    pub roots: Roots,
    pub interval: Duration,
    pub duration: Option<Duration>,
    pub json: bool,
    /// Standard output is a terminal: each table replaces the one before.
    pub redraw: bool,
    pub ring_bytes: u32,
    pub choice: Choice,
}

/// Runs until its end is requested.
///
/// # Errors
/// One line and an exit code; also if the driver is unloaded meanwhile.
pub async fn run(options: &RunlistOptions) -> Result<(), Stop> {
    crate::tracer::preflight::check(&crate::kernel::Preflight::read(&options.roots))?;
    if without_hardware_scheduler(&options.roots.sysfs) {
        return Err(Stop::failed(
            "amdgpu runs with sched_policy=2: without a hardware scheduler there are no runlists",
        ));
    }
    let mut tracer = Tracer::new(&TraceRequest {
        roots: options.roots.clone(),
        ioctl_records: false,
        selected: Selected::All,
        ring_bytes: options.ring_bytes,
        choice: Choice { runlists: true, ..options.choice.clone() },
        sample: Duration::ZERO,
        limits: StateLimits::default(),
    });
    let ring = attach(&mut tracer)?;
    let out = Stdout::new().and_then(|stdout| StdoutWriter::new(stdout, stdout::room(options.ring_bytes)));
    let out = out.map_err(|error| Stop::failed(format!("cannot write to standard output: {error}")))?;
    let mut signals = Signals::new().map_err(Stop::failed)?;
    let mut watch = Watch { options, last: Moment::of(&tracer)?, tracer, out };
    let watched = watch.all(ring, &mut signals).await;
    watch.tracer.detach();
    let Watch { out, .. } = watch;
    let written =
        out.finish_unless(&mut signals, stdout::AT_THE_END).await.or_else(|error| match error.kind() {
            // The reader of a pipe has seen enough.
            ErrorKind::BrokenPipe => Ok(()),
            _ => Err(Stop::failed(format!("cannot continue: {error}"))),
        });
    watched.and(written)
}

/// `KFD_SCHED_POLICY_NO_HWS` (amdgpu's parameter `sched_policy`, amdgpu_drv.c). Unknown where it cannot be read.
fn without_hardware_scheduler(sysfs: &Path) -> bool {
    let policy = fs::read_to_string(sysfs.join("module/amdgpu/parameters/sched_policy"));
    policy.is_ok_and(|policy| policy.trim() == "2")
}

/// # Errors
/// Also where preemptions cannot be seen, which is all that is shown.
fn attach(tracer: &mut Tracer) -> Result<Ring, Stop> {
    let ring = tracer.attach()?;
    for line in status::meaning(tracer.probes()) {
        say(line);
    }
    if let Some(probe) = verdict::missing(tracer.probes(), &PREEMPTIONS) {
        let why = probe.verdict.reason().unwrap_or_else(|| probe.verdict.word().to_owned());
        return Err(Stop::failed(format!(
            "preemptions cannot be seen here: {}: {why}; see `kfd-trace status`",
            probe.id.name()
        )));
    }
    say("tracing");
    Ok(ring)
}

/// What was counted up to a moment.
struct Moment {
    mono_ns: u64,
    snapshot: Snapshot,
    /// By name.
    missing: BTreeMap<String, u64>,
}

impl Moment {
    fn of(tracer: &Tracer) -> Result<Self, Stop> {
        let missing = tracer.tables()?.missing(&tracer.undecoded);
        Ok(Moment { mono_ns: clock::mono_ns(), snapshot: tracer.state.snapshot(), missing })
    }
}

/// Where a table is shown on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Instead,
    /// The last one: a short interval would take the place of a whole one.
    Below,
}

struct Watch<'a> {
    options: &'a RunlistOptions,
    tracer: Tracer,
    /// The end of the last interval.
    last: Moment,
    out: StdoutWriter,
}

impl Watch<'_> {
    async fn all(&mut self, ring: Ring, signals: &mut Signals) -> Result<(), Stop> {
        let mut follow = self.follow(ring)?;
        let end = self.options.duration.map(|duration| Instant::now() + duration);
        let mut due = interval_at(Instant::now() + self.options.interval, self.options.interval);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let happened = tokio::select! {
                happened = follow.next(&mut self.tracer, signals) => happened?,
                _ = due.tick() => {
                    // The last table has the rest, too: it says more than one of some milliseconds.
                    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                    if left.is_none_or(|left| left > self.options.interval / 4) {
                        self.drain(&mut follow);
                        self.show(Place::Instead)?;
                    }
                    continue;
                }
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => break,
            };
            self.take_in(&mut follow);
            match happened {
                Happened::Records => {}
                Happened::Listed(seen) => drop(self.tracer.reconcile(*seen)),
                Happened::Sampled(pass) => follow.sampled(&mut self.tracer, &pass),
                Happened::DriverGone => {
                    return Err(Stop { code: NOTHING_TO_TRACE, line: UNLOADED.to_owned() });
                }
                Happened::TypesRefuted(why) => {
                    drop(self.tracer.types_refuted(why));
                    let ring = attach(&mut self.tracer)?;
                    self.last = Moment::of(&self.tracer)?;
                    follow = self.follow(ring)?;
                }
                Happened::Signal => break,
            }
        }
        self.drain(&mut follow);
        self.show(Place::Below)
    }

    fn follow(&self, ring: Ring) -> Result<Follow, Stop> {
        let follow = Follow::new(ring, &self.tracer, TURN);
        follow.map_err(|error| Stop::failed(format!("cannot continue: {error}")))
    }

    fn drain(&mut self, follow: &mut Follow) {
        follow.drain();
        self.take_in(follow);
    }

    fn take_in(&mut self, follow: &mut Follow) {
        self.tracer.renew_clock();
        for record in follow.records.drain(..) {
            self.tracer.take_in(&record);
        }
    }

    /// The interval that ends now.
    fn show(&mut self, place: Place) -> Result<(), Stop> {
        let now = Moment::of(&self.tracer)?;
        let before = std::mem::replace(&mut self.last, now);
        let mut missing = self.last.missing.clone();
        for (name, count) in &before.missing {
            missing.entry(name.clone()).and_modify(|now| *now = now.saturating_sub(*count));
        }
        missing.retain(|_, count| *count > 0);
        let view = RunlistView::new(Counted {
            snapshot: &self.last.snapshot.clone().scheduled_since(&before.snapshot),
            topology: &self.tracer.topology,
            ts: self.tracer.clock.rfc3339(self.last.mono_ns),
            interval_ns: self.last.mono_ns.saturating_sub(before.mono_ns),
            missing,
        });
        let RunlistOptions { json, redraw, .. } = *self.options;
        let written = self.out.line("interval", |out| match (json, redraw) {
            (true, _) => view.json(out),
            (false, true) => {
                if place == Place::Instead {
                    out.extend(b"\x1b[H\x1b[2J");
                }
                view.text(out)
            }
            (false, false) => view.text(out),
        });
        written
            .and_then(|()| self.out.flush())
            .map_err(|error| Stop::failed(format!("cannot continue: {error}")))
    }
}
