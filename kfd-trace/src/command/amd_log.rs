//! `kfd-trace amd-log`: what logs of AMD_LOG_LEVEL tell, and which queues of KFD they mean.

use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::bar::Bar;
use self::input::Source;
use super::say::say;
use super::signals::Signals;
use super::stop::Stop;
use crate::amd_log::report::{Input, Kfd};
use crate::amd_log::{Report, Tally};
use crate::kernel::Roots;

mod bar;
mod compressed;
mod follow;
mod input;
mod kfd;

/// What the command line asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub roots: Roots,
    /// At least one; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Goes on at the ends of the files until a signal.
    pub follow: bool,
    pub json: bool,
    /// Joins with the queues that stand now.
    pub live: bool,
    /// Joins with what `kfd-trace --json` or `ps --json` wrote.
    pub stream: Option<PathBuf>,
}

/// Set by a signal: the report is of what was read until then.
#[derive(Clone, Debug, Default)]
struct End(Arc<AtomicBool>);

impl End {
    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The files that were asked for. They are opened first: with the rights of who asks, and before minutes are spent on one of them.
pub struct Opened {
    sources: Vec<Source>,
    stream: Option<kfd::Stream>,
}

impl Opened {
    /// Opens them; waits for the first bytes of pipes.
    ///
    /// # Errors
    /// One line: of the one that cannot be read, or not as it was asked.
    pub fn open(ask: &Ask) -> Result<Opened, Stop> {
        let sources =
            ask.files.iter().map(|path| Source::open(path, ask.follow)).collect::<Result<_, _>>()?;
        let stream = ask.stream.as_deref().map(kfd::Stream::open).transpose()?;
        Ok(Opened { sources, stream })
    }
}

/// Prints the report.
///
/// # Errors
/// A file cannot be read any further (the report is printed all the same), or the output cannot be written.
pub async fn run(ask: Ask, opened: Opened) -> Result<(), Stop> {
    let mut signals = Signals::new().map_err(Stop::failed)?;
    let end = End::default();
    let asked = end.clone();
    let mut work = tokio::task::spawn_blocking(move || read_and_tell(&ask, opened, &asked));
    let done = tokio::select! {
        done = &mut work => done,
        () = signals.any() => {
            end.0.store(true, Ordering::Relaxed);
            tokio::select! {
                done = work => done,
                // The second one does not wait.
                () = signals.any() => return Err(Stop::failed("ended before the report was made")),
            }
        }
    };
    done.map_err(Stop::failed)?
}

fn read_and_tell(ask: &Ask, opened: Opened, end: &End) -> Result<(), Stop> {
    let Opened { mut sources, stream } = opened;
    let mut tally = Tally::default();
    let recorded = stream.map(|stream| stream.read(end)).transpose()?;
    let bar = Bar::new(sources.iter().map(Source::size).sum(), ask.follow);
    if ask.follow {
        follow::read(&mut sources, &mut tally, end, &bar);
    } else {
        for source in &mut sources {
            source.read_all(&mut tally, end, &bar);
        }
    }
    bar.done();
    let failed = sources.iter().find_map(Source::failure);
    let inputs: Vec<Input> = sources.into_iter().map(Source::finish).collect();
    let kfd = with_live(ask, recorded)?;
    let report = Report::new(&tally, inputs, kfd.as_ref());
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if ask.json { report.json(&mut out) } else { report.text(&mut out) };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(Stop::failed(error)),
        _ => {}
    }
    failed.map_or(Ok(()), |line| Err(Stop::failed(line)))
}

/// What stands now, too. Read last: queues of a log that grows may be made meanwhile.
fn with_live(ask: &Ask, recorded: Option<Kfd>) -> Result<Option<Kfd>, Stop> {
    if !ask.live {
        return Ok(recorded);
    }
    let mut kfd = recorded.unwrap_or_default();
    kfd.asked.push("live");
    let (queues, problem) = kfd::live(&ask.roots)?;
    kfd.queues.extend(queues);
    if let Some(why) = problem {
        say(format_args!(
            "no addresses of live queues: {why}; record them with kfd-trace --json and --stream"
        ));
    }
    Ok(Some(kfd))
}
