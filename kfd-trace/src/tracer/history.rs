//! What the tracer adds to the history.

use super::engine::Tracer;
use super::intake::TakenIn;
use crate::events::decode::Undecodable;
use crate::model::event::{Body, Event, ProcessSeen};
use crate::probes::session::Session;
use crate::runtime::clock;
use crate::state::{Change, History, Process, State};

/// Adds records; the tracer's clock is at its current value.
pub(crate) fn records(tracer: &mut Tracer, history: &mut History, records: &[Result<Event, Undecodable>]) {
    let offset_ns = offset_ns(tracer);
    for record in records {
        let Some(TakenIn { event, change, derived }) = tracer.take_in(record) else { continue };
        history.record(event, &change, &tracer.state, offset_ns);
        if let Some(derived) = derived {
            let (event, change) = *derived;
            history.record(&event, &change, &tracer.state, offset_ns);
        }
    }
}

/// Adds events that the tracer generated itself.
pub(crate) fn reported(tracer: &Tracer, history: &mut History, reported: &[(Event, Change)]) {
    let offset_ns = offset_ns(tracer);
    reported.iter().for_each(|(event, change)| history.record(event, change, &tracer.state, offset_ns));
}

/// The tracing begins, or continues with another driver: adds what exists already.
pub(crate) fn begins(tracer: &mut Tracer, history: &mut History) {
    tracer.renew_clock();
    if tracer.driver_loads > 1 {
        history.driver(true, tracer.driver_loads, clock::mono_ns(), offset_ns(tracer));
    }
    let standing = standing(&tracer.state);
    reported(tracer, history, &standing);
    history.begin(clock::mono_ns(), offset_ns(tracer));
}

/// The driver was unloaded. Returns the session that must be detached.
pub(crate) fn driver_unloaded(tracer: &mut Tracer, history: &mut History) -> Option<Session> {
    let over = tracer.driver_unloaded();
    reported(tracer, history, &over.reported);
    let (now_ns, offset_ns) = (clock::mono_ns(), offset_ns(tracer));
    history.driver(false, tracer.driver_loads, now_ns, offset_ns);
    history.end(now_ns, offset_ns);
    over.session
}

/// What exists already, as events at the time at which it was found.
pub(crate) fn standing(state: &State) -> Vec<(Event, Change)> {
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
        let queues = row.queues.values().map(|queue| Body::QueueCreate(queue.facts.clone()));
        let event = |body| Event::of_standing(row.first_seen_ns, row.id(), row.tgid, body);
        let events = std::iter::once(Body::ProcessSeen(seen)).chain(queues).map(event);
        events.map(|event| (event, change.clone())).collect::<Vec<_>>()
    };
    let mut rows: Vec<&Process> = state.live().collect();
    rows.sort_by_key(|row| (row.tgid, row.first_seen_ns, row.key));
    rows.into_iter().flat_map(of).collect()
}

fn offset_ns(tracer: &Tracer) -> i64 {
    i64::try_from(tracer.clock.mono_to_wall_ns).unwrap_or(0)
}
