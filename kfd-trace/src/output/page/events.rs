//! One row per recent event, newest first.

use super::cells::{dash, seconds, show, text};
use crate::attribute::Topology;
use crate::output::{event, names};
use crate::state::Entry;
use crate::text::clock;
use askama::Template;
use std::sync::Arc;

pub(super) struct EventRow {
    /// RFC 3339, and the same to the second.
    pub(super) ts: String,
    pub(super) time: String,
    pub(super) event: &'static str,
    pub(super) gpu: String,
    pub(super) pid: String,
    /// For its own page.
    pub(super) tgid: Option<u32>,
    pub(super) comm: String,
    pub(super) detail: String,
}

/// A section of events.
#[derive(Template)]
#[template(path = "page/events.html")]
pub(super) struct EventsPart {
    title: &'static str,
    caption: &'static str,
    /// In place of a table without rows.
    nothing: String,
    rows: Vec<EventRow>,
    /// The events are those of this process.
    pid: Option<u32>,
}

impl EventsPart {
    pub(super) fn new(
        entries: &[Arc<Entry>],
        topology: &Topology,
        title: &'static str,
        caption: &'static str,
    ) -> Self {
        let nothing = "Nothing is remembered.".to_owned();
        EventsPart { title, caption, nothing, rows: rows(entries, topology), pid: None }
    }

    /// With this line in place of a table without rows.
    pub(super) fn or(self, nothing: String) -> Self {
        EventsPart { nothing, ..self }
    }

    pub(super) fn of_pid(self, pid: u32) -> Self {
        EventsPart { pid: Some(pid), ..self }
    }
}

pub(super) fn rows(entries: &[Arc<Entry>], topology: &Topology) -> Vec<EventRow> {
    entries.iter().rev().map(|entry| row(entry, topology)).collect()
}

fn row(entry: &Entry, topology: &Topology) -> EventRow {
    let ts = clock::rfc3339(entry.wall_ns).unwrap_or_default();
    let comm = entry.owner.as_ref().and_then(|owner| owner.comm.as_deref());
    EventRow {
        time: seconds(&ts),
        ts,
        event: entry.name(),
        gpu: entry.what.gpu_id().map_or_else(dash, |id| names::gpu(id, topology)),
        pid: show(entry.pid()),
        tgid: entry.pid(),
        comm: comm.map_or_else(dash, text),
        detail: event::remembered(entry),
    }
}
