//! `kfd-trace`: the stream, and at its end the summary.

mod ending;
mod options;
mod record;
mod selection;
mod targets;
mod whose;

use crate::events::decode::Undecodable;
use crate::events::ring::Ring;
use crate::model::event::Event;
use crate::output::event::context::Context;
use crate::output::event::json;
use crate::output::event::stream::Stream;
use crate::output::status;
use crate::probes::plan::Choice;
use crate::runtime::clock;
use crate::runtime::exit::{NOTHING_TO_TRACE, Stop};
use crate::runtime::launched::Launched;
use crate::runtime::pidfd;
use crate::runtime::signals::Signals;
use crate::runtime::stderr::say;
use crate::runtime::stdout::{self, Stdout, StdoutWriter};
use crate::state::{Change, StateLimits};
use crate::text::count::counted;
use crate::tracer::driver::{self, UNLOADED};
use crate::tracer::engine::{TraceRequest, Tracer};
use crate::tracer::follow::{self, Follow, Happened};
use crate::tracer::intake::TakenIn;
use crate::tracer::reconcile::scan::Scan;
use crate::tracer::waiting::Waiting;
use kfd_trace_common::kind::Kind;
pub use options::StreamOptions;
use record::Recording;
pub(super) use selection::Selection;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::time::Duration;
use targets::Targets;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
pub use whose::Whose;

/// Interval between checks of the watched processes, the wall clock and the driver: the stream attaches to
/// the next driver only after it has noticed the end of this one.
const LOOK: Duration = Duration::from_millis(250);

/// Checks per second: after this many, a driver that was unloaded is looked for again.
const SECOND_LOOKS: u64 = 4;

/// After the end of the last watched process: how long its queues may take to end (a kworker frees them).
const GRACE: Duration = Duration::from_secs(5);

/// Where `run` ends before its command.
const COMMAND_GOES_ON: &str = "; the command goes on without the tracer";

/// Runs the stream until its end is requested.
///
/// # Errors
/// One line and an exit code.
pub async fn run(options: &StreamOptions, record: Option<File>) -> Result<(), Stop> {
    let signals = Signals::new().map_err(Stop::failed)?;
    stream(options, Stdout::new(), None, record, signals).await.map(drop)
}

/// The same, into a file alone: `out` gets what `options` still asks for.
///
/// # Errors
/// One line and an exit code.
pub async fn record(options: &StreamOptions, out: Stdout, file: File) -> Result<(), Stop> {
    let signals = Signals::new().map_err(Stop::failed)?;
    stream(options, Ok(out), None, Some(file), signals).await.map(drop)
}

/// The same, of a command that waits, until it has ended. Returns its exit code.
///
/// # Errors
/// One line and an exit code; if the probes could not be attached, the command was not executed.
pub async fn run_command(
    options: &StreamOptions,
    out: Stdout,
    command: Launched,
    record: Option<File>,
) -> Result<u8, Stop> {
    let signals = Signals::beside_a_command().map_err(Stop::failed)?;
    let code = stream(options, Ok(out), Some(command), record, signals).await?;
    code.ok_or_else(|| Stop::failed(COMMAND_GOES_ON.trim_start_matches("; ")))
}

async fn stream(
    options: &StreamOptions,
    out: io::Result<Stdout>,
    command: Option<Launched>,
    record: Option<File>,
    mut signals: Signals,
) -> Result<Option<u8>, Stop> {
    crate::tracer::preflight::check(&crate::kernel::Preflight::read(&options.roots))?;
    let watched = pidfd::resolve(&options.roots.procfs, &options.pids).map_err(Stop::usage)?;
    for process in &watched {
        if let Some(thread) = process.thread {
            say(format_args!("{thread} is a thread of process {}: tracing that process", process.tgid));
        }
    }
    let targets = Targets { processes: watched, command };
    let selection = options.selection(&targets);
    let runlists = Kind::ALL.iter().any(|kind| kind.on_request() && selection.has(*kind));
    let request = TraceRequest {
        roots: options.roots.clone(),
        ioctl_records: record.is_some() || selection.has(Kind::Ioctl) && !options.summary_only,
        selected: targets.selected(&options.roots.procfs).map_err(Stop::failed)?,
        ring_bytes: options.ring_bytes,
        choice: Choice { runlists, ..options.choice.clone() },
        sample: options.sample,
        // The summary covers all that was seen.
        limits: StateLimits { linger_ns: u64::MAX, ..StateLimits::default() },
    };
    let mut tracer = Tracer::new(&request);
    let recording = record.map(|file| Recording::begin(file, &mut tracer, targets.are_some())).transpose();
    let recording = recording.map_err(Stop::failed)?;
    let ring = tracer.attach()?;
    let out = out.and_then(|stdout| StdoutWriter::new(stdout, stdout::room(options.ring_bytes)));
    let out = out.map_err(|error| Stop::failed(format!("cannot write to standard output: {error}")))?;
    let waiting = Waiting::default();
    let mut run = Run { options, tracer, recording, targets, waiting, looks: 0, stop_requested: false, out };
    let reported = run.all(Some(ring), &mut signals).await;
    let code = run.targets.command.as_ref().and_then(Launched::code);
    let left = if run.targets.command.is_some() && code.is_none() { COMMAND_GOES_ON } else { "" };
    // As long as the reader takes, unless the end was requested.
    let still = if run.stop_requested { stdout::AT_THE_END } else { Duration::MAX };
    match reported.and(run.out.finish_unless(&mut signals, still).await) {
        // The reader of a pipe has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(code),
        Err(error) => Err(Stop::failed(format!("cannot continue: {error}{left}"))),
        Ok(()) => Ok(code),
    }
}

struct Run<'a> {
    options: &'a StreamOptions,
    tracer: Tracer,
    recording: Option<Recording>,
    targets: Targets,
    waiting: Waiting,
    looks: u64,
    /// The end was requested.
    stop_requested: bool,
    out: StdoutWriter,
}

impl Run<'_> {
    /// `ring`: `None` while the driver is not loaded. Whatever ended it, it has a summary.
    async fn all(&mut self, ring: Option<Ring>, signals: &mut Signals) -> io::Result<()> {
        let mut follow = None;
        let ended = self.until_end(ring, &mut follow, signals).await;
        self.tracer.detach();
        let shown = follow.map_or(Ok(()), |mut follow| {
            follow.drain();
            self.show(&mut follow.records)
        });
        let summed = self.end();
        summed.and(ended).and(shown)
    }

    async fn until_end(
        &mut self,
        ring: Option<Ring>,
        follow: &mut Option<Follow>,
        signals: &mut Signals,
    ) -> io::Result<()> {
        let mut end = self.options.duration.map(|duration| Instant::now() + duration);
        let mut look = interval(LOOK);
        // After a stop, one check is enough.
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        *follow = ring.map(|ring| self.follow(ring)).transpose()?;
        self.heading()?;
        self.begin()?;
        if let Some(command) = &mut self.targets.command {
            command.go()?;
        }
        loop {
            let happened = tokio::select! {
                happened = follow::next(follow.as_mut(), &mut self.tracer, signals) => {
                    happened.map_err(io::Error::other)?
                }
                _ = look.tick() => {
                    end = self.look(end)?;
                    if follow.is_none() && self.looks.is_multiple_of(SECOND_LOOKS) {
                        *follow = self.attach_again()?.map(|ring| self.follow(ring)).transpose()?;
                    }
                    continue;
                }
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => return Ok(()),
            };
            if let Some(follow) = follow {
                self.show(&mut follow.records)?;
            }
            match (happened, &mut *follow) {
                (Happened::Listed(seen), _) => self.reconcile(*seen)?,
                (Happened::Sampled(pass), Some(follow)) => follow.sampled(&mut self.tracer, &pass),
                (Happened::DriverGone, _) => {
                    *follow = None;
                    self.driver_unloaded()?;
                }
                (Happened::TypesRefuted(why), _) => {
                    drop(self.tracer.types_refuted(why));
                    *follow = None;
                    let ring = self.tracer.attach().map_err(io::Error::other)?;
                    self.begin()?;
                    *follow = Some(self.follow(ring)?);
                }
                (Happened::Signal, _) if self.targets.pass_on() => {}
                (Happened::Signal, _) => {
                    self.stop_requested = true;
                    return Ok(());
                }
                (Happened::Records | Happened::Sampled(_), _) => {}
            }
        }
    }

    fn follow(&self, ring: Ring) -> io::Result<Follow> {
        Follow::new(ring, &self.tracer, LOOK)
    }

    /// The driver was unloaded: everything in it ends, and the stream waits for it to be loaded again.
    fn driver_unloaded(&mut self) -> io::Result<()> {
        let reported = self.tracer.driver_unloaded().reported;
        reported.iter().try_for_each(|(event, change)| self.report(event, change))?;
        self.report_driver(json::Driver::Unloaded)?;
        self.out.flush()?;
        say(format_args!("{UNLOADED}; waiting for it"));
        self.waiting = Waiting::new(driver::absence(&self.options.roots));
        Ok(())
    }

    /// `None` while the driver is not loaded.
    ///
    /// # Errors
    /// If it is loaded and cannot be traced.
    fn attach_again(&mut self) -> io::Result<Option<Ring>> {
        match self.tracer.attach() {
            Ok(ring) => {
                self.report_driver(json::Driver::Loaded)?;
                self.begin()?;
                Ok(Some(ring))
            }
            Err(stop) if stop.code == NOTHING_TO_TRACE => {
                if let Some(line) = self.waiting.message(&stop) {
                    say(line);
                }
                Ok(None)
            }
            Err(stop) => Err(io::Error::other(stop)),
        }
    }

    /// Whichever events were requested: without it a gap would look like silence.
    fn report_driver(&mut self, what: json::Driver) -> io::Result<()> {
        let now_ns = clock::mono_ns();
        self.save()?;
        self.tracer.renew_clock();
        self.record(|recording, tracer| recording.loads(tracer, what == json::Driver::Loaded, now_ns))?;
        if !self.options.json {
            return Ok(());
        }
        let loads = self.tracer.driver_loads;
        let clock = &self.tracer.clock;
        self.out.always(|out| json::driver(out, what, now_ns, clock, loads))
    }

    fn heading(&mut self) -> io::Result<()> {
        if self.options.json || self.options.summary_only {
            return Ok(());
        }
        self.out.always(|out| Stream { colour: self.options.colour }.heading(out))?;
        self.out.flush()
    }

    fn begin(&mut self) -> io::Result<()> {
        for line in status::meaning(self.tracer.probes()) {
            say(line);
        }
        self.record(Recording::attached)?;
        self.report_existing()?;
        let whose = &self.options.whose;
        if !whose.is_all() && !self.tracer.state.live().any(|process| whose.has(process)) {
            say(format_args!("no process of {} uses KFD now: waiting for one", whose.requested()));
        }
        // Scripts wait for this line: from here on nothing is missed.
        if self.targets.command.is_none() {
            say("tracing");
        }
        Ok(())
    }

    /// What exists already: a reader has complete data from the start.
    fn report_existing(&mut self) -> io::Result<()> {
        for (event, change) in self.tracer.state.existing() {
            self.report(&event, &change)?;
        }
        self.out.flush()
    }

    fn show(&mut self, records: &mut Vec<Result<Event, Undecodable>>) -> io::Result<()> {
        self.tracer.renew_clock();
        for record in records.iter() {
            let Some(TakenIn { event, change, derived }) = self.tracer.take_in(record) else { continue };
            self.report(event, &change)?;
            if let Some(derived) = derived {
                let (event, change) = *derived;
                self.report(&event, &change)?;
            }
        }
        records.clear();
        self.save()?;
        self.out.flush()
    }

    /// Keeps what has changed, if there is a recording.
    fn save(&mut self) -> io::Result<()> {
        self.record(Recording::save)
    }

    /// A recording that cannot be written further is over: the summary is printed all the same.
    fn record(&mut self, act: impl FnOnce(&mut Recording, &mut Tracer) -> io::Result<()>) -> io::Result<()> {
        let Some(recording) = &mut self.recording else { return Ok(()) };
        act(recording, &mut self.tracer).inspect_err(|_| self.recording = None)
    }

    fn report(&mut self, event: &Event, change: &Change) -> io::Result<()> {
        let options = self.options;
        let shows = options.selection(&self.targets).shows(event, change, &self.tracer.state);
        if shows && !options.summary_only { self.line(event, change) } else { Ok(()) }
    }

    /// Compares with the driver's lists.
    fn reconcile(&mut self, seen: Scan) -> io::Result<()> {
        let reported = self.tracer.reconcile(seen);
        reported.iter().try_for_each(|(event, change)| self.report(event, change))?;
        self.save()?;
        self.out.flush()
    }

    fn line(&mut self, event: &Event, change: &Change) -> io::Result<()> {
        let Tracer { state, clock, topology, .. } = &self.tracer;
        let (named, mismatch) = (self.tracer.named(), self.tracer.mismatch(event));
        let context = Context::new(change, state, clock, topology, named, mismatch);
        let StreamOptions { json, colour, .. } = *self.options;
        self.out.line(event.body.kind().name(), |out| {
            if json {
                json::event(out, event, &context)
            } else {
                Stream { colour }.event(out, event, &context)
            }
        })
    }

    /// Reports which watched processes have ended; returns when the stream ends.
    fn look(&mut self, end: Option<Instant>) -> io::Result<Option<Instant>> {
        self.looks += 1;
        self.save()?;
        self.record(|recording, tracer| recording.flush_old(tracer))?;
        self.out.flush()?;
        if let Some(dropped) = self.out.news(std::time::Instant::now()) {
            say(format_args!(
                "{} dropped so far: standard output is read too slowly",
                counted(dropped, "line was", "lines were")
            ));
        }
        self.tracer.renew_clock();
        self.targets.look();
        if !self.targets.ended() {
            return Ok(end);
        }
        let released = self.targets.released(&self.tracer.state);
        let latest = if released { Instant::now() } else { Instant::now() + GRACE };
        Ok(Some(end.map_or(latest, |end| end.min(latest))))
    }
}

#[cfg(test)]
mod tests;
