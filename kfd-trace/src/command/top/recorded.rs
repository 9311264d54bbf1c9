//! `kfd-trace top --recording`: a recording, played as it happened, on the whole terminal.
//!
//! In: items of a file, and what the user wants ([`Controls`]). Out: a [`Moment`] for each screen.

use super::screen::await_first;
use crate::command::replay::source::{AHEAD, BUFFER, CHUNK, Chunk, read_ahead};
use crate::output::top::{Controls, Moment, Played, RECENT};
use crate::recording::{Begin, Closed, Item, Items, Line, ReadError, Reader, Replay, When, time_of};
use crate::runtime::exit::Stop;
use crate::runtime::signals::Signals;
use crate::state::{Filter, History};
use crate::text::escape;
use crate::tracer::engine;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// What is requested.
#[derive(Clone, Debug)]
pub struct RecordedOptions {
    pub file: PathBuf,
    /// Where to begin.
    pub at: Option<When>,
    /// Between two moments that are shown.
    pub interval: Duration,
    pub colour: bool,
}

/// Nanoseconds that a jump takes.
const JUMP: u64 = 10_000_000_000;

type Opening<'f> = Pin<Box<dyn Future<Output = Result<Tape, Stop>> + 'f>>;

/// Plays it until the user ends it.
///
/// # Errors
/// If it is no recording, begins later than requested, or there is no terminal.
pub async fn play(options: &RecordedOptions) -> Result<(), Stop> {
    let mut signals = Signals::of_a_terminal().map_err(Stop::failed)?;
    let awaits = format!("reading {}", options.file.display());
    let opened = async {
        let tape = Tape::open(&options.file).await?;
        let target = match options.at {
            None => tape.at_ns,
            Some(when) => {
                tape.time(when).map_err(|why| Stop::usage(format!("{}: {why}", options.file.display())))?
            }
        };
        Ok((tape, target))
    };
    let opened = await_first(opened, &escape::terminal(&awaits), options.colour, &mut signals).await?;
    let Some(((mut tape, mut target), mut screen)) = opened else { return Ok(()) };
    let mut controls = screen.controls();
    let mut wanted = *controls.borrow();
    // Without a moment there is nothing that keys could be about.
    screen.show(tape.moment(wanted));
    let mut due = interval(options.interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since = Instant::now();
    // It begins anew, to go back.
    let mut again: Option<Opening<'_>> = None;
    let shown = loop {
        let behind = again.is_none() && !tape.is_at(target);
        tokio::select! {
            biased;
            ended = screen.ended() => break ended,
            () = signals.any() => break Ok(()),
            Ok(()) = controls.changed() => {
                let now = *controls.borrow_and_update();
                let from = if behind || again.is_some() { target } else { tape.at_ns };
                target = jumped(tape.begin.at_ns, from, now.jumps - wanted.jumps);
                if again.is_none() && tape.is_past(target) {
                    again = Some(Box::pin(Tape::open(&options.file)));
                }
                wanted = now;
                due.reset_immediately();
            }
            opened = begun_anew(&mut again), if again.is_some() => {
                again = None;
                match opened {
                    Ok(opened) => tape = opened,
                    Err(stop) => break Err(stop),
                }
            }
            slice = tape.slices.recv(), if behind && tape.is_starved() => tape.add(slice),
            // Others have their turn between two slices.
            () = yield_now(), if behind && !tape.is_starved() => tape.take(target),
            _ = due.tick(), if again.is_none() => {
                screen.show(tape.moment(wanted));
                // What it took to get here is not playing time.
                let passed = since.elapsed().min(2 * options.interval).as_nanos();
                since = Instant::now();
                if !wanted.paused {
                    let passed = u64::try_from(passed).unwrap_or(u64::MAX);
                    target = tape.at_ns.saturating_add(passed.saturating_mul(u64::from(wanted.speed)));
                }
            }
        }
    };
    screen.close().await;
    shown
}

async fn begun_anew(again: &mut Option<Opening<'_>>) -> Result<Tape, Stop> {
    match again {
        Some(again) => again.await,
        None => std::future::pending().await,
    }
}

/// Not before the begin; the end is where there are no more items.
pub(super) fn jumped(begin_ns: u64, at_ns: u64, jumps: i64) -> u64 {
    let by = JUMP.saturating_mul(jumps.unsigned_abs());
    if jumps < 0 { at_ns.saturating_sub(by).max(begin_ns) } else { at_ns.saturating_add(by) }
}

/// A recording up to one time.
pub(super) struct Tape {
    begin: Begin,
    replay: Replay,
    history: History,
    pub(super) slices: mpsc::Receiver<Chunk>,
    pending: VecDeque<Item>,
    /// CLOCK_MONOTONIC, nanoseconds.
    at_ns: u64,
    /// Why there are no more items.
    over: Option<String>,
    is_loaded: bool,
}

impl Tape {
    /// # Errors
    /// If it is no recording.
    pub(super) async fn open(file: &Path) -> Result<Self, Stop> {
        let refused = |why: String| Stop::failed(format!("{}: {why}", file.display()));
        let mut slices = read(file)?;
        let mut pending: VecDeque<_> = slices.recv().await.unwrap_or_default().into();
        match pending.pop_front() {
            Some(Ok(Item::Begin(begin))) => {
                let mut tape = Tape::new(begin, slices);
                tape.add(Some(pending.into()));
                Ok(tape)
            }
            Some(Err(error)) => Err(refused(error.to_string())),
            _ => Err(refused(ReadError::Foreign.to_string())),
        }
    }

    fn new(begin: Begin, slices: mpsc::Receiver<Chunk>) -> Self {
        Tape {
            replay: Replay::new(&begin, engine::wall_clock()),
            history: History::default(),
            slices,
            pending: VecDeque::new(),
            at_ns: begin.at_ns,
            over: None,
            is_loaded: true,
            begin,
        }
    }

    /// CLOCK_MONOTONIC of a time, nanoseconds.
    pub(super) fn time(&self, when: When) -> Result<u64, &'static str> {
        let unix_ns = when.unix_ns(self.begin.unix_ns, &self.replay.clock.zone);
        let after = unix_ns.and_then(|unix_ns| u64::try_from(unix_ns.checked_sub(self.begin.unix_ns)?).ok());
        after.map(|after| self.begin.at_ns.saturating_add(after)).ok_or("it begins later")
    }

    /// `None`: there are no more.
    pub(super) fn add(&mut self, slice: Option<Chunk>) {
        match slice {
            Some(slice) => {
                for item in slice {
                    match item {
                        Ok(item) => self.pending.push_back(item),
                        Err(error) => self.over = Some(error.to_string()),
                    }
                }
            }
            None => drop(self.over.get_or_insert_with(|| "it was cut here".to_owned())),
        }
        self.ends();
    }

    pub(super) fn is_at(&self, target_ns: u64) -> bool {
        self.at_ns >= target_ns || self.is_over()
    }

    fn is_over(&self) -> bool {
        self.over.is_some() && self.pending.is_empty()
    }

    /// It has taken items after this time.
    pub(super) fn is_past(&self, target_ns: u64) -> bool {
        target_ns < self.at_ns.max(self.replay.now_ns)
    }

    /// There may be more items, and none is here.
    pub(super) fn is_starved(&self) -> bool {
        self.over.is_none() && self.pending.is_empty()
    }

    /// Takes some of the items until then: then keys have their turn.
    pub(super) fn take(&mut self, target_ns: u64) {
        for _ in 0..CHUNK {
            let Some(item) = self.pending.front() else { break };
            if time_of(item).is_some_and(|at_ns| at_ns > target_ns) {
                self.stands_at(target_ns);
                return;
            }
            match self.pending.pop_front() {
                Some(Item::End { at_ns, .. }) => {
                    self.replay.now_ns = self.replay.now_ns.max(at_ns);
                    self.over = Some("its end".to_owned());
                }
                Some(Item::Close { at_ns, why }) => {
                    self.replay.now_ns = self.replay.now_ns.max(at_ns);
                    self.over = Some(match why {
                        Closed::Rotated => "the next file goes on".to_owned(),
                        Closed::Stopped => "the daemon's end".to_owned(),
                        Closed::Gap => "what came next was lost".to_owned(),
                    });
                }
                Some(item) => {
                    let Tape { replay, history, is_loaded, .. } = self;
                    let Ok(()) = replay.take(item, &mut keep(history, is_loaded));
                    if let Some(why) = replay.refused() {
                        self.pending.clear();
                        self.over = Some(why.to_owned());
                    }
                }
                None => break,
            }
        }
        self.ends();
    }

    fn ends(&mut self) {
        if self.is_over() {
            self.stands_at(self.replay.now_ns.max(self.at_ns));
        }
    }

    /// What comes next is later.
    fn stands_at(&mut self, at_ns: u64) {
        let Tape { replay, history, is_loaded, .. } = self;
        let Ok(()) = replay.settle(&mut keep(history, is_loaded));
        self.at_ns = at_ns;
    }

    /// Why its state is not what existed then.
    fn why_not(&self) -> Option<&'static str> {
        match (self.replay.known_since(), self.is_loaded) {
            (Some(_), _) => None,
            (None, false) => Some("the driver was unloaded"),
            (None, true) => Some("the probes were not attached yet"),
        }
    }

    pub(super) fn moment(&self, controls: Controls) -> Moment {
        let replay = &self.replay;
        Moment {
            snapshot: replay.state.snapshot(),
            topology: replay.topology.clone(),
            clock: replay.clock.clone(),
            now_ns: self.at_ns,
            boot_ns: self.at_ns.saturating_add_signed(replay.mono_to_boot_ns),
            recent: self.history.find(&Filter::newest(RECENT)).entries.into_iter().map(Into::into).collect(),
            sight: replay.sight.clone(),
            lost: replay.lost.clone(),
            why_not: self.why_not().map(str::to_owned),
            sample: Some(Duration::from_nanos(self.begin.sample_ns)),
            played: Some(Played {
                host: self.begin.machine.host.clone(),
                after_ns: self.at_ns.saturating_sub(self.begin.at_ns),
                speed: controls.speed,
                over: self.over.clone().filter(|_| self.is_over()),
            }),
            watched: None,
        }
    }
}

/// Adds the lines of a replay to a history.
fn keep<'a>(
    history: &'a mut History,
    is_loaded: &'a mut bool,
) -> impl FnMut(&Replay, Line<'_>) -> Result<(), Infallible> + 'a {
    |replay, line| {
        let offset_ns = i64::try_from(replay.clock.mono_to_wall_ns).unwrap_or(0);
        match line {
            Line::Event(event, change) => history.record(event, change, &replay.state, offset_ns),
            Line::Loads { loaded, at_ns, loads } => {
                *is_loaded = loaded;
                history.driver(loaded, loads, at_ns, offset_ns);
            }
            // It is said of the whole recording: what was lost.
            Line::Gap { .. } => {}
        }
        Ok(())
    }
}

/// Read by a thread: a file of a disk that hangs must not keep the keys from being read.
fn read(file: &Path) -> Result<mpsc::Receiver<Chunk>, Stop> {
    if file.as_os_str() == "-" {
        return Err(Stop::usage("`top` reads keys from standard input: give --recording the name of a file"));
    }
    if file.is_dir() {
        return Err(Stop::usage(format!(
            "{} is a folder: give --recording one of its files",
            file.display()
        )));
    }
    let file = file.to_owned();
    let (sender, slices) = mpsc::channel(AHEAD);
    let items = move || -> Box<dyn Items> {
        match File::open(&file) {
            Ok(opened) => Box::new(Reader::new(BufReader::with_capacity(BUFFER, opened))),
            Err(error) => Box::new(std::iter::once(Err(error.into()))),
        }
    };
    read_ahead(items, move |slice| sender.blocking_send(slice).is_ok()).map_err(Stop::failed)?;
    Ok(slices)
}
