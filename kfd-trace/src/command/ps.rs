//! `kfd-trace ps`: current processes and queues, each with the sources that have it.

use crate::attribute::Topology;
use crate::kernel::{Finding, FindingSeverity, Kernel, Preflight, Roots, findings};
use crate::output::ps::{self, Columns, PsRow, PsView};
use crate::output::reported::{self, Status};
use crate::probes::facts::Facts;
use crate::remote::{Access, Client, Failure, UnreadLists};
use crate::runtime::clock;
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use crate::state::{Inventory, Source, Sources, State};
use crate::text::clock::Clock;
use crate::tracer::engine;
use crate::tracer::inventory;
use crate::tracer::sample::twice;
use crate::tracer::types;
use jiff::tz::TimeZone;
use std::io::{self, ErrorKind, IsTerminal};

/// What exists now.
pub(super) struct Listing {
    pub(super) rows: Vec<PsRow>,
    /// The sources that could be read.
    pub(super) asked: Sources,
    pub(super) topology: Topology,
}

impl Listing {
    /// Also without the kernel's own table.
    pub(super) fn has_all_addresses(&self) -> bool {
        self.asked.has(Source::Debugfs) && without_address(&self.rows) == 0
    }
}

fn without_address(rows: &[PsRow]) -> usize {
    let queues = rows.iter().filter_map(|row| row.queue.as_ref());
    queues.filter(|queue| queue.ring_address.is_none()).count()
}

/// Whether to wait for the activity of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Nothing,
    Activity,
}

/// How the list is printed.
#[derive(Clone, Debug)]
pub struct PsOptions {
    pub json: bool,
    pub wide: bool,
    pub from: PsSource,
}

/// What is listed.
#[derive(Clone, Debug)]
pub enum PsSource {
    /// This machine. The daemon knows more; `None` for the one at its default address, if there is one.
    Here(Option<Access>),
    /// What a daemon knows of its machine.
    Daemon(Access),
}

/// Columns of the terminal, if it prints to one.
pub(super) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Prints the table.
///
/// # Errors
/// If there is no driver, the daemon gives no answer, or the output cannot be written.
pub async fn run(roots: &Roots, options: &PsOptions) -> Result<(), Stop> {
    let of = match &options.from {
        PsSource::Here(daemon) => {
            let (mut listing, problem) = list(roots, Measure::Activity)?;
            add_history(&mut listing.rows, daemon.as_ref()).await;
            if let Some(why) = problem {
                say(missing_addresses(&listing.rows, listing.asked, &why));
            }
            // They take hundreds of files for a GPU, and few queues have a mask.
            if listing.rows.iter().any(|row| row.controls.cu_mask.is_some()) {
                listing.topology = Topology::read_with_compute_units(&roots.sysfs, &listing.topology);
            }
            let ts = engine::wall_clock().rfc3339(clock::mono_ns());
            Printed {
                rows: listing.rows,
                asked: listing.asked,
                all_queues: true,
                topology: listing.topology,
                ts,
                problems: Vec::new(),
            }
        }
        PsSource::Daemon(access) => {
            let mut client = Client::new(access.clone());
            let printed = match client.status_and_lists().await {
                Ok((status, lists)) => reported(&status, &lists),
                Err(failure) => Err(failure),
            };
            let printed = printed.map_err(|failure| failure.stop(access))?;
            printed.problems.iter().for_each(|problem| say(format_args!("{}: {problem}", access.target)));
            printed
        }
    };
    match of.print(options) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Stop::failed(error)),
        _ => Ok(()),
    }
}

/// What a running daemon knows of the rows.
async fn add_history(rows: &mut [PsRow], daemon: Option<&Access>) {
    let access = daemon.cloned().unwrap_or_else(Access::here);
    match Client::new(access.clone()).queues().await {
        Ok(known) => ps::add_history(rows, &known),
        // There need not be a daemon.
        Err(failure) if daemon.is_none() => {
            log::debug!("no ages of queues: {}", failure.stop(&access));
        }
        Err(failure) => say(format_args!("no ages of queues: {}", failure.stop(&access))),
    }
}

/// What a daemon knows.
///
/// # Errors
/// If what it sent is no document of the API.
pub(super) fn reported(status: &Status, lists: &UnreadLists) -> Result<Printed, Failure> {
    let lists = lists.read()?;
    let at_ns = lists.queues.at_ns();
    let topology = reported::topology(&lists.gpus, Some(status));
    let snapshot = reported::snapshot(&lists.queues, lists.processes, &lists.gpus);
    // Starts of processes are not in the API, and so no process has an age.
    let rows = ps::ordered(PsRow::from_snapshot(&snapshot, at_ns, at_ns), &topology);
    let clock = Clock { mono_to_wall_ns: 0, zone: TimeZone::UTC };
    // Which sources the daemon could read is not in the API. It compares them itself.
    let asked = Sources::default();
    let all_queues = status.sight(lists.gpus.have_evictions()).queues;
    let (ts, problems) = (clock.rfc3339(at_ns), status.problems());
    Ok(Printed { rows, asked, all_queues, topology, ts, problems })
}

/// What is printed.
pub(super) struct Printed {
    pub(super) rows: Vec<PsRow>,
    /// The sources that could be read; empty: not known.
    asked: Sources,
    pub(super) all_queues: bool,
    pub(super) topology: Topology,
    pub(super) ts: Option<String>,
    /// What a daemon does not see, or has lost, each in a line.
    pub(super) problems: Vec<String>,
}

impl Printed {
    fn print(self, options: &PsOptions) -> io::Result<()> {
        let Printed { rows, asked, all_queues, topology, ts, .. } = self;
        let mut out = io::stdout().lock();
        let columns = if options.wide { Columns::All } else { Columns::Usual { width: width() } };
        let view = PsView { asked, all_queues, topology: &topology, columns };
        if options.json { ps::json(&mut out, &rows, &view, ts) } else { ps::text(&mut out, &rows, &view) }
    }
}

/// Reads every available source; besides the rows, returns why the kernel's own table could not be read.
///
/// # Errors
/// If there is no driver.
pub(super) fn list(roots: &Roots, measure: Measure) -> Result<(Listing, Option<String>), Stop> {
    let found = findings(&Preflight::read(roots));
    if let Some(finding) = found.iter().find(|finding| finding.severity == FindingSeverity::NothingToTrace) {
        return Err(Stop { code: crate::runtime::exit::NOTHING_TO_TRACE, line: finding.to_string() });
    }
    let mut asked = Sources::from(Source::Sysfs);
    let (kernel, facts) = match types::known(roots) {
        Ok(known) => (Some(known.kernel), known.facts),
        Err(_) => (None, Facts::default()),
    };
    for problem in kernel.iter().flat_map(|kernel| &kernel.btf_problems) {
        say(problem);
    }
    let topology = Topology::read(&roots.sysfs);
    let measured = |mut state: State| {
        if measure == Measure::Activity {
            match twice::sample(&roots.procfs, &mut state) {
                Ok(blocking) => blocking.iter().for_each(|tgid| {
                    say(format_args!(
                        "activity of process {tgid} is not shown: it blocks whoever reads its memory"
                    ));
                }),
                Err(why) => say(format_args!("activity is not shown: {why}")),
            }
        }
        rows(&state)
    };
    let (lists, problem) = match walk(roots, kernel.as_ref(), &facts, &found) {
        Ok(existing) => {
            asked = asked.with(Source::Kernel);
            let of_kernel = measured(inventory::state_of(&existing));
            (vec![of_kernel, rows(&inventory::state_of(&inventory::sysfs(roots, &facts.layout).0))], None)
        }
        Err(why) => {
            let (listed, dumped) = inventory::sysfs_and_debugfs(roots, &facts.layout, &topology);
            let mut state = inventory::state_of(&listed);
            let of_both = match dumped {
                Some(dumped) => {
                    asked = asked.with(Source::Debugfs);
                    inventory::adopt(&mut state, &dumped);
                    measured(state)
                }
                None => rows(&state),
            };
            (vec![of_both], Some(why))
        }
    };
    Ok((Listing { rows: ps::merge(lists, &topology), asked, topology }, problem))
}

/// What is missing without the kernel's own table. `why`: it cannot be read.
fn missing_addresses(rows: &[PsRow], asked: Sources, why: &str) -> String {
    if !asked.has(Source::Debugfs) {
        return format!("sysfs only, no addresses: {why}");
    }
    match without_address(rows) {
        0 => format!("addresses from debugfs: {why}"),
        1 => format!("addresses from debugfs, not of 1 queue: {why}"),
        missing => format!("addresses from debugfs, not of {missing} queues: {why}"),
    }
}

fn walk(
    roots: &Roots,
    kernel: Option<&Kernel>,
    facts: &Facts,
    found: &[Finding],
) -> Result<Inventory, String> {
    if let Some(finding) = found.iter().find(|finding| finding.severity == FindingSeverity::Blocks) {
        return Err(finding.what.clone());
    }
    let kernel = kernel.ok_or("the kernel's symbols cannot be read")?;
    inventory::walk(roots, kernel, facts)
}

fn rows(state: &State) -> Vec<PsRow> {
    let mut rows = PsRow::from_snapshot(&state.snapshot(), clock::mono_ns(), clock::boot_ns());
    // Only a running daemon has numbers that mean something to others.
    rows.iter_mut().for_each(|row| row.process = None);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::{Origin, QueueFacts};
    use crate::model::inventory::Listed;
    use crate::state::ReadTimes;

    /// After an exec, or of a reused PID: the driver has not yet freed the process before.
    #[test]
    fn two_processes_of_one_pid_in_the_kernels_table_have_rows_each() {
        let queue = QueueFacts { queue_id: Some(0), ..QueueFacts::unknown(Origin::Standing) };
        for starts in [[5, 5], [5, 9]] {
            let listed = |start_ns| Listed {
                tgid: 7,
                start_boottime_ns: Some(start_ns),
                queues: vec![queue.clone()],
                ..Listed::default()
            };
            let processes = starts.map(listed).to_vec().into();
            let inventory = Inventory { processes, ..Inventory::empty(Source::Kernel, ReadTimes::from(100)) };
            let rows = rows(&inventory::state_of(&inventory));
            let seen: Vec<_> = rows.iter().map(|row| (row.pid, row.process)).collect();
            assert_eq!(seen, [(Some(7), None); 2], "{starts:?}");
        }
    }
}
