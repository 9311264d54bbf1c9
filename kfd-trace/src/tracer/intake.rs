//! Adds one record to the state, with what /proc reports of a process that is seen for the first time.
//!
//! In: the records of the ring buffer, in their order. Out: the events with their changes.

use super::enrich;
use crate::events::decode::Undecodable;
use crate::events::derived;
use crate::events::undecoded::Undecoded;
use crate::kernel::Roots;
use crate::model::event::{Body, Event};
use crate::state::{Anomaly, Change, State};

/// Where records are added.
#[derive(Debug)]
pub struct Intake<'a> {
    pub state: &'a mut State,
    pub undecoded: &'a mut Undecoded,
    pub roots: &'a Roots,
    /// Queues are followed by their ioctls alone, since they cannot be probed.
    pub queues_by_ioctl: bool,
}

/// The result for a record. An event has some hundred bytes and comes often, so it is not moved.
#[derive(Debug)]
pub struct TakenIn<'r> {
    pub event: &'r Event,
    /// What it changed.
    pub change: Change,
    /// If queues cannot be probed: what an ioctl did to a queue, as a separate event, and what that changed.
    pub derived: Option<Box<(Event, Change)>>,
}

impl Intake<'_> {
    /// Processes one record; `None` if it could not be decoded.
    pub fn take_in<'r>(&mut self, record: &'r Result<Event, Undecodable>) -> Option<TakenIn<'r>> {
        match record {
            Ok(event) => {
                let derived = if self.queues_by_ioctl { derived::derived(event) } else { None };
                let change = self.apply(event);
                let derived = derived.map(|event| {
                    let change = self.apply(&event);
                    Box::new((event, change))
                });
                Some(TakenIn { event, change, derived })
            }
            Err(error) => {
                self.undecoded.count(error);
                None
            }
        }
    }

    fn apply(&mut self, event: &Event) -> Change {
        let change = self.state.apply(event);
        let first = matches!(event.body, Body::ProcessSeen(_));
        if first || change.anomalies.contains(&Anomaly::ProcessSeenLost) {
            self.enrich(&change);
        }
        change
    }

    /// Reads what /proc reports of the process of a change, synchronously: a command line, if these are
    /// requested, waits for the memory lock of that process, and the ring buffer, pages and signals wait with
    /// it.
    fn enrich(&mut self, change: &Change) {
        let Some(key) = change.process else { return };
        let details = self.state.process(key).and_then(|row| enrich::details(self.roots, row));
        if let Some(details) = details {
            self.state.enrich(key, details);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::decode::DecodeError;
    use crate::model::event::{IoctlCall, Outcome};
    use crate::state::samples::{event, seen, state};
    use kfd_trace_common::counter::ProbeId;

    const CREATE: u32 = 0xc060_4b02;

    /// The result of a successful create: the number of queues after it, and the event that follows from it.
    fn created(queues_by_ioctl: bool) -> (usize, Option<Body>) {
        let (mut state, mut undecoded) = (state(), Undecoded::default());
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::under(root.path());
        let mut intake =
            Intake { state: &mut state, undecoded: &mut undecoded, roots: &roots, queues_by_ioctl };
        intake.take_in(&Ok(event(10, 1, 700, seen(false))));
        let call = IoctlCall {
            cmd: CREATE,
            entered_ns: 19,
            outcome: Outcome::Returned { result: 0, latency_ns: 1 },
            args: vec![0; 96],
        };
        let record = Ok(event(20, 1, 700, Body::Ioctl(call)));
        let taken = intake.take_in(&record).expect("decoded");
        assert_eq!(Some(taken.event), record.as_ref().ok());
        let follows = taken.derived.map(|derived| derived.0.body);
        (state.live().map(|row| row.queues.len()).sum(), follows)
    }

    #[test]
    fn what_an_ioctl_did_follows_where_queues_cannot_be_probed() {
        let (queues, follows) = created(true);
        assert_eq!(queues, 1);
        assert!(matches!(follows, Some(Body::QueueCreate(_))), "{follows:?}");
        assert_eq!(created(false), (0, None));
    }

    #[test]
    fn what_could_not_be_decoded_is_counted_by_its_reason_and_its_probe() {
        let (mut state, mut undecoded) = (state(), Undecoded::default());
        let mut intake = Intake {
            state: &mut state,
            undecoded: &mut undecoded,
            roots: &Roots::under("/nowhere".as_ref()),
            queues_by_ioctl: false,
        };
        let [open, close] = [ProbeId::Open, ProbeId::Release].map(Some);
        let records =
            [(DecodeError::Kind(99), open), (DecodeError::Version(7), None), (DecodeError::Kind(98), close)];
        for (error, probe) in records {
            assert!(intake.take_in(&Err(Undecodable { error, probe })).is_none());
        }
        let counted: Vec<_> = undecoded.iter().collect();
        assert_eq!(counted, [("kind", open, 1), ("kind", close, 1), ("version", None, 1)]);
    }
}
