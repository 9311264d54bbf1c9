//! The table of processes; as a tree, with the queues of each.

use super::Moment;
use super::column::{self, Column, Value};
use super::pane::{Cell, Key, Pane, PaneId, Tone};
use super::queues;
use super::table::Table;
use super::ui::Ui;
use crate::output::memory;
use crate::output::names;
use crate::output::standing::{Standing, Working};
use crate::state::{Process, Queue};
use crate::text::escape;
use ratatui::layout::Rect;
use std::collections::BTreeSet;

fn cell(standing: Standing, now_ns: u64) -> Cell {
    let tone = match standing {
        Standing::Evicted(_) | Standing::Suspended => Tone::Warn,
        Standing::Stalled(_) => Tone::Bad,
        Standing::Busy => Tone::Good,
        Standing::Idle { .. } | Standing::Unknown => Tone::Plain,
        Standing::WithoutQueues | Standing::Exiting => Tone::Quiet,
    };
    standing.text(now_ns).map_or_else(|| Cell::text(None::<String>), |text| Cell::Text(text, tone))
}

fn passes(row: &Working<'_>, ui: &Ui) -> bool {
    let comm = row.process.comm.as_deref();
    (ui.gpu.is_none() || row.process.queues.values().any(|queue| ui.is_on_gpu(queue)))
        && ui.passes([Some(pid(row.process).as_str()), comm, row.owner.as_deref()])
}

/// The PID, with the number of a further context (7.2).
pub(super) fn pid(process: &Process) -> String {
    match (process.tgid, process.context_id) {
        (Some(pid), Some(context)) => format!("{pid}.{context}"),
        (Some(pid), None) => pid.to_string(),
        (None, _) => "-".to_owned(),
    }
}

/// From left to right.
fn columns<'a>() -> [Column<Working<'a>>; 11] {
    [
        Column::right("PID", 7, |row: &Working<'_>, _| Cell::text(Some(pid(row.process))))
            .by(|row| Value::number(row.process.tgid)),
        Column::left("COMM", 15, |row: &Working<'_>, _| {
            Cell::text(row.process.comm.as_deref().map(escape::terminal))
        })
        .by(|row| Value::text(row.process.comm.as_deref())),
        Column::left("OWNER", 0, |row: &Working<'_>, _| Cell::text(row.owner.as_deref()))
            .by(|row| Value::text(row.owner.as_deref())),
        Column::left("GPUS", 8, |row: &Working<'_>, moment| Cell::text(gpus(row.process, moment))).from(100),
        Column::right("QUEUES", 7, |row: &Working<'_>, moment| {
            Cell::text(Some(row.process.queues.len()).filter(|count| *count > 0 || moment.sight.queues))
        })
        .by(|row| Value::count(row.process.queues.len() as u64)),
        Column::right("RATE", 11, |row: &Working<'_>, _| Cell::text(row.load.rate()))
            .by(|row| Value::pair(row.load.rates())),
        Column::right("SDMA", 11, |row: &Working<'_>, _| Cell::text(row.load.sdma_rate()))
            .from(110)
            .by(|row| Value::number(row.load.sdma_bytes_per_second())),
        Column::right("BACKLOG", 8, |row: &Working<'_>, _| Cell::text(row.load.backlog()))
            .by(|row| Value::pair(row.load.backlogs())),
        Column::right("VRAM", 8, |row: &Working<'_>, _| {
            Cell::text(memory::vram(row.process).map(memory::size))
        })
        .from(100)
        .by(|row| memory::vram(row.process).map_or(Value::Unknown, Value::count)),
        Column::right("EVICTIONS", 10, |row: &Working<'_>, moment| {
            Cell::text(moment.sight.evictions.then_some(row.process.evicted.count))
        })
        .from(120)
        .by(|row| Value::count(row.process.evicted.count)),
        Column::left("STATE", 13, |row: &Working<'_>, moment| cell(row.standing, moment.now_ns))
            .by(|row| row.standing.rank().map_or(Value::Unknown, Value::Number)),
    ]
}

/// `0,3`: those that it has queues on.
fn gpus(process: &Process, moment: &Moment) -> Option<String> {
    let ids: BTreeSet<u32> = process.queues.values().filter_map(|queue| queue.facts.gpu_id).collect();
    let index =
        |id: &u32| moment.topology.gpu(*id).map_or_else(|| "?".to_owned(), |gpu| gpu.index.to_string());
    (!ids.is_empty()).then(|| moment.topology.ordered(ids).iter().map(index).collect::<Vec<_>>().join(","))
}

/// A line of the table: a process, or in the tree one of its queues.
#[derive(Clone, Copy)]
struct Line {
    /// Among the rows.
    row: usize,
    queue_id: Option<u32>,
}

/// Rows that pass the filter, in their order; of how many.
pub(super) fn rows<'a>(moment: &'a Moment, ui: &Ui) -> (Vec<Working<'a>>, usize) {
    let all = moment.snapshot.live().map(|process| Working::new(process, moment.sight.queues));
    let mut rows: Vec<Working<'_>> = all.collect();
    let count = rows.len();
    rows.retain(|row| passes(row, ui));
    column::sort(&mut rows, &columns(), ui.sort(PaneId::Processes));
    (rows, count)
}

pub(super) fn pane(rows: &[Working<'_>], moment: &Moment, ui: &Ui, area: Rect) -> Pane {
    let lines = lines(rows, ui);
    let key = |line: &Line| {
        let process = rows[line.row].process.key;
        line.queue_id.map_or(Key::Process(process), |queue_id| Key::Queue(process, queue_id))
    };
    let keys: Vec<Key> = lines.iter().map(key).collect();
    let columns = columns();
    let empty = match (ui.has_filter(), !moment.sight.traces) {
        (true, _) => "No process passes the filter.",
        (false, true) => "Nothing is traced.",
        (false, false) => "No process uses KFD now.",
    };
    let table =
        Table { id: PaneId::Processes, caption: None, columns: &columns, keys, empty: empty.to_owned() };
    table.pane(&lines, ui, area, |shown, line| {
        let row = &rows[line.row];
        match line.queue_id.and_then(|id| row.process.queues.get(&id)) {
            Some(queue) => shown.iter().map(|(_, column)| branch(column.title, queue, moment)).collect(),
            None => column::cells(shown, row, moment),
        }
    })
}

fn lines(rows: &[Working<'_>], ui: &Ui) -> Vec<Line> {
    let of = |(row, Working { process, .. }): (usize, &Working<'_>)| {
        let queues = process.queues.iter().filter(|(_, queue)| ui.tree && ui.is_on_gpu(queue));
        let queues = queues.map(|(id, _)| Some(*id));
        std::iter::once(None).chain(queues).map(move |queue_id| Line { row, queue_id }).collect::<Vec<_>>()
    };
    rows.iter().enumerate().flat_map(of).collect()
}

/// A queue in the columns of its process.
fn branch(title: &str, queue: &Queue, moment: &Moment) -> Cell {
    let facts = &queue.facts;
    match title {
        "COMM" => Cell::Text(format!("└ queue {}", queue.queue_id), Tone::Quiet),
        "OWNER" => {
            let gpu = facts.gpu_id.map(|id| names::gpu(id, &moment.topology));
            let known = [gpu, facts.queue_type.map(|kind| kind.name().to_owned())];
            Cell::text(Some(known.into_iter().flatten().collect::<Vec<_>>().join(" ")))
        }
        "RATE" => queues::rate(queue),
        "BACKLOG" => queues::short_backlog(queue),
        "STATE" if queues::stalled(queue) => Cell::Text("stalled".to_owned(), Tone::Bad),
        "STATE" => queues::state(queue),
        _ => Cell::Text(String::new(), Tone::Plain),
    }
}
