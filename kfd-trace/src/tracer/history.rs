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
    let at_ns = tracer.attached_ns;
    let gap = Gap { lasted_ns: at_ns.checked_sub(until_ns), lost_changes: None };
    history.continues(&mut earlier, &mut tracer.state, gap, at_ns, offset_ns);
}

/// The tracing begins, or continues with another driver: adds what exists already. It began when the probes were attached, which
/// may be a while ago: records have come since.
pub(crate) fn begins(tracer: &mut Tracer, history: &mut History) {
    tracer.renew_clock();
    if tracer.driver_loads > 1 {
        history.driver(true, tracer.driver_loads, tracer.attached_ns, offset_ns(tracer));
    }
    let existing = tracer.state.existing();
    reported(tracer, history, &existing);
    history.begin(tracer.attached_ns, offset_ns(tracer));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Roots;
    use crate::state::samples::{create, event, seen};
    use crate::state::{Filter, StateLimits, What};
    use std::path::Path;

    #[test]
    fn what_comes_while_the_past_is_read_is_after_the_gap_and_traced() {
        let mut tracer = Tracer::idle(&Roots::under(Path::new("/nowhere")));
        let now_ns = clock::mono_ns();
        // Probes were attached a second ago, the earlier daemon ended two before.
        let (attached_ns, until_ns) = (now_ns - 1_000_000_000, now_ns - 3_000_000_000);
        tracer.attached_ns = attached_ns;
        let mut earlier = State::new(StateLimits::default());
        earlier.apply(&event(until_ns - 1, 1, 700, seen(false)));
        let mut history = History::default();
        continues(&mut tracer, &mut history, earlier, until_ns);
        begins(&mut tracer, &mut history);
        let came = [seen(false), create(3)].map(|body| Ok(event(attached_ns + 500, 9, 701, body)));
        records(&mut tracer, &mut history, &came);

        let entries = history.find(&Filter::newest(usize::MAX)).entries;
        let times: Vec<_> = entries.iter().map(|entry| (entry.name(), entry.mono_ns - attached_ns)).collect();
        let expected =
            [("recording_gap", 0), ("process_release", 0), ("process_seen", 500), ("queue_create", 500)];
        assert_eq!(times, expected);
        let gap = Gap { lasted_ns: Some(2_000_000_000), lost_changes: None };
        assert_eq!(entries[0].what, What::Gap(gap));
        let wall_ns = |mono_ns| i64::try_from(mono_ns).expect("a time") + offset_ns(&tracer);
        assert!(history.was_traced(wall_ns(attached_ns)) && !history.was_traced(wall_ns(attached_ns - 1)));
    }
}
