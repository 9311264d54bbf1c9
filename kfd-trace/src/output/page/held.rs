//! Which process held which queue at a time in the past.

use super::cells::{dash, label, seconds, show, text};
use super::events::EventsPart;
use super::query::Past;
use super::sections::Section;
use super::top::{Sections, Top, top};
use super::view::{PageView, Part, ROWS};
use crate::attribute::Topology;
use crate::output::api::{ApiView, HeldView, Holdings, holdings};
use crate::state::Snapshot;
use crate::text::clock;
use crate::text::count::counted;
use askama::Template;
use std::collections::BTreeSet;

#[derive(Template)]
#[template(path = "page/held.html")]
struct Held {
    /// For example `35 queues of 3 processes`.
    count: String,
    traced: bool,
    complete: bool,
    /// Readable; what was dropped of the history lies before.
    complete_since: String,
    rows: Part<HeldRow>,
    /// The requested time, RFC 3339.
    at: String,
}

struct HeldRow {
    gpu: String,
    pid: String,
    tgid: Option<u32>,
    comm: String,
    owner: String,
    queue_id: u32,
    queue_type: String,
    /// Readable; with `found` if its creation was not seen.
    born: String,
    ended: String,
    cause: String,
}

/// Rows of queues: an HTML page of some 60 KB.
const QUEUES: usize = 3 * ROWS;

impl Held {
    fn new(view: &HeldView<'_>, at: String) -> Self {
        let Holdings { complete_since, traced, complete, queues, .. } = holdings(view);
        let processes: BTreeSet<_> =
            queues.iter().map(|row| (row.who.pid, row.who.kfd_process.clone())).collect();
        let count = format!(
            "{} of {}",
            counted(queues.len(), "queue", "queues"),
            counted(processes.len(), "process", "processes")
        );
        let row = |row: crate::output::api::HoldingRow<'_>| HeldRow {
            gpu: row.gpu_id.map_or_else(dash, |id| label(id, view.now.topology)),
            pid: show(row.who.pid),
            tgid: row.who.pid,
            comm: row.who.comm.map_or_else(dash, text),
            owner: row.who.belongs.owner().as_deref().map_or_else(dash, text),
            queue_id: row.queue_id,
            queue_type: show(row.queue_type),
            born: match (row.born, row.found) {
                (Some(born), _) => seconds(&born),
                (None, Some(found)) => format!("before {}", seconds(&found)),
                (None, None) => dash(),
            },
            ended: row.ended.as_deref().map_or_else(|| "lives".to_owned(), seconds),
            cause: row.cause.map_or_else(dash, str::to_owned),
        };
        Held {
            count,
            traced,
            complete,
            complete_since: complete_since.as_deref().map(seconds).unwrap_or_default(),
            rows: Part::new(queues.into_iter().map(row).collect(), QUEUES),
            at,
        }
    }
}

/// `at_ns`: nanoseconds of the Unix epoch.
pub(super) fn sections(view: &PageView<'_>, at_ns: i64) -> Result<Sections, String> {
    let ts = clock::rfc3339(at_ns).unwrap_or_default();
    let (nothing, no_topology) = (Snapshot::default(), Topology::default());
    // Nothing lives that had a time.
    let clock = clock::Clock { mono_to_wall_ns: 0, zone: jiff::tz::TimeZone::UTC };
    let none = ApiView { snapshot: &nothing, topology: &no_topology, clock: &clock, now_ns: 0 };
    let now = view.now.unwrap_or(&none);
    let Past { recent, ended, traced, kept, .. } = view.past;
    let (known_since_ns, kept, traced) = (view.tracing.known_since_ns, *kept, *traced);
    let held = Held::new(&HeldView { now, ended, at_ns, known_since_ns, kept, traced }, ts.clone());
    let events = EventsPart::new(recent, now.topology, "Events until then", "the newest first (UTC)");
    let top = Top {
        headline: match (held.traced, held.complete) {
            (false, _) => "Nothing was traced".to_owned(),
            (true, false) => format!("At least {}", held.count),
            (true, true) => held.count.clone(),
        },
        reason: None,
        at: seconds(&ts),
        ts,
        passes: false,
        ..top(view, vec![("held", "Queues"), ("events", "Events")])
    };
    Ok((top, vec![Section::new("held", &held)?, Section::new("events", &events)?]))
}
