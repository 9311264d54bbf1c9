//! The table of the queues of the selected process.

use super::Moment;
use super::column::{self, Column, Value};
use super::pane::{Cell, Key, Pane, PaneId, Tone};
use super::table::Table;
use super::ui::Ui;
use crate::output::activity;
use crate::output::names;
use crate::output::ps;
use crate::state::{Measured, Process, Queue};
use crate::text::escape;
use bytesize::ByteSize;
use ratatui::layout::Rect;

struct QueueRow<'a> {
    process: &'a Process,
    queue: &'a Queue,
}

/// What its process has retired of it per second.
pub(super) fn rate(queue: &Queue) -> Cell {
    Cell::text(activity::rate(&queue.facts, &queue.activity))
}

/// With why it is not known, or that the queue is stalled.
fn backlog(queue: &Queue) -> Cell {
    let tone = if stalled(queue) { Tone::Bad } else { Tone::Plain };
    let text = activity::backlog(&queue.facts, &queue.activity);
    text.map_or_else(|| Cell::text(None::<String>), |text| Cell::Text(text, tone))
}

/// Without.
pub(super) fn short_backlog(queue: &Queue) -> Cell {
    let now = queue.activity.now();
    let unit = activity::unit(&queue.facts);
    Cell::text(now.zip(unit).map(|(now, unit)| activity::amount(unit, now.counts.backlog())))
}

pub(super) fn stalled(queue: &Queue) -> bool {
    queue.activity.now().is_some_and(Measured::stalled)
}

pub(super) fn state(queue: &Queue) -> Cell {
    let facts = &queue.facts;
    let stopped = facts.evicted == Some(true) || facts.suspended == Some(true);
    Cell::Text(ps::state(facts), if stopped { Tone::Warn } else { Tone::Plain })
}

/// From left to right.
fn columns<'a>() -> [Column<QueueRow<'a>>; 11] {
    [
        Column::right("QUEUE", 6, |row: &QueueRow<'_>, _| Cell::text(Some(row.queue.queue_id)))
            .by(|row| Value::number(Some(row.queue.queue_id))),
        Column::left("GPU", 6, |row: &QueueRow<'_>, moment| {
            Cell::text(row.queue.facts.gpu_id.map(|id| names::gpu(id, &moment.topology)))
        })
        .by(|row| Value::number(row.queue.facts.gpu_id)),
        Column::left("TYPE", 14, |row: &QueueRow<'_>, _| {
            let kind = row.queue.facts.queue_type;
            Cell::text(kind.map(|kind| ps::queue_type(kind, row.process.is_of_runtime(row.queue))))
        }),
        Column::left("STATE", 12, |row: &QueueRow<'_>, _| state(row.queue)),
        Column::right("RATE", 11, |row: &QueueRow<'_>, _| rate(row.queue)).by(|row| {
            let rate = row.queue.activity.now().and_then(|now| now.rate);
            Value::number(rate.map(|rate| rate.retired))
        }),
        Column::right("BACKLOG", 16, |row: &QueueRow<'_>, _| backlog(row.queue)).by(|row| {
            row.queue.activity.now().map_or(Value::Unknown, |now| Value::count(now.counts.backlog()))
        }),
        Column::right("AGE", 0, |row: &QueueRow<'_>, moment| {
            let of_process = ps::process_age_ns(row.process, moment.boot_ns);
            Cell::text(ps::queue_age(row.queue.age_ns(moment.now_ns), of_process))
        })
        .by(|row| row.queue.born_ns.map_or(Value::Unknown, Value::earlier)),
        Column::left("PRIO", 10, |row: &QueueRow<'_>, _| {
            Cell::text(row.queue.facts.priority.map(names::priority))
        })
        .from(100),
        Column::right("EVICTIONS", 10, |row: &QueueRow<'_>, moment| {
            Cell::text(moment.sight.evictions.then_some(row.queue.evictions.count))
        })
        .from(110)
        .by(|row| Value::count(row.queue.evictions.count)),
        Column::left("RING", 14, |row: &QueueRow<'_>, _| {
            Cell::text(row.queue.facts.ring_address.map(names::hex))
        })
        .from(120),
        Column::right("SIZE", 6, |row: &QueueRow<'_>, _| {
            let size = row.queue.facts.ring_size;
            Cell::text(size.map(|size| ByteSize(size).display().iec_short().to_string()))
        })
        .from(120),
    ]
}

/// `process`: the selected one, if any.
pub(super) fn pane(process: Option<&Process>, name: &str, moment: &Moment, ui: &Ui, area: Rect) -> Pane {
    let columns = columns();
    let queues = process.map(|process| process.queues.values().map(move |queue| QueueRow { process, queue }));
    let mut rows: Vec<QueueRow<'_>> =
        queues.into_iter().flatten().filter(|row| ui.is_on_gpu(row.queue)).collect();
    column::sort(&mut rows, &columns, ui.sort(PaneId::Queues));
    let keys: Vec<Key> = rows.iter().map(|row| Key::Queue(row.process.key, row.queue.queue_id)).collect();
    let comm =
        process.and_then(|process| process.comm.as_deref()).map_or_else(|| "-".to_owned(), escape::terminal);
    let caption = match (process, keys.len()) {
        (None, _) => "Queues: no process is selected".to_owned(),
        (Some(_), 0) if !moment.sight.queues => format!("Queues of {name} {comm}: not known"),
        (Some(_), count) => format!("Queues of {name} {comm}: {count}"),
    };
    let empty = match process {
        Some(_) if ui.gpu.is_some() => "It has no queue on this GPU.",
        Some(_) if moment.sight.queues => "It has no queue.",
        _ => "",
    };
    let (caption, empty) = (Some(caption), empty.to_owned());
    let table = Table { id: PaneId::Queues, caption, columns: &columns, keys, empty };
    table.pane(&rows, ui, area, |shown, row| column::cells(shown, row, moment))
}
