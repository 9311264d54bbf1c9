//! Reads what the earlier daemons of this boot knew, from the newest recordings of a folder, so that the next one goes on
//! with their history.
//!
//! In: a folder, and what this boot is. Out: the history of its newest files, and the state at their end. Both are as the
//! daemons had them: they come from the same calls ([`Replay`]). How much is read is bounded; older files are left out.

use super::files::found;
use super::merged::{Merged, reader};
use super::plan::Found;
use crate::recording::item::{Begin, Item, Machine};
use crate::recording::read::ReadError;
use crate::recording::replay::{Line, Replay};
use crate::state::{Gap, History, State};
use crate::text::clock::Clock;
use jiff::tz::TimeZone;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of files that are read: the history has room for the events of a tenth of it.
const BYTES: u64 = 32 << 20;

/// Files of which the first one may have more bytes than that.
const LARGEST: u64 = 4 * BYTES;

/// Files that are read at most.
pub const MOST_FILES: usize = 64;

/// A reading may take so long; there are two of them, the newest file and all.
const LONGEST_NS: u64 = 10_000_000_000;
const LONGEST: Duration = Duration::from_nanos(LONGEST_NS);

/// Items between two looks at the time.
const LOOK: usize = 256;

/// What these lines change is in no entry of a history; samples are most of a recording.
const PASSED: [&str; 5] = [
    r#"{"input":{"sampled":"#,
    r#"{"input":"sought"}"#,
    r#"{"input":"late"}"#,
    r#"{"input":{"compared":"#,
    r#"{"input":{"vram":"#,
];

/// By how much the moments of two boots differ at least: a machine needs longer to start, and a clock that is slewed is
/// nearer than that. Only for recordings without the id of their boot.
const APART_NS: u64 = 1_000_000_000;

/// A boot, as it is known now.
#[derive(Clone, Debug, Default)]
pub struct Boot {
    /// /proc/sys/kernel/random/boot_id
    pub id: Option<String>,
    pub machine: Machine,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub now_ns: u64,
    /// When it began by the wall clock: CLOCK_REALTIME minus CLOCK_BOOTTIME.
    pub began_unix_ns: i64,
}

impl Boot {
    /// Whether a file that begins so is of it. In doubt it is not.
    fn has(&self, begin: &Begin, clock: Option<(i64, i64)>) -> bool {
        match (&self.id, &begin.boot_id, clock) {
            (Some(own), Some(id), _) => own == id,
            // Earlier programs did not record the id.
            (_, None, Some((wall_ns, boot_ns))) => {
                let began = wall_ns.saturating_sub(boot_ns);
                self.machine == begin.machine
                    && begin.at_ns <= self.now_ns
                    && self.began_unix_ns.abs_diff(began) < APART_NS
            }
            _ => false,
        }
    }
}

/// What was known to the daemons before.
#[derive(Debug)]
pub struct Past {
    /// Its tracing has ended.
    pub history: History,
    /// At the end.
    pub state: State,
    /// From when to when it was recorded: nanoseconds of the Unix epoch, and CLOCK_MONOTONIC.
    pub since_unix_ns: i64,
    pub until_ns: u64,
    /// Files that were read.
    pub files: usize,
    /// Why older ones were left out.
    pub left_out: Option<String>,
    /// Why the rest of the last file was left out.
    pub cut: Option<String>,
}

impl Past {
    /// Reads the newest files, so many at most. `None`: nothing of this boot was recorded there. `stop` ends it, with an error.
    ///
    /// # Errors
    /// One line.
    pub fn read(
        folder: &Path,
        boot: &Boot,
        most_files: usize,
        stop: &AtomicBool,
    ) -> Result<Option<Self>, String> {
        let time = Time { start: Instant::now(), stop };
        let files = match found(folder) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let Some(chosen) = chosen(&files, boot, most_files, &time)? else { return Ok(None) };
        let paths: VecDeque<_> = files[chosen.first..].iter().map(|file| file.path.clone()).collect();
        let count = paths.len();
        let mut items = Merged::with_ends_without(paths, &PASSED);
        let Some(Ok(Item::Begin(begin))) = items.next() else { return Ok(None) };
        let mut reading = Reading::new(&begin);
        let mut cut = None;
        for (index, item) in items.enumerate() {
            if index % LOOK == 0 {
                time.look()?;
            }
            match item {
                Ok(item) => {
                    reading.take(item);
                    if let Some(why) = reading.replay.refused() {
                        return Err(why.to_owned());
                    }
                }
                // The daemon was killed.
                Err(ReadError::Cut) => break,
                Err(error) => {
                    cut = Some(error.to_string());
                    break;
                }
            }
        }
        let last_ns = reading.replay.now_ns;
        // One that still runs goes on meanwhile.
        if last_ns > boot.now_ns.saturating_add(2 * LONGEST_NS) {
            return Err("they have times that have not come yet: their clock is another one".to_owned());
        }
        let Some((history, state, until_ns)) = reading.finish() else { return Ok(None) };
        let (since_unix_ns, left_out) = (begin.unix_ns, chosen.left_out);
        Ok(Some(Past { history, state, since_unix_ns, until_ns, files: count, left_out, cut }))
    }
}

/// The time that a reading has.
struct Time<'s> {
    start: Instant,
    stop: &'s AtomicBool,
}

impl Time<'_> {
    fn look(&self) -> Result<(), String> {
        if self.stop.load(Relaxed) || self.start.elapsed() > LONGEST {
            return Err("reading them takes too long".to_owned());
        }
        Ok(())
    }
}

/// Which files are read: from the first one to the newest.
struct Chosen {
    first: usize,
    /// Why older ones are not read.
    left_out: Option<String>,
}

/// From the newest back, as far as they are of this boot and the bounds permit.
fn chosen(
    files: &[Found],
    boot: &Boot,
    most_files: usize,
    time: &Time<'_>,
) -> Result<Option<Chosen>, String> {
    let (mut chosen, mut bytes, mut count): (Option<usize>, u64, usize) = (None, 0, 0);
    for (index, file) in files.iter().enumerate().rev() {
        time.look()?;
        let most = if chosen.is_none() { LARGEST } else { BYTES };
        bytes += file.bytes;
        if bytes > most || count == most_files {
            return match chosen {
                Some(first) => {
                    let left_out = Some("they are more than is read at a start".to_owned());
                    Ok(Some(Chosen { first, left_out }))
                }
                None => Err(format!("{} has more than is read at a start", file.path.display())),
            };
        }
        match begin(file) {
            Ok((begin, clock)) if !begin.selected && boot.has(&begin, clock) => {
                (chosen, count) = (Some(index), count + 1);
            }
            Ok(_) => break,
            // It was begun, and nothing written yet.
            Err(ReadError::Cut) => {}
            // What came before it is not all up to now.
            Err(error) => {
                let why = format!("{}: {error}", file.path.display());
                let Some(first) = chosen else { return Err(why) };
                return Ok(Some(Chosen { first, left_out: Some(why) }));
            }
        }
    }
    Ok(chosen.map(|first| Chosen { first, left_out: None }))
}

/// How a file begins, and the offsets of its clocks where these identify its boot.
fn begin(file: &Found) -> Result<(Begin, Option<(i64, i64)>), ReadError> {
    let mut items = reader(&file.path)?.without(&PASSED);
    let begin = match items.next() {
        Some(Ok(Item::Begin(begin))) => begin,
        Some(Err(error)) => return Err(error),
        _ => return Err(ReadError::Foreign),
    };
    if begin.boot_id.is_some() {
        return Ok((begin, None));
    }
    let clock = items.take(LOOK).find_map(|item| match item {
        Ok(Item::Clock { wall_ns, boot_ns }) => Some((wall_ns, boot_ns)),
        _ => None,
    });
    Ok((begin, clock))
}

/// What was known before a gap.
struct Earlier {
    state: State,
    /// CLOCK_MONOTONIC, nanoseconds.
    until_ns: u64,
    gap: Gap,
}

/// A recording on its way into a history.
struct Reading {
    history: History,
    replay: Replay,
    /// Before a gap, until it is known what exists after it.
    earlier: Option<Earlier>,
    /// Since when what is shown is traced.
    begun_ns: u64,
    /// All that existed at the begin of a file was read.
    is_whole: bool,
}

impl Reading {
    fn new(begin: &Begin) -> Self {
        let clock = Clock { mono_to_wall_ns: 0, zone: TimeZone::UTC };
        let replay = Replay::new(begin, clock);
        Reading { history: History::default(), replay, earlier: None, begun_ns: begin.at_ns, is_whole: false }
    }

    fn take(&mut self, item: Item) {
        match &item {
            Item::Begin(begin) => self.ends(begin),
            Item::Loads { at_ns, .. } => self.begun_ns = *at_ns,
            Item::Existing => self.exists(),
            _ => {}
        }
        let is_existing = matches!(item, Item::Existing);
        let Reading { history, replay, earlier, .. } = self;
        let Ok(()) = replay.take(item, &mut show(history, earlier));
        if is_existing {
            self.history.begin(self.begun_ns, self.offset_ns());
        }
    }

    /// The history, and the last state that is whole, with its time. `None`: there is no such state.
    fn finish(mut self) -> Option<(History, State, u64)> {
        self.settle();
        self.history.end(self.replay.now_ns, self.offset_ns());
        let Reading { history, replay, earlier, is_whole, .. } = self;
        match earlier {
            // The last daemon was killed before all that it had found was written.
            Some(Earlier { state, until_ns, .. }) => Some((history, state, until_ns)),
            None => is_whole.then_some((history, replay.state, replay.now_ns)),
        }
    }

    fn settle(&mut self) {
        let Reading { history, replay, earlier, .. } = self;
        let Ok(()) = replay.settle(&mut show(history, earlier));
    }

    fn offset_ns(&self) -> i64 {
        offset_ns(&self.replay)
    }

    /// Another file begins that does not go on where the one before it ended.
    fn ends(&mut self, begin: &Begin) {
        self.settle();
        let (until_ns, offset_ns) = (self.replay.now_ns, self.offset_ns());
        self.history.end(until_ns, offset_ns);
        let limits = self.replay.state.limits();
        let state = std::mem::replace(&mut self.replay.state, State::new(limits));
        // A file without what exists between two others changes nothing of what was known before it.
        let (state, until_ns) = match self.earlier.take() {
            Some(Earlier { state, until_ns, .. }) => (state, until_ns),
            None => (state, until_ns),
        };
        let gap = Gap { lasted_ns: begin.at_ns.checked_sub(until_ns), lost_changes: None };
        self.earlier = Some(Earlier { state, until_ns, gap });
        self.begun_ns = begin.at_ns;
    }

    /// All that exists is in the state.
    fn exists(&mut self) {
        self.is_whole = true;
        let Some(Earlier { mut state, gap, .. }) = self.earlier.take() else { return };
        let offset_ns = self.offset_ns();
        self.history.continues(&mut state, &mut self.replay.state, gap, self.begun_ns, offset_ns);
    }
}

/// Takes what the stream showed.
fn show<'h>(
    history: &'h mut History,
    earlier: &'h mut Option<Earlier>,
) -> impl FnMut(&Replay, Line<'_>) -> Result<(), Infallible> + 'h {
    move |replay, line| {
        let offset_ns = offset_ns(replay);
        match line {
            Line::Event(event, change) => history.record(event, change, &replay.state, offset_ns),
            Line::Loads { loaded, at_ns, loads } => {
                history.driver(loaded, loads, at_ns, offset_ns);
                if !loaded {
                    history.end(at_ns, offset_ns);
                }
            }
            Line::Gap { gap, .. } => {
                if let Some(earlier) = earlier {
                    earlier.gap.lost_changes = gap.lost_changes;
                }
            }
        }
        Ok(())
    }
}

fn offset_ns(replay: &Replay) -> i64 {
    i64::try_from(replay.clock.mono_to_wall_ns).unwrap_or(0)
}

#[cfg(test)]
mod tests;
