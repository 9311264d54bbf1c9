//! `kfd-trace top --url`: what a daemon knows of its machine, on the whole terminal.
//!
//! In: its documents, once an interval. Out: a [`Moment`] of each; while there is no answer, the last one, marked as old.

use super::screen::await_first;
use crate::output::reported::{self, ReportedEvent};
use crate::output::top::{Moment, RECENT, Recent, Silence, Watched};
use crate::remote::{Access, Client, Documents, Failure, Target};
use crate::runtime::clock;
use crate::runtime::exit::Stop;
use crate::runtime::signals::Signals;
use crate::runtime::stderr::say;
use crate::text::clock::Clock;
use jiff::tz::TimeZone;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// What is requested.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    pub access: Access,
    /// Between two questions; longer where reading the answers would take much of a CPU.
    pub interval: Duration,
    pub colour: bool,
}

/// An answer that takes longer than an interval and this is missed.
const SOON: Duration = Duration::from_secs(2);

/// How often the time without an answer is shown.
const TICK: Duration = Duration::from_secs(1);

/// Of a CPU's time, reading answers takes one part of this many, unless that would make a pause longer than [`LONGEST`].
const PART: u32 = 20;

/// Who looks wants no older answer.
const LONGEST: Duration = Duration::from_secs(10);

type Answer = Result<Moment, Failure>;

/// Until the next question, where an answer took `cpu`.
pub(super) fn pause(interval: Duration, cpu: Duration) -> Duration {
    interval.max((cpu * (PART - 1)).min(LONGEST))
}

/// Watches it until the user ends it. An answer that is missed later ends nothing.
///
/// # Errors
/// If the first answer is none, or there is no terminal.
pub async fn watch(options: &WatchOptions) -> Result<(), Stop> {
    let mut signals = Signals::of_a_terminal().map_err(Stop::failed)?;
    let first = async {
        let mut watcher = Watcher::new(Client::new(options.access.clone()));
        let moment = watcher.moment().await.map_err(|failure| failure.stop(&options.access))?;
        Ok((watcher, moment))
    };
    show(options, first, &mut signals).await
}

/// Watches the daemon of this machine, where `stop` says why there is no tracing by itself.
///
/// # Errors
/// `stop`, with what to do, if there is no such daemon.
pub(super) async fn instead(stop: Stop, interval: Duration, colour: bool) -> Result<(), Stop> {
    let options = WatchOptions { access: Access::here(), interval, colour };
    let mut signals = Signals::of_a_terminal().map_err(Stop::failed)?;
    let target = &options.access.target;
    let first = async {
        let mut watcher = Watcher::new(Client::new(options.access.clone()));
        match watcher.moment().await {
            Ok(moment) if moment.why_not.is_none() => {
                say(format_args!("showing what the daemon at {target} knows: {}", stop.line));
                Ok((watcher, moment))
            }
            Ok(_) => Err(with_other(stop, None)),
            Err(failure) => Err(with_other(stop, Some((target, &failure)))),
        }
    };
    show(&options, first, &mut signals).await
}

/// `stop`, with what else can be done. `failure`: of the daemon of this machine; that there is none needs no words.
pub(super) fn with_other(mut stop: Stop, failure: Option<(&Target, &Failure)>) -> Stop {
    let failure = failure.filter(|(_, failure)| **failure != Failure::Refused);
    let of = failure.map_or_else(String::new, |(target, failure)| format!(" ({target}: {})", failure.what()));
    stop.line += &format!("; or show a running daemon's by --url URL{of}");
    stop
}

/// `first`: the first answer, and who asks for the others.
pub(super) async fn show(
    options: &WatchOptions,
    first: impl Future<Output = Result<(Watcher, Moment), Stop>>,
    signals: &mut Signals,
) -> Result<(), Stop> {
    let awaits = format!("asking {}", options.access.target.place());
    let shown = await_first(first, &awaits, options.colour, signals).await?;
    let Some(((watcher, first), mut screen)) = shown else { return Ok(()) };
    let mut last = Last::new(first, options.interval + SOON, Instant::now());
    screen.show(last.moment(Instant::now()));
    let (sender, mut answers) = mpsc::channel(1);
    let asking = tokio::spawn(watcher.ask(options.interval, sender));
    let mut due = interval(TICK);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let shown = loop {
        tokio::select! {
            ended = screen.ended() => break ended,
            () = signals.any() => break Ok(()),
            Some((answer, next)) = answers.recv() => {
                last.take(answer, next + SOON, Instant::now());
                screen.show(last.moment(Instant::now()));
            }
            _ = due.tick() => if last.is_old(Instant::now()) {
                screen.show(last.moment(Instant::now()));
            }
        }
    };
    asking.abort();
    screen.close().await;
    shown
}

/// The last answer, and what came after it.
pub(super) struct Last {
    moment: Moment,
    at: Instant,
    /// An answer is missed after this time.
    soon: Duration,
    failure: Option<Failure>,
}

impl Last {
    pub(super) fn new(moment: Moment, soon: Duration, at: Instant) -> Self {
        Last { moment, at, soon, failure: None }
    }

    /// `soon`: when the next one is missed.
    pub(super) fn take(&mut self, answer: Answer, soon: Duration, at: Instant) {
        match answer {
            Ok(moment) => *self = Last::new(moment, soon, at),
            Err(failure) => self.failure = Some(failure),
        }
    }

    pub(super) fn is_old(&self, now: Instant) -> bool {
        self.failure.is_some() || now.duration_since(self.at) > self.soon
    }

    pub(super) fn moment(&self, now: Instant) -> Moment {
        let silence = self.is_old(now).then(|| Silence {
            for_ns: u64::try_from(now.duration_since(self.at).as_nanos()).unwrap_or(u64::MAX),
            why: self.failure.as_ref().map(Failure::what),
        });
        let watched = self.moment.watched.clone().map(|watched| Watched { silence, ..watched });
        Moment { watched, ..self.moment.clone() }
    }
}

/// Asks the daemon.
pub(super) struct Watcher {
    client: Client,
    /// Those that were shown: a row that is selected stays so.
    events: Vec<Arc<ReportedEvent>>,
    zone: TimeZone,
}

impl Watcher {
    pub(super) fn new(client: Client) -> Self {
        Watcher { client, events: Vec::new(), zone: TimeZone::system() }
    }

    /// Without end, as long as answers are received, each with the time until the next one is expected.
    async fn ask(mut self, interval: Duration, answers: mpsc::Sender<(Answer, Duration)>) {
        let mut wait = interval;
        loop {
            sleep(wait).await;
            let (asked, before) = (Instant::now(), clock::own_cpu());
            let answer = self.moment().await;
            wait = pause(interval, clock::own_cpu().saturating_sub(before));
            if answers.send((answer, wait + asked.elapsed())).await.is_err() {
                return;
            }
        }
    }

    pub(super) async fn moment(&mut self) -> Answer {
        let documents = self.client.documents(RECENT).await?;
        let access = self.client.access();
        let watched = Watched { place: access.target.place(), insecure: access.insecure, silence: None };
        self.keep(documents.events.reported());
        Ok(moment(documents, self.events.clone(), self.zone.clone(), watched))
    }

    fn keep(&mut self, events: Vec<ReportedEvent>) {
        let known = std::mem::take(&mut self.events);
        let same = |event: ReportedEvent| {
            let known = known.iter().find(|known| ***known == event);
            known.map_or_else(|| Arc::new(event), Arc::clone)
        };
        // Those of a screen alone: a daemon may have sent more.
        let newest = events.len().saturating_sub(RECENT);
        self.events = events.into_iter().skip(newest).map(same).collect();
    }
}

/// By the daemon's clock: it need not be that of this machine.
pub(super) fn moment(
    documents: Documents,
    events: Vec<Arc<ReportedEvent>>,
    zone: TimeZone,
    watched: Watched,
) -> Moment {
    let Documents { status, lists, .. } = documents;
    let (why_not, lists) = match lists {
        Ok(lists) => (None, Some(lists)),
        Err(why) => (Some(why), None),
    };
    let counted = lists.as_ref().is_some_and(|lists| lists.gpus.have_evictions());
    let now_ns = lists.as_ref().map_or(status.at_ns(), |lists| lists.queues.at_ns());
    let topology = lists.as_ref().map(|lists| reported::topology(&lists.gpus, Some(&status)));
    let snapshot = lists.map(|lists| reported::snapshot(&lists.queues, lists.processes, &lists.gpus));
    Moment {
        snapshot: snapshot.unwrap_or_default(),
        topology: topology.unwrap_or_default(),
        clock: Clock { mono_to_wall_ns: 0, zone },
        now_ns,
        // Starts of processes are not in the API.
        boot_ns: now_ns,
        recent: events.into_iter().map(Recent::Reported).collect(),
        sight: status.sight(counted),
        lost: Some(status.lost().clone()),
        why_not,
        sample: status.sample(),
        played: None,
        watched: Some(watched),
    }
}
