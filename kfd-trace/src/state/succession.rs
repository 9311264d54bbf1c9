//! One tracer after another on the same boot: what lived when the first one ended, and what the next one found.
//!
//! In: the state at the end, and the one in which all that exists was found. Out: since when the queues that live on are known,
//! and the ends that neither saw. A queue is the same only where nothing speaks against it and its addresses, which no
//! call changes, were known to both: a queue that might be another one ended, and was found.

use super::change::Change;
use super::process::ProcessKey;
use super::queue::{Cause, PriorityChange, Queue, QueueEnd, Rare};
use super::rows::State;
use crate::model::event::{Body, Event, QueueFacts, QueueType};
use crate::model::inventory::Place;
use std::collections::BTreeMap;

impl State {
    /// Takes over since when queues are known that lived on from an earlier tracer to this one. No call of the tape has it: to
    /// be called before a recording begins with this state.
    pub fn inherit(&mut self, earlier: &State) {
        for (before, now) in same_processes(earlier, self) {
            let (Some(before), Some(now)) = (earlier.process(before), self.rows.get_mut(&now)) else {
                continue;
            };
            for queue in now.queues.values_mut().filter(|queue| queue.born_ns.is_none()) {
                if let Some(known) = before.queues.get(&queue.queue_id).filter(|known| is_same(known, queue))
                {
                    queue.is_known_as(known);
                }
            }
        }
    }

    /// Ends what a later tracer did not find any more, and what may be another one of the same name. Returns these ends as
    /// events.
    pub fn end_unfound(&mut self, later: &State, at_ns: u64) -> Vec<(Event, Change)> {
        let same = same_processes(self, later);
        let (mut processes, mut queues) = (Vec::new(), Vec::new());
        for row in self.live() {
            let Some(found) = same.get(&row.key).and_then(|key| later.process(*key)) else {
                processes.push(row.key);
                continue;
            };
            let lives =
                |queue: &Queue| found.queues.get(&queue.queue_id).is_some_and(|now| is_same(queue, now));
            let ended = row.queues.values().filter(|queue| !lives(queue));
            queues.extend(ended.map(|queue| (row.key, queue.queue_id)));
        }
        let mut reported: Vec<(Event, Change)> = Vec::new();
        for (key, queue_id) in queues {
            let mut change = Change { process: Some(key), ..Change::default() };
            self.end_queue(key, queue_id, None, QueueEnd { at_ns, cause: Cause::NotSeen }, &mut change);
            let body = Body::QueueDestroy { queue_id, gpu_id: None, last: None };
            reported.push((self.event_of(key, at_ns, body), change));
        }
        reported.extend(processes.into_iter().map(|key| self.gone(key, at_ns)));
        reported
    }
}

impl Queue {
    /// An earlier tracer knew it.
    fn is_known_as(&mut self, known: &Queue) {
        let Some(born_ns) = known.born_ns else {
            self.keep(Rare { found_before_ns: known.found_ns(), ..self.rare() });
            return;
        };
        self.born_ns = Some(born_ns);
        let is_unchanged = self.facts.priority.is_none() || self.facts.priority == known.facts.priority;
        let priority = if is_unchanged {
            known.priority_change()
        } else {
            Some(PriorityChange { by: None, created_with: known.created_priority() })
        };
        self.keep(Rare { priority, ..self.rare() });
    }
}

/// Which live processes are the same ones, by their keys in both: those whose starts are known and agree.
fn same_processes(earlier: &State, later: &State) -> BTreeMap<ProcessKey, ProcessKey> {
    let (before, now) = (places(earlier), places(later));
    // An exec keeps PID and start, and the process before it may not have been freed yet: of two, neither is certain.
    let only = |all: &BTreeMap<Place, Vec<ProcessKey>>, place| match all.get(&place).map(Vec::as_slice) {
        Some([key]) => Some(*key),
        _ => None,
    };
    let pair = |place: &Place| Some((only(&before, *place)?, only(&now, *place)?));
    let same = |(one, other): &(ProcessKey, ProcessKey)| {
        let start = |state: &State, key| state.process(key).and_then(|row| row.start_boottime_ns);
        let started = start(later, *other);
        start(earlier, *one).is_some()
            && started.is_some()
            && earlier.process(*one).is_some_and(|row| row.same_start(started))
    };
    before.keys().filter_map(pair).filter(same).collect()
}

fn places(state: &State) -> BTreeMap<Place, Vec<ProcessKey>> {
    let mut all: BTreeMap<Place, Vec<ProcessKey>> = BTreeMap::new();
    for (place, key) in state.live().filter_map(|row| Some((row.place()?, row.key))) {
        all.entry(place).or_default().push(key);
    }
    all
}

fn is_same(one: &Queue, other: &Queue) -> bool {
    fn known(one: Option<u64>, other: Option<u64>) -> bool {
        one.is_some() && one == other
    }
    fn unlike<T: Copy + PartialEq>(one: Option<T>, other: Option<T>) -> bool {
        one.is_some() && other.is_some() && one != other
    }
    let (one, other): (&QueueFacts, &QueueFacts) = (&one.facts, &other.facts);
    known(one.gpu_id.map(u64::from), other.gpu_id.map(u64::from))
        && known(one.write_pointer_address, other.write_pointer_address)
        && known(one.read_pointer_address, other.read_pointer_address)
        && !unlike(one.ring_address, other.ring_address)
        && !unlike(one.doorbell_offset, other.doorbell_offset)
        && !unlike(one.queue_type.map(QueueType::of_driver), other.queue_type.map(QueueType::of_driver))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::inventory::Listed;
    use crate::state::samples::{create, event, facts, seen, state};
    use crate::state::source::Source;

    /// A process with queue 3, as a probe saw it.
    fn earlier() -> State {
        let mut state = state();
        state.apply(&event(10, 1, 700, seen(false)));
        state.apply(&event(20, 1, 700, create(3)));
        state
    }

    fn listed(start_boottime_ns: Option<u64>, queues: &[QueueFacts]) -> Listed {
        Listed { tgid: 700, start_boottime_ns, queues: queues.to_vec(), ..Listed::default() }
    }

    /// What the next tracer finds at 100.
    fn later(found: &[Listed]) -> State {
        let mut state = state();
        for process in found {
            let key = state.adopt_process(100, process, Source::Kernel);
            process.queues.iter().for_each(|queue| state.adopt_queue(key, 100, queue, Source::Kernel));
        }
        state
    }

    /// The birth of queue 3 in the next tracer, and what is reported to have ended.
    fn after(found: &[Listed]) -> (Option<u64>, Vec<Body>) {
        let (mut earlier, mut later) = (earlier(), later(found));
        later.inherit(&earlier);
        let reported = earlier.end_unfound(&later, 100);
        assert!(earlier.live().flat_map(|row| &row.queues).count() <= 1);
        let queue = later.live().find_map(|row| row.queues.get(&3));
        (queue.and_then(|queue| queue.born_ns), reported.into_iter().map(|(event, _)| event.body).collect())
    }

    const START: Option<u64> = Some(1_000_000_000);

    fn queue_end() -> Vec<Body> {
        vec![Body::QueueDestroy { queue_id: 3, gpu_id: None, last: None }]
    }

    #[test]
    fn a_queue_that_lives_on_keeps_its_birth() {
        assert_eq!(after(&[listed(START, &[facts(3)])]), (Some(20), vec![]));
        // sysfs shows no start to the nanosecond, and no format of packets.
        let by_driver = QueueFacts { queue_type: Some(QueueType::Compute), ..facts(3) };
        let percent = QueueFacts { percent: Some(50), ring_address: None, ..by_driver };
        assert_eq!(after(&[listed(Some(990_000_000), &[percent])]), (Some(20), vec![]));
    }

    #[test]
    fn what_was_not_found_ended() {
        assert_eq!(after(&[]), (None, vec![Body::ProcessRelease]));
        assert_eq!(after(&[listed(START, &[])]), (None, queue_end()));
        let (mut earlier, later) = (earlier(), later(&[]));
        let (_, change) = earlier.end_unfound(&later, 100).remove(0);
        let end = QueueEnd { at_ns: 100, cause: Cause::NotSeen };
        assert_eq!(change.ended.iter().map(|queue| queue.end).collect::<Vec<_>>(), [Some(end)]);
    }

    #[test]
    fn what_may_be_another_one_is_another_one() {
        let release = || vec![Body::ProcessRelease];
        assert_eq!(after(&[listed(Some(2_000_000_000), &[facts(3)])]), (None, release()), "a reused PID");
        assert_eq!(after(&[listed(None, &[facts(3)])]), (None, release()), "its start is not known");
        let context = Listed { context_id: Some(1), ..listed(START, &[facts(3)]) };
        assert_eq!(after(&[context]), (None, release()), "another context of the PID");
        let others = [
            QueueFacts { gpu_id: Some(9), ..facts(3) },
            QueueFacts { write_pointer_address: Some(8), ..facts(3) },
            QueueFacts { write_pointer_address: None, ..facts(3) },
            QueueFacts { read_pointer_address: Some(8), ..facts(3) },
            QueueFacts { ring_address: Some(8), ..facts(3) },
            QueueFacts { doorbell_offset: Some(8), ..facts(3) },
            QueueFacts { queue_type: Some(QueueType::Sdma), ..facts(3) },
        ];
        for other in others {
            assert_eq!(
                after(&[listed(START, std::slice::from_ref(&other))]),
                (None, queue_end()),
                "{other:?}"
            );
        }
        // An exec: two at its place, numbered since the driver's own list shows them.
        let numbered =
            |id| Listed { id: Some(crate::model::event::ProcessId(id)), ..listed(START, &[facts(3)]) };
        assert_eq!(after(&[numbered(1), numbered(2)]), (None, release()));
    }

    #[test]
    fn a_queue_that_was_only_found_is_known_since_then() {
        let mut first = state();
        let key = first.adopt_process(50, &listed(START, &[]), Source::Kernel);
        first.adopt_queue(key, 50, &facts(3), Source::Kernel);
        let mut second = later(&[listed(START, &[facts(3)])]);
        second.inherit(&first);
        assert!(first.end_unfound(&second, 100).is_empty());
        let queue =
            |state: &State| state.live().find_map(|row| row.queues.get(&3).cloned()).expect("it lives");
        let born = |state: &State| queue(state).born_ns;
        assert_eq!((born(&first), born(&second)), (None, None));
        assert_eq!((queue(&second).stood_from_ns(), queue(&second).known_since_ns()), (Some(50), Some(100)));
        first = earlier();
        second.inherit(&first);
        let mut third = later(&[listed(START, &[facts(3)])]);
        third.inherit(&second);
        assert_eq!(born(&third), Some(20), "over two restarts");
    }

    #[test]
    fn the_priority_of_its_creation_is_known_as_well() {
        let created = |earlier: &State, priority| {
            let now = QueueFacts { priority, ..facts(3) };
            let mut later = later(&[listed(START, &[now])]);
            later.inherit(earlier);
            let queue = later.live().find_map(|row| row.queues.get(&3).cloned()).expect("it lives");
            (queue.created_priority(), queue.priority_change().map(|change| change.by))
        };
        assert_eq!(created(&earlier(), Some(7)), (Some(7), None));
        assert_eq!(created(&earlier(), Some(11)), (Some(7), Some(None)), "it was changed meanwhile");
        let mut changed = earlier();
        let now = QueueFacts { priority: Some(11), ..facts(3) };
        let update =
            crate::model::incident::QueueUpdate { now, cu_mask: None, mask_unread: false, errno: Some(0) };
        changed.apply(&event(30, 1, 700, Body::QueueUpdate(update)));
        assert_eq!(created(&changed, Some(11)), (Some(7), Some(Some((30, 700)))), "who did it");
        assert_eq!(created(&changed, Some(3)), (Some(7), Some(None)));
    }
}
