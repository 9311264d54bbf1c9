//! One row per recent event, newest first.

use super::cells::{dash, seconds, show, text};
use crate::attribute::Topology;
use crate::output::{event, names};
use crate::state::Entry;
use crate::text::clock;
use std::sync::Arc;

pub(super) struct EventRow {
    /// RFC 3339, and the same to the second.
    pub(super) ts: String,
    pub(super) time: String,
    pub(super) event: &'static str,
    pub(super) gpu: String,
    pub(super) pid: String,
    pub(super) comm: String,
    pub(super) detail: String,
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
        comm: comm.map_or_else(dash, text),
        detail: event::remembered(entry),
    }
}
