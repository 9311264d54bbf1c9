//! `kfd-trace amd-log`: the contents of AMD_LOG_LEVEL logs, and which queues of KFD they mean.

use crate::amd_log::recorded::{KfdQueue, Recorded};
use crate::amd_log::report::{Kfd, LogInput};
use crate::amd_log::{Report, Tally};
use crate::attribute::Topology;
use crate::command::ps;
use crate::kernel::Roots;
use crate::log_files::{self, Bar, EndFlag, LogSource, QueueRecording};
use crate::output::ps::PsRow;
use crate::runtime::exit::Stop;
use crate::runtime::signals::Signals;
use crate::runtime::stderr::say;
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;

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
    stream: Option<QueueRecording>,
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
        let stream = options.stream.as_deref().map(QueueRecording::open).transpose()?;
        Ok(Opened { sources, stream })
    }
}

/// Prints the report.
///
/// # Errors
/// A file cannot be read any further (the report is printed all the same), or the output cannot be written.
pub async fn run(options: LogOptions, opened: Opened) -> Result<(), Stop> {
    let mut signals = Signals::new().map_err(Stop::failed)?;
    let end = EndFlag::default();
    let flag = end.clone();
    let mut work = tokio::task::spawn_blocking(move || read_and_report(&options, opened, &flag));
    let done = tokio::select! {
        done = &mut work => done,
        () = signals.any() => {
            end.set();
            tokio::select! {
                done = work => done,
                // The second one does not wait.
                () = signals.any() => return Err(Stop::failed("ended before the report was made")),
            }
        }
    };
    done.map_err(Stop::failed)?
}

fn read_and_report(options: &LogOptions, opened: Opened, end: &EndFlag) -> Result<(), Stop> {
    let Opened { mut sources, stream } = opened;
    let mut tally = Tally::default();
    let mut kfd = stream.map(|stream| stream.read(end)).transpose()?;
    if options.live {
        // First: a missing driver is reported before minutes are spent, and the process may end meanwhile.
        add_existing(&options.roots, kfd.get_or_insert_default())?;
    }
    let bar = Bar::new(sources.iter().map(LogSource::size).sum(), options.follow);
    log_files::read(&mut sources, &mut tally, end, &bar, options.follow);
    bar.done();
    let failed = sources.iter().find_map(LogSource::failure);
    let inputs: Vec<LogInput> = sources.into_iter().map(LogSource::finish).collect();
    if options.live && options.follow {
        // Queues may have been created while the log grew.
        add_existing(&options.roots, kfd.get_or_insert_default())?;
    }
    let report = Report::new(&tally, inputs, kfd.as_ref());
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if options.json { report.json(&mut out) } else { report.text(&mut out) };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(Stop::failed(error)),
        _ => {}
    }
    failed.map_or(Ok(()), |line| Err(Stop::failed(format!("{line}; the report is of what is before"))))
}

/// Adds what exists now and is not there yet.
fn add_existing(roots: &Roots, kfd: &mut Kfd) -> Result<(), Stop> {
    let (queues, problem) = live(roots)?;
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

/// What exists now, as `kfd-trace ps` lists it, and why addresses are not available.
///
/// # Errors
/// There is no driver.
fn live(roots: &Roots) -> Result<(Vec<Recorded>, Option<String>), Stop> {
    let (listed, problem) = ps::list(roots, ps::Measure::Nothing)?;
    let queues = listed.rows.iter().filter_map(|row| recorded(row, &listed.topology));
    Ok((queues.collect(), problem.filter(|_| !listed.has_all_addresses())))
}

fn recorded(row: &PsRow, topology: &Topology) -> Option<Recorded> {
    let queue = row.queue.as_ref()?;
    queue.ring_address.or(queue.write_pointer_address)?;
    let kfd = KfdQueue {
        pid: row.pid,
        ns_pid: row.ns_pid,
        comm: row.comm.clone(),
        gpu: queue.gpu_id.and_then(|id| topology.label(id)),
        gpu_id: queue.gpu_id,
        queue_id: queue.queue_id,
        queue_type: queue.queue_type.map(|kind| kind.name().to_owned()),
    };
    Some(Recorded {
        kfd,
        ring: queue.ring_address,
        write_pointer: queue.write_pointer_address,
        created_us: None,
        ended_us: None,
        live: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Origin, QueueFacts, QueueType};

    #[test]
    fn rows_of_ps_keep_their_addresses_and_rows_without_are_left_out() {
        let queue = QueueFacts {
            queue_id: Some(3),
            gpu_id: Some(9),
            queue_type: Some(QueueType::ComputeAql),
            ring_address: Some(0x20),
            write_pointer_address: Some(0x48),
            ..QueueFacts::unknown(Origin::Standing)
        };
        let row = PsRow { pid: Some(40), ns_pid: Some(7), queue: Some(queue), ..PsRow::default() };
        let topology = Topology::default();
        let reported = recorded(&row, &topology).unwrap();
        let kfd = KfdQueue {
            pid: Some(40),
            ns_pid: Some(7),
            queue_id: Some(3),
            gpu_id: Some(9),
            queue_type: Some("compute_aql".to_owned()),
            ..KfdQueue::default()
        };
        let wanted =
            Recorded { kfd, ring: Some(0x20), write_pointer: Some(0x48), live: true, ..Recorded::default() };
        assert_eq!(reported, wanted);
        // As sysfs alone reports it.
        let bare = QueueFacts { queue_id: Some(3), ..QueueFacts::unknown(Origin::Standing) };
        assert_eq!(recorded(&PsRow { queue: Some(bare), ..row }, &topology), None);
        assert_eq!(recorded(&PsRow::default(), &topology), None);
    }
}
