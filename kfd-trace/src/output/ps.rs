//! Current processes and queues: rows from all available sources, merged, as a table or as JSON.

use super::belongs::BelongsFields;
use super::budget::{Budget, Claim};
use super::controls::{self, Controls};
use super::{activity, memory, names};
use crate::attribute::Topology;
use crate::model::event::{ProcessId, QueueFacts, QueueType};
use crate::state::{Activity, Process, ProcessDetails, Queue, Snapshot, Sources};
use crate::text::clock::age;
use crate::text::escape;
use crate::text::table::plain;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

mod daemon;
mod merge;
pub use daemon::add_history;
pub use merge::{merge, ordered};

/// One queue, or one process without queues. `None` is "not known".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PsRow {
    /// In the initial PID namespace.
    pub pid: Option<u32>,
    /// The tracer's number of the `kfd_process`.
    pub process: Option<ProcessId>,
    pub ns_pid: Option<u32>,
    pub uid: Option<u32>,
    pub comm: Option<String>,
    /// `cgroup` is only the last name of its path if the kernel is the only source.
    pub details: Arc<ProcessDetails>,
    /// Of a further context of its PID (7.2); `None` for the first one.
    pub context_id: Option<u32>,
    /// `None`: the process has no queue.
    pub queue: Option<QueueFacts>,
    /// It is the runtime's own ([`crate::model::queue::is_of_runtime`]).
    pub of_runtime: Option<bool>,
    pub controls: Controls,
    /// Nanoseconds; `None` if the creation of the queue was not seen.
    pub age_ns: Option<u64>,
    /// Nanoseconds since the start of the process's leader: no queue of it is older.
    pub process_age_ns: Option<u64>,
    /// `None`: not sampled.
    pub activity: Option<Activity>,
    /// Bytes of VRAM of the process, by gpu_id, as the driver counts them; empty where that is not known.
    pub vram: Arc<BTreeMap<u32, u64>>,
    /// Empty: not known.
    pub sources: Sources,
}

impl PsRow {
    /// Rows of the live processes of a snapshot. `now_ns`, `boot_ns`: CLOCK_MONOTONIC and CLOCK_BOOTTIME.
    #[must_use]
    pub fn from_snapshot(snapshot: &Snapshot, now_ns: u64, boot_ns: u64) -> Vec<PsRow> {
        let rows = |process: &Process| {
            let own =
                PsRow { process_age_ns: process_age_ns(process, boot_ns), ..PsRow::of_process(process) };
            if process.queues.is_empty() {
                return vec![own];
            }
            process.queues.values().map(|queue| own.clone().with_queue(queue, now_ns)).collect()
        };
        snapshot.live().flat_map(rows).collect()
    }

    /// Bytes that it takes, with its line of a table; estimated.
    #[must_use]
    pub fn weight(&self) -> usize {
        const LINE: usize = 2048;
        let mask = self.controls.cu_mask.as_ref().map_or(0, |mask| size_of_val(&mask.words[..]));
        let comm = self.comm.as_ref().map_or(0, String::len);
        size_of::<Self>() + LINE + mask + comm + self.details.weight()
    }

    fn of_process(process: &Process) -> PsRow {
        PsRow {
            pid: process.tgid,
            process: process.id(),
            ns_pid: process.ns_tgid,
            uid: process.uid,
            comm: process.comm.clone(),
            details: Arc::new(process.known_details()),
            context_id: process.context_id,
            vram: Arc::new(process.memory.vram().clone()),
            sources: process.sources,
            ..PsRow::default()
        }
    }

    fn with_queue(self, queue: &Queue, now_ns: u64) -> PsRow {
        let facts = Some(queue.facts.clone());
        PsRow {
            queue: facts,
            age_ns: queue.age_ns(now_ns),
            controls: Controls::of(queue, now_ns),
            activity: Some(queue.activity.clone()),
            sources: queue.sources,
            ..self
        }
    }

    /// Its pod, Slurm job, container or unit.
    fn owner(&self) -> Option<String> {
        BelongsFields::from(&*self.details).owner()
    }

    pub(super) fn queue_id(&self) -> Option<u32> {
        self.known(|queue| queue.queue_id)
    }

    pub(super) fn gpu_id(&self) -> Option<u32> {
        self.known(|queue| queue.gpu_id)
    }

    /// VRAM of its process on the queue's GPU; without a queue, on all GPUs.
    pub(super) fn vram_bytes(&self) -> Option<u64> {
        match self.gpu_id() {
            Some(gpu_id) => self.vram.get(&gpu_id).copied(),
            None if self.queue.is_none() => memory::total(&self.vram),
            None => None,
        }
    }

    fn age(&self) -> Option<String> {
        match self.queue_id() {
            Some(_) => queue_age(self.age_ns, self.process_age_ns),
            None => self.process_age_ns.map(age),
        }
    }

    /// Activity of its queue, as text.
    fn active(&self, word: fn(&QueueFacts, &Activity) -> Option<String>) -> Option<String> {
        word(self.queue.as_ref()?, self.activity.as_ref()?)
    }

    fn known<T>(&self, of: impl Fn(&QueueFacts) -> Option<T>) -> Option<T> {
        self.queue.as_ref().and_then(of)
    }

    /// `probe+sysfs`, or `sysfs only` if `asked` has other sources, which do not have it.
    #[must_use]
    pub fn source(&self, asked: Sources) -> String {
        let one = self.sources.iter().count() == 1;
        if self.missed_by_one(asked) && one {
            format!("{} only", self.sources)
        } else {
            self.sources.to_string()
        }
    }

    fn missed_by_one(&self, asked: Sources) -> bool {
        asked.iter().any(|source| !self.sources.has(source))
    }
}

/// Nanoseconds since the start of the process's leader; `None` where that is not known. `boot_ns`: CLOCK_BOOTTIME.
pub(super) fn process_age_ns(process: &Process, boot_ns: u64) -> Option<u64> {
    process.start_boottime_ns.map(|start_ns| boot_ns.saturating_sub(start_ns))
}

/// Age of a queue: `5m 3s`; `<5m 3s` where only its process's start is known.
pub(super) fn queue_age(age_ns: Option<u64>, process_age_ns: Option<u64>) -> Option<String> {
    age_ns.map(age).or_else(|| process_age_ns.map(|process| format!("<{}", age(process))))
}

/// `active`, `evicted`, `suspended`, or `inactive`; with the percentage unless it is the usual 100.
pub(super) fn state(queue: &QueueFacts) -> String {
    let word = match (queue.evicted, queue.suspended, queue.active) {
        (Some(true), Some(true), _) => "evicted+suspended",
        (Some(true), ..) => "evicted",
        (_, Some(true), _) => "suspended",
        (.., Some(true)) => "active",
        (.., Some(false)) => "inactive",
        (.., None) => return dash(),
    };
    match queue.percent {
        None | Some(100) => word.to_owned(),
        Some(percent) => format!("{word} {percent}%"),
    }
}

/// `compute_aql`, or `runtime_aql`, which is as wide, for the runtime's own.
pub(crate) fn queue_type(kind: QueueType, of_runtime: Option<bool>) -> String {
    if of_runtime == Some(true) { "runtime_aql".to_owned() } else { kind.name().to_owned() }
}

/// A column: name, whether it is right-aligned, and its cell; `None` is "not known".
type Column = (&'static str, bool, fn(&PsRow, &PsView<'_>) -> Option<String>);

/// How the rows are shown.
#[derive(Clone, Copy, Debug)]
pub struct PsView<'a> {
    /// The sources that were available; empty: not known.
    pub asked: Sources,
    /// The rows have all queues: else it is not known how many slots are in use.
    pub all_queues: bool,
    pub topology: &'a Topology,
    pub columns: Columns,
}

/// Which columns are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Those that answer who uses which GPU. With a width, long owners and names are cut to fit it.
    Usual {
        width: Option<usize>,
    },
    All,
}

const CONTEXT: &str = "CONTEXT";
const COMM: &str = "COMM";
const OWNER: &str = "OWNER";
const RATE: &str = "RATE";
const BACKLOG: &str = "BACKLOG";
const CUS: &str = "CUS";
const SOURCE: &str = "SOURCE";

/// Columns of [`Columns::All`] alone, beside SOURCE.
const WIDE: [&str; 7] = ["NSPID", "RING", "SIZE", "WPTR", "RPTR", "PRIO", "VRAM"];

/// From left to right.
const COLUMNS: [Column; 20] = [
    ("PID", true, |row, _| show(row.pid)),
    ("NSPID", true, |row, _| show(row.ns_pid)),
    (CONTEXT, true, |row, _| show(row.context_id)),
    (COMM, false, |row, _| row.comm.as_deref().map(escape::terminal)),
    (OWNER, false, |row, _| row.owner()),
    ("GPU", false, |row, view| row.gpu_id().map(|id| gpu(id, view))),
    ("QUEUE", true, |row, _| show(row.queue_id())),
    ("TYPE", false, |row, _| {
        row.known(|queue| queue.queue_type).map(|kind| queue_type(kind, row.of_runtime))
    }),
    ("RING", false, |row, _| row.known(|queue| queue.ring_address).map(names::hex)),
    ("SIZE", true, |row, _| row.known(|queue| queue.ring_size).map(memory::size)),
    ("WPTR", false, |row, _| row.known(|queue| queue.write_pointer_address).map(names::hex)),
    ("RPTR", false, |row, _| row.known(|queue| queue.read_pointer_address).map(names::hex)),
    ("STATE", false, |row, _| row.queue_id().and(row.queue.as_ref()).map(state)),
    (RATE, true, |row, _| row.active(activity::rate)),
    (BACKLOG, true, |row, _| row.active(activity::backlog)),
    ("VRAM", true, |row, _| row.vram_bytes().map(memory::size)),
    ("PRIO", true, |row, _| row.controls.priority(row.queue.as_ref()?)),
    (CUS, false, |row, view| {
        let mask = row.controls.cu_mask.as_ref()?;
        Some(controls::mask(mask, row.queue.as_ref()?, view.topology))
    }),
    ("AGE", true, |row, _| row.age()),
    (SOURCE, false, |row, view| Some(row.source(view.asked)).filter(|source| !source.is_empty())),
];

/// The usual columns have the GPU's number alone: the lines below the table have its address.
fn gpu(gpu_id: u32, view: &PsView<'_>) -> String {
    let label = view.topology.label(gpu_id).filter(|_| view.columns == Columns::All);
    label.unwrap_or_else(|| names::gpu(gpu_id, view.topology))
}

/// Column names, and one list of cells per row, safe for a terminal; `-` is "not known". Optional columns:
/// contexts, if a process has more than its first one; owners (pod, Slurm job, container, unit), if one is
/// known; activity, if sampled; CU masks, if there are any; sources, if one misses a row. `view.asked`: the sources that were available.
#[must_use]
pub fn table(rows: &[PsRow], view: &PsView<'_>) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let columns = columns(rows, view);
    let cells = |row| columns.iter().map(|(_, _, cell)| cell(row, view).unwrap_or_else(dash)).collect();
    (columns.iter().map(|(name, ..)| *name).collect(), rows.iter().map(cells).collect())
}

fn columns(rows: &[PsRow], view: &PsView<'_>) -> Vec<Column> {
    let contexts = rows.iter().any(|row| row.context_id.is_some());
    let owners = rows.iter().any(|row| row.owner().is_some());
    let active = rows.iter().any(|row| row.active(activity::backlog).is_some());
    let masked = rows.iter().any(|row| row.controls.cu_mask.is_some());
    let all = view.columns == Columns::All;
    // A difference between the sources is never hidden.
    let differs = rows.iter().any(|row| row.missed_by_one(view.asked));
    let is_shown = |name: &str| match name {
        CONTEXT => contexts,
        OWNER => owners,
        RATE | BACKLOG => active,
        CUS => all && masked,
        SOURCE => all || differs,
        name => all || !WIDE.contains(&name),
    };
    COLUMNS.into_iter().filter(|(name, ..)| is_shown(name)).collect()
}

/// Writes the table, followed by one line per GPU: queues compared with slots.
///
/// # Errors
/// Those of `out`.
pub fn text(out: &mut impl Write, rows: &[PsRow], view: &PsView<'_>) -> io::Result<()> {
    let right: Vec<usize> = columns(rows, view)
        .iter()
        .enumerate()
        .filter(|(_, column)| column.1)
        .map(|(index, _)| index)
        .collect();
    let (header, cells) = table(rows, view);
    write_table(out, &header, cells, &right, view.columns)?;
    let budget = budget(rows, view);
    if !view.topology.gpus.is_empty() {
        writeln!(out)?;
    }
    view.topology.gpus.iter().try_for_each(|gpu| writeln!(out, "{}", budget.line(gpu)))
}

/// `right`: columns that are right-aligned.
fn write_table(
    out: &mut impl Write,
    header: &[&str],
    mut cells: Vec<Vec<String>>,
    right: &[usize],
    columns: Columns,
) -> io::Result<()> {
    if let Columns::Usual { width: Some(width) } = columns {
        for name in [OWNER, COMM] {
            if let Some(index) = header.iter().position(|column| *column == name) {
                fit(header, &mut cells, index, width);
            }
        }
    }
    writeln!(out, "{}", plain(header, cells, right))
}

/// No column is cut below this.
const SHORTEST: usize = 8;

/// Cuts the cells of one column so that the table fits `width`, as far as possible.
fn fit(header: &[&str], cells: &mut [Vec<String>], index: usize, width: usize) {
    let widest = |column: usize, name: &str| {
        let cells = cells.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).chain([name.len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = header.iter().enumerate().map(|(column, name)| widest(column, name)).collect();
    let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    let Some(own) = widths.get(index).filter(|_| total > width) else { return };
    let room = own.saturating_sub(total - width).max(SHORTEST);
    for cell in cells.iter_mut().filter_map(|row| row.get_mut(index)) {
        if cell.chars().count() > room {
            *cell = cell.chars().take(room - 1).chain(['…']).collect();
        }
    }
}

fn budget(rows: &[PsRow], view: &PsView<'_>) -> Budget {
    let queues = rows.iter().filter_map(|row| row.queue.as_ref()).filter(|queue| queue.queue_id.is_some());
    let claims = queues.map(|queue| Claim {
        gpu_id: queue.gpu_id,
        queue_type: queue.queue_type,
        sdma_engine_id: queue.sdma_engine_id,
        active: queue.active,
    });
    let budget = Budget::count(claims, view.topology);
    if view.all_queues { budget } else { budget.incomplete() }
}

fn dash() -> String {
    "-".to_owned()
}

fn show(value: Option<u32>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// Version of the JSON format.
const SCHEMA: u32 = 1;

pub mod fleet;
mod json;
pub use json::json;

#[cfg(test)]
mod tests;
