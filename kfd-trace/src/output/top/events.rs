//! Recent events, the newest first.

use super::Moment;
use super::column::{self, Column};
use super::pane::{Cell, Key, Pane, PaneId, Tone};
use super::table::Table;
use super::ui::Ui;
use crate::output::belongs::BelongsFields;
use crate::output::{event, names};
use crate::state::{Entry, What};
use crate::text::escape;
use kfd_trace_common::kind::Severity;
use ratatui::layout::Rect;

/// Characters of a time to the millisecond.
const MILLISECONDS: usize = 12;

/// A failure is bad, whatever its kind.
fn tone(entry: &Entry) -> Tone {
    let failed = entry.event().is_some_and(|(event, _)| event.body.errno().is_some());
    match entry.what.kind().map(kfd_trace_common::kind::Kind::severity) {
        _ if failed => Tone::Bad,
        None if matches!(entry.what, What::Driver { loaded: true, .. }) => Tone::Good,
        None | Some(Severity::Failure) => Tone::Bad,
        Some(Severity::Created) => Tone::Good,
        Some(Severity::Ended) => Tone::Warn,
        Some(Severity::Info) => Tone::Info,
        Some(Severity::Requested | Severity::Detail) => Tone::Quiet,
    }
}

fn comm(entry: &Entry) -> Option<&str> {
    entry.owner.as_ref().and_then(|owner| owner.comm.as_deref())
}

/// From left to right.
fn columns<'a>() -> [Column<&'a Entry>; 6] {
    [
        Column::left("TIME", 12, |entry: &&Entry, moment| {
            let time = moment.clock.time_of_day(entry.mono_ns);
            Cell::text(Some(time.get(..MILLISECONDS).unwrap_or(&time)))
        }),
        Column::left("EVENT", 16, |entry: &&Entry, _| Cell::text(Some(entry.name())).toned(tone(entry))),
        Column::left("GPU", 6, |entry: &&Entry, moment| {
            Cell::text(entry.what.gpu_id().map(|id| names::gpu(id, &moment.topology)))
        }),
        Column::right("PID", 7, |entry: &&Entry, _| Cell::text(entry.pid())),
        Column::left("COMM", 15, |entry: &&Entry, _| Cell::text(comm(entry).map(escape::terminal))),
        Column::left("DETAIL", 0, |entry: &&Entry, _| Cell::text(Some(event::remembered(entry)))),
    ]
}

pub(super) fn pane(moment: &Moment, ui: &Ui, area: Rect) -> Pane {
    let columns = columns();
    let has_text = |entry: &Entry| {
        let pid = entry.pid().map(|pid| pid.to_string());
        let owner = entry.owner.as_ref().and_then(|owner| BelongsFields::from(&owner.details).owner());
        ui.passes([pid.as_deref(), comm(entry), owner.as_deref(), Some(entry.name())])
    };
    let passes = |entry: &&Entry| {
        let gpu = entry.what.gpu_id();
        // Without a filter no text is made of each.
        ui.gpu.is_none_or(|only| gpu == Some(only)) && (ui.filter().is_empty() || has_text(entry))
    };
    let entries = moment.recent.iter().rev().map(AsRef::as_ref).filter(passes);
    let rows: Vec<&Entry> = entries.collect();
    let keys: Vec<Key> = rows.iter().map(|entry| Key::Event(std::ptr::from_ref(*entry).addr())).collect();
    let empty = if ui.has_filter() { "No event passes the filter." } else { "Nothing has happened yet." };
    let table = Table { id: PaneId::Events, caption: None, columns: &columns, keys, empty: empty.to_owned() };
    table.pane(&rows, ui, area, |shown, row| column::cells(shown, row, moment))
}
