//! Which process held which queue at a given time: queues still alive, and queues that have ended since.

use super::ApiView;
use super::view::written;
use super::who::Who;
use crate::attribute::{GpuOrder, Topology};
use crate::model::event::QueueType;
use crate::state::{Entry, Kept, Process, Queue, QueueIdentity, What};
use crate::text::clock;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Input of the document.
#[derive(Clone, Copy, Debug)]
pub struct HeldView<'a> {
    /// Live queues.
    pub now: &'a ApiView<'a>,
    /// Ends of queues that existed at that time ([`crate::state::History::ended_after`]).
    pub ended: &'a [Arc<Entry>],
    /// The requested time, nanoseconds of the Unix epoch.
    pub at_ns: i64,
    /// Nothing earlier is known, nanoseconds of the Unix epoch.
    pub known_since_ns: i64,
    /// For the class of queues.
    pub kept: Kept,
    /// Probes were attached at that time.
    pub traced: bool,
}

#[derive(Serialize)]
pub(in crate::output) struct HoldingRow<'a> {
    #[serde(flatten)]
    pub(in crate::output) who: Who<'a>,
    pub(in crate::output) gpu: Option<String>,
    pub(in crate::output) gpu_id: Option<u32>,
    pub(in crate::output) queue_id: u32,
    pub(in crate::output) queue_type: Option<&'static str>,
    pub(in crate::output) born: Option<String>,
    /// When it was found, for a queue whose creation was not seen.
    pub(in crate::output) found: Option<String>,
    pub(in crate::output) ended: Option<String>,
    pub(in crate::output) cause: Option<&'static str>,
}

/// The queues that existed at a time, and whether these are all.
#[derive(Serialize)]
pub(in crate::output) struct Holdings<'a> {
    at: Option<String>,
    pub(in crate::output) complete_since: Option<String>,
    pub(in crate::output) traced: bool,
    pub(in crate::output) complete: bool,
    pub(in crate::output) queues: Vec<HoldingRow<'a>>,
}

/// Queues that existed at that time.
///
/// # Errors
/// As [`super::queues`].
pub fn held(view: &HeldView<'_>) -> serde_json::Result<String> {
    written(view.now.clock.rfc3339(view.now.now_ns), holdings(view))
}

pub(in crate::output) fn holdings<'a>(view: &HeldView<'a>) -> Holdings<'a> {
    let known_ns = view.known_since_ns;
    let since_ns = view.kept.dropped_until_ns.map_or(known_ns, |until| until.max(known_ns));
    let now = view.now;
    let live = now.snapshot.queues().filter_map(|(process, queue)| live(process, queue, view));
    let lives: BTreeSet<_> =
        now.snapshot.queues().map(|(process, queue)| QueueIdentity::of(process, queue)).collect();
    let ended = view.ended.iter().filter_map(|entry| ended(entry, &lives, view));
    let mut queues: Vec<HoldingRow<'_>> = live.chain(ended).collect();
    let topology = now.topology;
    queues.sort_by(|one, other| key(one, topology).cmp(&key(other, topology)));
    Holdings {
        at: clock::rfc3339(view.at_ns),
        complete_since: clock::rfc3339(since_ns),
        traced: view.traced,
        complete: view.traced && view.at_ns >= since_ns,
        queues,
    }
}

fn key<'r>(row: &'r HoldingRow<'_>, topology: &Topology) -> (GpuOrder, Option<u32>, &'r Option<String>, u32) {
    (topology.order(row.gpu_id), row.who.pid, &row.who.kfd_process, row.queue_id)
}

fn live<'a>(process: &'a Process, queue: &Queue, view: &HeldView<'a>) -> Option<HoldingRow<'a>> {
    let clock = view.now.clock;
    let from_ns = clock.unix_ns(queue.stood_from_ns()?)?;
    (from_ns <= view.at_ns).then(|| HoldingRow {
        who: process.into(),
        gpu: queue.facts.gpu_id.and_then(|id| view.now.topology.label(id)),
        gpu_id: queue.facts.gpu_id,
        queue_id: queue.queue_id,
        queue_type: queue.facts.queue_type.map(QueueType::name),
        born: queue.born_ns.and_then(|at| clock.rfc3339(at)),
        found: queue.found_ns().and_then(|at| clock.rfc3339(at)),
        ended: None,
        cause: None,
    })
}

fn ended<'a>(
    entry: &'a Entry,
    lives: &BTreeSet<QueueIdentity>,
    view: &HeldView<'a>,
) -> Option<HoldingRow<'a>> {
    let What::QueueDestroy(queue) = &entry.what else { return None };
    // Its destroy failed later: it is alive.
    if lives.contains(&queue.identity(entry.owner.as_deref())) {
        return None;
    }
    let at = |mono_ns: u64| clock::rfc3339(entry.mono_to_wall_ns().checked_add_unsigned(mono_ns)?);
    Some(HoldingRow {
        who: entry.into(),
        gpu: queue.gpu_id.and_then(|id| view.now.topology.label(id)),
        gpu_id: queue.gpu_id,
        queue_id: queue.queue_id,
        queue_type: queue.queue_type.map(QueueType::name),
        born: queue.born_ns.and_then(at),
        found: queue.stood_from_ns().filter(|_| queue.born_ns.is_none()).and_then(at),
        ended: clock::rfc3339(entry.wall_ns),
        cause: queue.cause.map(crate::state::Cause::name),
    })
}
