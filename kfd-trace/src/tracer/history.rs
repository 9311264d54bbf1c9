//! What the tracer adds to the history.

use super::engine::Tracer;
use super::intake::TakenIn;
use crate::events::decode::Undecodable;
use crate::model::event::Event;
use crate::probes::session::Session;
use crate::runtime::clock;
use crate::state::{Change, Gap, History, State};

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

/// The first tracing begins, after that of an earlier daemon whose last state is known, and the time until which it saw what
/// happened. To be called before [`begins`].
pub(crate) fn continues(tracer: &mut Tracer, history: &mut History, mut earlier: State, until_ns: u64) {
    tracer.renew_clock();
    let offset_ns = offset_ns(tracer);
    // The probes were attached before the first of these was found.
    let found_ns = tracer.state.live().map(|row| row.first_seen_ns).min();
    let at_ns = found_ns.unwrap_or_else(clock::mono_ns);
    let gap = Gap { lasted_ns: at_ns.checked_sub(until_ns), lost_changes: None };
    history.continues(&mut earlier, &mut tracer.state, gap, at_ns, offset_ns);
}

/// The tracing begins, or continues with another driver: adds what exists already.
pub(crate) fn begins(tracer: &mut Tracer, history: &mut History) {
    tracer.renew_clock();
    if tracer.driver_loads > 1 {
        history.driver(true, tracer.driver_loads, clock::mono_ns(), offset_ns(tracer));
    }
    let existing = tracer.state.existing();
    reported(tracer, history, &existing);
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

fn offset_ns(tracer: &Tracer) -> i64 {
    i64::try_from(tracer.clock.mono_to_wall_ns).unwrap_or(0)
}
