//! `kfd-trace amd-log`: the contents of AMD_LOG_LEVEL logs, and which queues of KFD they mean.

use self::bar::Bar;
use self::input::{End, LogSource};
use crate::amd_log::report::{Input, Kfd};
use crate::amd_log::{Report, Tally};
use crate::kernel::Roots;
use crate::runtime::exit::Stop;
use crate::runtime::signals::Signals;
use crate::runtime::stderr::say;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

mod bar;
mod compressed;
mod follow;
mod input;
mod kfd;

/// The command line's request.
#[derive(Clone, Debug)]
pub struct LogOptions {
    pub roots: Roots,
    /// At least one; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Continues at the ends of the files until a signal.
    pub follow: bool,
    pub json: bool,
    /// Joins with the queues that exist now.
    pub live: bool,
    /// Joins with the output of `kfd-trace --json` or `ps --json`.
    pub stream: Option<PathBuf>,
}

/// The requested files. They are opened first: with the caller's rights, and before minutes are spent on one
/// of them.
pub struct Opened {
    sources: Vec<LogSource>,
    stream: Option<kfd::Stream>,
}

impl Opened {
    /// Opens them; waits for the first bytes of pipes.
    ///
    /// # Errors
    /// One line: for a file that cannot be read, or not as requested.
    pub fn open(options: &LogOptions) -> Result<Opened, Stop> {
        let sources = options
            .files
            .iter()
            .map(|path| LogSource::open(path, options.follow))
            .collect::<Result<_, _>>()?;
        let stream = options.stream.as_deref().map(kfd::Stream::open).transpose()?;
        Ok(Opened { sources, stream })
    }
}

/// Prints the report.
///
/// # Errors
/// A file cannot be read any further (the report is printed all the same), or the output cannot be written.
pub async fn run(options: LogOptions, opened: Opened) -> Result<(), Stop> {
    let mut signals = Signals::new().map_err(Stop::failed)?;
    let end = End::default();
    let asked = end.clone();
    let mut work = tokio::task::spawn_blocking(move || read_and_tell(&options, opened, &asked));
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

fn read_and_tell(options: &LogOptions, opened: Opened, end: &End) -> Result<(), Stop> {
    let Opened { mut sources, stream } = opened;
    let mut tally = Tally::default();
    let mut kfd = stream.map(|stream| stream.read(end)).transpose()?;
    if options.live {
        // First: a missing driver is reported before minutes are spent, and the process may end meanwhile.
        stands_now(&options.roots, kfd.get_or_insert_default())?;
    }
    let bar = Bar::new(sources.iter().map(LogSource::size).sum(), options.follow);
    if options.follow {
        follow::read(&mut sources, &mut tally, end, &bar);
    } else {
        for source in &mut sources {
            source.read_all(&mut tally, end, &bar);
        }
    }
    bar.done();
    let failed = sources.iter().find_map(LogSource::failure);
    let inputs: Vec<Input> = sources.into_iter().map(LogSource::finish).collect();
    if options.live && options.follow {
        // Queues may have been created while the log grew.
        stands_now(&options.roots, kfd.get_or_insert_default())?;
    }
    let report = Report::new(&tally, inputs, kfd.as_ref());
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if options.json { report.json(&mut out) } else { report.text(&mut out) };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(Stop::failed(error)),
        _ => {}
    }
    failed.map_or(Ok(()), |line| Err(Stop::failed(line)))
}

/// Adds what exists now and is not there yet.
fn stands_now(roots: &Roots, kfd: &mut Kfd) -> Result<(), Stop> {
    let (queues, problem) = kfd::live(roots)?;
    if !kfd.asked.contains(&"live") {
        kfd.asked.push("live");
        if let Some(why) = problem {
            say(format_args!(
                "addresses of queues are not reported here: {why}; record them with kfd-trace --json, and use --stream"
            ));
        }
    }
    for queue in queues {
        if !kfd.queues.contains(&queue) {
            kfd.queues.push(queue);
        }
    }
    Ok(())
}
