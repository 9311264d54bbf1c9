//! The kept history, each event as in the stream.

use super::view::written;
use crate::attribute::Topology;
use crate::output::event::context::Context;
use crate::output::event::json::{self, Driver};
use crate::state::{Class, Entry, Kept, Matches, What};
use crate::text::clock::{self, Clock};
use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Input of the document.
#[derive(Clone, Debug)]
pub struct EventsView<'a> {
    /// Now, RFC 3339.
    pub ts: Option<String>,
    /// Start of the daemon, nanoseconds of the Unix epoch.
    pub began_ns: i64,
    /// Likewise; nothing earlier is known.
    pub known_since_ns: i64,
    pub found: &'a Matches,
    pub kept: &'a [(Class, Kept)],
}

/// The matching events.
///
/// # Errors
/// As [`super::queues`].
pub fn events(view: &EventsView<'_>) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct List<'a> {
        began: Option<String>,
        known_since: Option<String>,
        matched: usize,
        events: Vec<Reported<'a>>,
        history: Vec<Bounds>,
    }
    let Matches { entries, matched } = view.found;
    written(
        view.ts.clone(),
        List {
            began: clock::rfc3339(view.began_ns),
            known_since: clock::rfc3339(view.known_since_ns),
            matched: *matched,
            events: entries.iter().map(Reported).collect(),
            history: bounds(view.kept),
        },
    )
}

/// One entry, as a line of the stream.
struct Reported<'a>(&'a Arc<Entry>);

impl Serialize for Reported<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = self.0;
        let clock = Clock { mono_to_wall_ns: i128::from(entry.mono_to_wall_ns()), zone: TimeZone::UTC };
        if let What::Driver { loaded, loads } = entry.what {
            let what = if loaded { Driver::Loaded } else { Driver::Unloaded };
            return json::driver_line(what, entry.mono_ns, &clock, loads).serialize(serializer);
        }
        if let What::Gap(gap) = entry.what {
            return json::gap_line(gap, entry.mono_ns, &clock).serialize(serializer);
        }
        let Some((event, change)) = entry.event() else { return serializer.serialize_none() };
        let row = entry.owner.as_ref().map(|owner| owner.row());
        // Objects refer to GPUs by gpu_id.
        let topology = Topology::default();
        let context = Context::of_history(&change, row.as_ref(), &clock, &topology);
        json::line(&event, &context).serialize(serializer)
    }
}

/// What is kept for one class of events.
#[derive(Debug, Serialize)]
pub(super) struct Bounds {
    class: &'static str,
    events: usize,
    max_events: usize,
    max_events_of_process: usize,
    bytes: usize,
    max_bytes: usize,
    dropped: u64,
    /// RFC 3339; the history after it is complete.
    dropped_until: Option<String>,
}

pub(super) fn bounds(kept: &[(Class, Kept)]) -> Vec<Bounds> {
    let bounds = |(class, kept): &(Class, Kept)| Bounds {
        class: class.name(),
        events: kept.entries,
        max_events: kept.max_entries,
        max_events_of_process: kept.max_of_process,
        bytes: kept.bytes,
        max_bytes: kept.max_bytes,
        dropped: kept.dropped,
        dropped_until: kept.dropped_until_ns.and_then(clock::rfc3339),
    };
    kept.iter().map(bounds).collect()
}
