//! One record taken in: into the state, with what /proc tells of a process that is met for the first time.
//!
//! Takes in what the ring buffer gave, in its order. Gives out the events with what they changed.

use super::enrich;
use crate::events::decode::DecodeError;
use crate::events::event::{Body, Event};
use crate::events::queue_ioctl;
use crate::state::{Anomaly, Change, State};
use std::collections::BTreeMap;
use std::path::Path;

/// Where records go.
#[derive(Debug)]
pub struct Intake<'a> {
    pub state: &'a mut State,
    /// Records that could not be decoded, by reason.
    pub decode_errors: &'a mut BTreeMap<&'static str, u64>,
    pub procfs: &'a Path,
    /// Queues are followed by their ioctls alone, since they cannot be probed.
    pub queues_by_ioctl: bool,
}

impl Intake<'_> {
    /// Takes in one record; gives the event with what it changed, unless it could not be decoded. Where queues cannot be
    /// probed, what an ioctl did to a queue follows as an event of its own.
    pub fn take_in(&mut self, record: Result<Event, DecodeError>) -> [Option<(Event, Change)>; 2] {
        match record {
            Ok(event) => {
                let derived = if self.queues_by_ioctl { queue_ioctl::derived(&event) } else { None };
                [Some(event), derived].map(|event| event.map(|event| self.apply(event)))
            }
            Err(error) => {
                *self.decode_errors.entry(error.reason()).or_default() += 1;
                [None, None]
            }
        }
    }

    fn apply(&mut self, event: Event) -> (Event, Change) {
        let change = self.state.apply(&event);
        let first = matches!(event.body, Body::ProcessSeen(_));
        if first || change.anomalies.contains(&Anomaly::ProcessSeenLost) {
            self.enrich(&change);
        }
        (event, change)
    }

    /// Reads what /proc tells of the process of a change, here and now: the command line waits for the memory lock of that
    /// process, and the ring buffer, pages and signals wait with it.
    fn enrich(&mut self, change: &Change) {
        let Some(key) = change.process else { return };
        let details = self.state.process(key).and_then(|row| enrich::details(self.procfs, row));
        if let Some(details) = details {
            self.state.enrich(key, details);
        }
    }
}
