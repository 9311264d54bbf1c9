//! Recent events, the newest first.

use super::Moment;
use super::column::{self, Column};
use super::pane::{Cell, Key, Pane, PaneId, Tone};
use super::recent::Recent;
use super::table::Table;
use super::ui::Ui;
use crate::output::names;
use kfd_trace_common::kind::Severity;
use ratatui::layout::Rect;

/// Characters of a time to the millisecond.
const MILLISECONDS: usize = 12;

fn tone(event: &Recent) -> Tone {
    match event.severity() {
        Severity::Failure => Tone::Bad,
        Severity::Created => Tone::Good,
        Severity::Ended | Severity::Stopped => Tone::Warn,
        Severity::Info => Tone::Info,
        Severity::Requested | Severity::Detail => Tone::Quiet,
    }
}

/// From left to right.
fn columns<'a>() -> [Column<&'a Recent>; 6] {
    [
        Column::left("TIME", 12, |event: &&Recent, moment| {
            let time = moment.clock.time_of_day(event.at_ns());
            Cell::text(Some(time.get(..MILLISECONDS).unwrap_or(&time)))
        }),
        Column::left("EVENT", 16, |event: &&Recent, _| Cell::text(Some(event.name())).toned(tone(event))),
        Column::left("GPU", 6, |event: &&Recent, moment| {
            Cell::text(event.gpu_id().map(|id| names::gpu(id, &moment.topology)))
        }),
        Column::right("PID", 7, |event: &&Recent, _| Cell::text(event.pid())),
        Column::left("COMM", 15, |event: &&Recent, _| Cell::text(event.shown_comm())),
        Column::left("DETAIL", 0, |event: &&Recent, _| Cell::text(Some(event.detail()))),
    ]
}

pub(super) fn pane(moment: &Moment, ui: &Ui, area: Rect) -> Pane {
    let columns = columns();
    let has_text = |event: &Recent| {
        let pid = event.pid().map(|pid| pid.to_string());
        ui.passes([pid.as_deref(), event.comm(), event.owner().as_deref(), Some(event.name())])
    };
    let passes = |event: &&Recent| {
        let gpu = event.gpu_id();
        // Without a filter no text is made of each.
        ui.gpu.is_none_or(|only| gpu == Some(only)) && (ui.filter().is_empty() || has_text(event))
    };
    let rows: Vec<&Recent> = moment.recent.iter().rev().filter(passes).collect();
    let keys: Vec<Key> = rows.iter().map(|event| Key::Event(event.address())).collect();
    let empty = if ui.has_filter() { "No event passes the filter." } else { "Nothing has happened yet." };
    let table = Table { id: PaneId::Events, caption: None, columns: &columns, keys, empty: empty.to_owned() };
    table.pane(&rows, ui, area, |shown, row| column::cells(shown, row, moment))
}
