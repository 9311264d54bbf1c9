//! The HTML page: what is traced now, grouped and counted, of bounded size.
//!
//! In: the same as for the API's documents. Out: the text of page/page.html, which escapes every inserted
//! value. Text from outside the tracer (names, paths) is first made safe and short ([`text`]).

use super::api::{ApiView, Tracing};
use super::headline::headline;
use super::status;
use crate::attribute::Topology;
use crate::state::{Entry, Filter, History, Process};
use crate::text::clock;
use crate::text::escape;
use askama::Template;
use std::collections::BTreeSet;
use std::sync::Arc;

mod cells;
mod events;
mod gpus;
mod processes;
mod queues;

use cells::{seconds, shortened, text};
use events::EventRow;
use gpus::GpuRow;
use processes::{EvictedRow, ProcessCells};
use queues::QueuesOnGpu;

/// Static files beside the page: path, `Content-Type`, content.
pub const STATIC: [(&str, &str, &str); 3] = [
    ("/static/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/static/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/static/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// Allows only the daemon's own files: no inline script or style, no other host, no framing.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Rows of a table; further rows are only counted.
const ROWS: usize = 100;

/// Recent events, and recent evictions, that the page shows.
const RECENT: usize = 25;

/// Input of the page.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'a> {
    /// `None`: nothing is traced now; `tracing` has the reason.
    pub now: Option<&'a ApiView<'a>>,
    pub tracing: &'a Tracing<'a>,
    /// From the history, oldest first: everything but evictions and restores, and these.
    pub recent: &'a [Arc<Entry>],
    pub evictions: &'a [Arc<Entry>],
}

/// The rows that are shown, and the number of others.
struct Part<T> {
    rows: Vec<T>,
    more: usize,
}

impl<T> Part<T> {
    fn new(mut rows: Vec<T>, most: usize) -> Self {
        let more = rows.len().saturating_sub(most);
        rows.truncate(most);
        Part { rows, more }
    }
}

/// The part of the history that the page shows, oldest first: events, and separately evictions and restores,
/// which are frequent.
#[must_use]
pub fn recent(history: &History) -> (Vec<Arc<Entry>>, Vec<Arc<Entry>>) {
    let moves = BTreeSet::from(["evict", "restore"]);
    let others = Entry::names().into_iter().filter(|name| !moves.contains(name)).collect();
    let newest = |events| history.find(&Filter { events, ..Filter::newest(RECENT) }).entries;
    (newest(others), newest(moves))
}

#[derive(Template)]
#[template(path = "page/page.html")]
struct Page {
    version: &'static str,
    /// RFC 3339, and a readable form.
    ts: String,
    at: String,
    began: String,
    began_at: String,
    /// Why nothing is traced now, if so.
    reason: Option<String>,
    /// What is traced; `None` while nothing is.
    live: Option<Live>,
    recent: Vec<EventRow>,
    evictions: Vec<EventRow>,
    unseen: Unseen,
}

struct Live {
    headline: String,
    gpus: Part<GpuRow>,
    processes: Part<ProcessCells>,
    evicted: Part<EvictedRow>,
    /// Queues by GPU and process.
    on_gpus: Vec<QueuesOnGpu>,
}

/// What cannot be seen, and what was lost.
struct Unseen {
    queues_by_ioctl: bool,
    meaning: Vec<String>,
    unreadable: Part<String>,
    probes: Vec<ProbeCells>,
    attached: usize,
    tried: usize,
    lost: Vec<(String, u64)>,
}

struct ProbeCells {
    name: &'static str,
    functions: String,
    verdict: &'static str,
    reason: String,
    feeds: &'static str,
}

/// Renders the page.
///
/// # Errors
/// None known; askama reports errors only at run time.
pub fn html(view: &PageView<'_>) -> Result<String, String> {
    let nothing = Topology::default();
    let topology = view.now.map_or(&nothing, |now| now.topology);
    let ts = view.tracing.ts.clone().unwrap_or_default();
    let began = clock::rfc3339(view.tracing.began_ns).unwrap_or_default();
    let page = Page {
        version: env!("CARGO_PKG_VERSION"),
        at: seconds(&ts),
        ts,
        began_at: seconds(&began),
        began,
        reason: view.tracing.why_not.map(text),
        live: view.now.map(live),
        recent: events::rows(view.recent, topology),
        evictions: events::rows(view.evictions, topology),
        unseen: unseen(view.tracing),
    };
    page.render().map_err(|error| error.to_string())
}

fn live(view: &ApiView<'_>) -> Live {
    let processes: Vec<&Process> = view.snapshot.live().collect();
    Live {
        headline: headline(view.snapshot, view.topology),
        gpus: Part::new(gpus::rows(view), ROWS),
        processes: Part::new(processes::rows(&processes, view), ROWS),
        evicted: Part::new(processes::evicted(&processes, view), ROWS),
        on_gpus: queues::by_gpu(view),
    }
}

fn unseen(tracing: &Tracing<'_>) -> Unseen {
    let probes = tracing.probes;
    let row = |probe: &crate::model::verdict::ProbeStatus| ProbeCells {
        name: probe.id.name(),
        functions: shortened(probe.symbols.join(", ")),
        verdict: probe.verdict.word(),
        reason: probe.verdict.reason().map(|reason| shortened(escape::terminal(&reason))).unwrap_or_default(),
        feeds: probe.feeds,
    };
    let on = |verdict: &crate::model::verdict::Verdict| {
        matches!(verdict, crate::model::verdict::Verdict::Attached)
    };
    Unseen {
        queues_by_ioctl: tracing.queues_by_ioctl,
        meaning: status::meaning(probes),
        unreadable: Part::new(
            tracing.topology.errors.iter().map(|error| text(&error.to_string())).collect(),
            ROWS,
        ),
        probes: probes.iter().filter(|probe| !on(&probe.verdict)).map(row).collect(),
        attached: probes.iter().filter(|probe| on(&probe.verdict)).count(),
        tried: probes.len(),
        lost: tracing.lost.iter().map(|(name, count)| (name.clone(), *count)).collect(),
    }
}

#[cfg(test)]
mod tests;
