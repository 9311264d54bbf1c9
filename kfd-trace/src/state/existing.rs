//! What exists, as the events that a reader of the stream would otherwise have missed.

use super::change::Change;
use super::process::Process;
use super::queue::Queue;
use super::rows::State;
use crate::model::event::{Body, Event, ProcessSeen};

impl State {
    /// What exists already, as events at the time at which it was found.
    #[must_use]
    pub fn existing(&self) -> Vec<(Event, Change)> {
        let of = |row: &Process| {
            let change = Change { process: Some(row.key), ..Change::default() };
            let seen = ProcessSeen {
                standing: true,
                start_boottime_ns: row.start_boottime_ns,
                ns_tgid: row.ns_tgid,
                uid: row.uid,
                comm: row.comm.clone(),
                cgroup_leaf: row.cgroup_leaf.clone(),
                context_id: row.context_id,
            };
            // In the initial state of a recording it may be younger than its process.
            let since_ns = |queue: &Queue| queue.since_ns().max(row.first_seen_ns);
            let queues =
                row.queues.values().map(|queue| (since_ns(queue), Body::QueueCreate(queue.facts.clone())));
            let event = |(at_ns, body)| Event::of_standing(at_ns, row.id(), row.tgid, body);
            let own = (row.first_seen_ns, Body::ProcessSeen(seen));
            let events = std::iter::once(own).chain(queues).map(event);
            events.map(|event| (event, change.clone())).collect::<Vec<_>>()
        };
        let mut rows: Vec<&Process> = self.live().collect();
        rows.sort_by_key(|row| (row.tgid, row.first_seen_ns, row.key));
        rows.into_iter().flat_map(of).collect()
    }
}
