//! Input of a document, and what all documents have in common.

use crate::attribute::Topology;
use crate::state::Snapshot;
use crate::text::clock::Clock;
use crate::text::escape;
use serde::Serialize;

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// Input of a document.
#[derive(Clone, Copy, Debug)]
pub struct ApiView<'a> {
    pub snapshot: &'a Snapshot,
    pub topology: &'a Topology,
    pub clock: &'a Clock,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub now_ns: u64,
}

#[derive(Serialize)]
struct Document<T> {
    schema: u32,
    /// Wall clock, RFC 3339 in UTC.
    ts: Option<String>,
    #[serde(flatten)]
    list: T,
}

pub(super) fn document(view: &ApiView<'_>, list: impl Serialize) -> serde_json::Result<String> {
    written(view.clock.rfc3339(view.now_ns), list)
}

pub(super) fn written(ts: Option<String>, list: impl Serialize) -> serde_json::Result<String> {
    escape::json_text(&Document { schema: SCHEMA, ts, list })
}
