//! One row per recent event, newest first.

use super::cells::{dash, seconds, show, text};
use crate::attribute::Topology;
use crate::output::event::brief;
use crate::state::{Entry, What};
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
        gpu: entry.what.gpu_id().map_or_else(dash, |id| {
            topology.gpu(id).map_or_else(|| format!("gpu_id={id}"), |gpu| format!("gpu {}", gpu.index))
        }),
        pid: show(entry.pid()),
        comm: comm.map_or_else(dash, text),
        detail: detail(entry),
    }
}

fn detail(entry: &Entry) -> String {
    if let What::Driver { loads, .. } = entry.what {
        return format!("loading {loads}");
    }
    let Some((event, change)) = entry.event() else { return String::new() };
    brief(&event, &change)
}
