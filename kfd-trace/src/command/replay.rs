//! `kfd-trace replay`: what a recording has, as the stream, its summary, or the table of one time.

pub(super) mod source;

use super::trace::{Selection, Whose};
use crate::output::event::context::Context;
use crate::output::event::json;
use crate::output::event::stream::Stream;
use crate::output::ps::{self, Columns, PsRow, PsView};
use crate::recording::{Begin, Item, Line, Replay, When, time_of};
use crate::runtime::exit::{FAILED, Stop};
use crate::runtime::stderr::say;
use crate::state::Sources;
use crate::text::escape;
use crate::tracer::engine;
use kfd_trace_common::kind::Kind;
use source::{BUFFER, Ended, Gaps, Items, Source, begin};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

/// What is requested.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Or a folder of a daemon; `-` for standard input.
    pub file: PathBuf,
    /// The table of this time instead of the stream.
    pub at: Option<When>,
    pub wide: bool,
    pub summary_only: bool,
    pub json: bool,
    pub colour: bool,
    /// Empty for all.
    pub kinds: BTreeSet<Kind>,
    pub whose: Whose,
}

/// Prints it.
///
/// # Errors
/// If it is no recording, or nothing can be printed. One that ends too early is printed as far as it goes before.
pub fn run(options: &ReplayOptions) -> Result<(), Stop> {
    let named = options.file.display();
    let from = Source::open(&options.file)?;
    let mut out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let printed = print(options, from, &mut out);
    match printed.and_then(|ended| out.flush().map(|()| ended).map_err(Trouble::Write)) {
        Ok(Ended::Whole) => Ok(()),
        Ok(Ended::Early(why)) => Err(Stop::failed(format!("{named}: {why}"))),
        Ok(Ended::Lacking(what)) => {
            say(format_args!("{named}: {what}"));
            Ok(())
        }
        // The reader of a pipe has seen enough.
        Err(Trouble::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(Trouble::Write(error)) => Err(Stop::failed(format!("cannot write to standard output: {error}"))),
        Err(Trouble::Read(why)) => Err(Stop { code: FAILED, line: format!("{named}: {why}") }),
    }
}

/// Prints what is requested of a recording.
///
/// # Errors
/// If it is none, or those of `out`.
pub(super) fn print(options: &ReplayOptions, from: Source, out: &mut impl Write) -> Result<Ended, Trouble> {
    let zone = engine::wall_clock().zone;
    let from_unix_ns = |first: &Begin| options.at.and_then(|when| when.unix_ns(first.unix_ns, &zone));
    let first = from.first();
    let mut items = from.items(first.as_ref().and_then(from_unix_ns))?;
    Player { options, first, out }.play(&mut items)
}

/// A daemon has none: it goes on.
const NO_SUMMARY: &str = "it is a daemon's, and has no summary";

/// Why nothing more is printed.
#[derive(Debug)]
pub(super) enum Trouble {
    Read(String),
    Write(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Write(error)
    }
}

struct Player<'a, W: Write> {
    options: &'a ReplayOptions,
    /// Of a folder, how its first file begins.
    first: Option<Begin>,
    out: &'a mut W,
}

impl<W: Write> Player<'_, W> {
    fn play(&mut self, items: &mut Items) -> Result<Ended, Trouble> {
        let begin = begin(items).map_err(|error| Trouble::Read(error.to_string()))?;
        let mut replay = Replay::new(&begin, engine::wall_clock());
        match self.options.at {
            Some(when) => self.table(when, &begin, &mut replay, items),
            None => self.stream(&begin, &mut replay, items),
        }
    }

    fn stream(&mut self, begin: &Begin, replay: &mut Replay, items: &mut Items) -> Result<Ended, Trouble> {
        let options = self.options;
        if !options.json && !options.summary_only {
            Stream { colour: options.colour }.heading(self.out)?;
        }
        let show = &mut |replay: &Replay, line: Line<'_>| self.line(begin, replay, line);
        let mut ended = Ended::without_end();
        let (mut summary, mut gaps) = (None, Gaps::default());
        replay.begin(begin, show)?;
        for item in items {
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    ended = Ended::Early(error.to_string());
                    break;
                }
            };
            ended = ended.with(&item);
            let is_sight = matches!(item, Item::Sight { .. });
            match item {
                Item::End { text, json, .. } => summary = Some(if options.json { json } else { text }),
                item => replay.take(item, show)?,
            }
            if is_sight {
                gaps.report(&replay.sight);
            }
            if let Some(why) = replay.refused() {
                return Err(Trouble::Read(why.to_owned()));
            }
        }
        replay.settle(show)?;
        let Some(summary) = summary else {
            if options.summary_only && ended == Ended::Whole {
                return Err(Trouble::Read(NO_SUMMARY.to_owned()));
            }
            return Ok(match ended {
                Ended::Early(why) => {
                    let before = lacking(replay).unwrap_or_else(|| "what came before is complete".to_owned());
                    Ended::Early(format!("{why}; {before}"))
                }
                ended => lacking(replay).map_or(ended, Ended::Lacking),
            });
        };
        // Anybody can write a recording.
        for line in summary.lines() {
            writeln!(self.out, "{}", escape::terminal(line))?;
        }
        Ok(Ended::Whole)
    }

    fn line(&mut self, begin: &Begin, replay: &Replay, line: Line<'_>) -> io::Result<()> {
        let options = self.options;
        if options.summary_only {
            return Ok(());
        }
        let (event, change) = match line {
            Line::Event(event, change) => (event, change),
            Line::Loads { loaded, at_ns, loads } if options.json => {
                let what = if loaded { json::Driver::Loaded } else { json::Driver::Unloaded };
                return json::driver(self.out, what, at_ns, &replay.clock, loads);
            }
            Line::Loads { .. } => return Ok(()),
            Line::Gap { at_ns, gap } if options.json => {
                return json::gap(self.out, at_ns, &replay.clock, gap);
            }
            Line::Gap { at_ns, gap } => {
                return Stream { colour: options.colour }.gap(self.out, at_ns, &replay.clock, gap);
            }
        };
        let selection = Selection {
            kinds: &options.kinds,
            on_request: true,
            processes: begin.selected,
            whose: &options.whose,
        };
        if !selection.shows(event, change, &replay.state) {
            return Ok(());
        }
        let context = Context::of_replay(replay, event, change);
        if options.json {
            json::event(self.out, event, &context)
        } else {
            Stream { colour: options.colour }.event(self.out, event, &context)
        }
    }

    /// What existed at a time.
    fn table(
        &mut self,
        when: When,
        begin: &Begin,
        replay: &mut Replay,
        items: &mut Items,
    ) -> Result<Ended, Trouble> {
        let zone = replay.clock.zone.clone();
        let first_ns = self.first.as_ref().unwrap_or(begin).unix_ns;
        let at_ns = when.unix_ns(first_ns, &zone).filter(|at_ns| *at_ns >= first_ns);
        let at_ns = at_ns.ok_or_else(|| Trouble::Read(format!("it begins later, at {}", wall(first_ns))))?;
        let later = played_until(at_ns, replay, items)?;
        if replay.known_since().is_none() {
            return Err(Trouble::Read(not_known(replay, later, items)));
        }
        let now_ns = mono_ns(replay, at_ns);
        let boot_ns = now_ns.saturating_add_signed(replay.mono_to_boot_ns);
        let options = self.options;
        let mut snapshot = replay.state.snapshot();
        snapshot.processes.retain(|process| options.whose.has(process));
        let rows = PsRow::from_snapshot(&snapshot, now_ns, boot_ns);
        let columns = if options.wide { Columns::All } else { Columns::Usual { width: super::ps::width() } };
        let view = PsView {
            asked: Sources::default(),
            all_queues: replay.sight.queues,
            topology: &replay.topology,
            columns,
        };
        if options.json {
            ps::json(self.out, &rows, &view, replay.clock.rfc3339(now_ns))?;
        } else {
            ps::text(self.out, &rows, &view)?;
        }
        Gaps::default().report(&replay.sight);
        Ok(lacking(replay).map_or(Ended::Whole, Ended::Lacking))
    }
}

/// Plays what is not later than `at_ns`, nanoseconds of the Unix epoch. Returns the first item that is.
///
/// # Errors
/// If nothing was recorded at that time.
fn played_until(at_ns: i64, replay: &mut Replay, items: &mut Items) -> Result<Item, Trouble> {
    let mut cut = String::new();
    for item in items {
        let item = match item {
            Ok(item) => item,
            Err(error) => {
                cut = format!(": {error}");
                break;
            }
        };
        match &item {
            Item::Begin(next) if next.unix_ns > at_ns => {
                let (last, next) = (last(replay), wall(next.unix_ns));
                return Err(Trouble::Read(format!("nothing was recorded then, from {last} to {next}")));
            }
            Item::Begin(_) => {}
            other => {
                let of_item = time_of(other).and_then(|mono_ns| replay.clock.unix_ns(mono_ns));
                if of_item.is_some_and(|of_item| of_item > at_ns) {
                    return Ok(item);
                }
            }
        }
        let Ok(()) = replay.take(item, &mut |_, _| Ok::<(), Infallible>(()));
        if let Some(why) = replay.refused() {
            return Err(Trouble::Read(why.to_owned()));
        }
    }
    Err(Trouble::Read(format!("it ends before, at {}{cut}", last(replay))))
}

/// Why the state is not known where it was played to. `later`: what comes next.
fn not_known(replay: &mut Replay, later: Item, items: &mut Items) -> String {
    let next = items.map_while(Result::ok).take_while(|item| !matches!(item, Item::Begin(_)));
    for item in std::iter::once(later).chain(next) {
        let Ok(()) = replay.take(item, &mut |_, _| Ok::<(), Infallible>(()));
        if let Some(since_ns) = replay.known_since() {
            let since = replay.clock.unix_ns(since_ns).map_or_else(String::new, wall);
            return format!("nothing was traced then: what exists is known from {since} on");
        }
    }
    "nothing was traced then, nor later: its probes were not attached".to_owned()
}

/// What a tracer had lost until then; `None` where it is known to be nothing, or was not recorded.
fn lacking(replay: &Replay) -> Option<String> {
    let lost = replay.lost.as_ref().filter(|lost| !lost.is_empty())?;
    let each = lost.iter().map(|(name, count)| format!("{}: {count}", escape::terminal(name)));
    Some(format!("until then its tracer had lost something ({})", each.collect::<Vec<_>>().join("; ")))
}

/// CLOCK_MONOTONIC of a wall time, nanoseconds.
fn mono_ns(replay: &Replay, unix_ns: i64) -> u64 {
    u64::try_from(i128::from(unix_ns) - replay.clock.mono_to_wall_ns).unwrap_or(0)
}

/// When the last item happened that was played.
fn last(replay: &Replay) -> String {
    replay.clock.unix_ns(replay.now_ns).map_or_else(String::new, wall)
}

fn wall(unix_ns: i64) -> String {
    crate::text::clock::rfc3339(unix_ns).unwrap_or_else(|| "an unknown time".to_owned())
}
