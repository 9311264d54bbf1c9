//! Context of an event that the event itself does not contain.

use crate::attribute::Topology;
use crate::model::event::Event;
use crate::model::ioctl::{Mismatch, Named};
use crate::recording::Replay;
use crate::state::{Change, Process, Queue, State};
use crate::text::clock::Clock;

/// Passed along with an event when it is formatted.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub clock: &'a Clock,
    /// Row of the event's process, after the event was applied.
    pub process: Option<&'a Process>,
    /// Queues that the event ended ([`crate::state::Change::ended`]).
    pub ended: &'a [Queue],
    /// Duration of a condition that the event ended ([`crate::state::Change::lasted_ns`]).
    pub lasted_ns: Option<u64>,
    /// Of an update that changed it ([`crate::state::Change::priority_before`]).
    pub priority_before: Option<u32>,
    /// tgids of the processes affected by an event of a whole GPU ([`crate::state::Change::hit`]).
    pub hit: &'a [u32],
    /// For an ioctl: user space and kernel disagree on the size of its arguments.
    pub mismatch: Option<Mismatch>,
    /// The driver's ioctls that have a name.
    pub named: Named,
    pub topology: &'a Topology,
}

impl<'a> Context<'a> {
    /// Of an event that was applied to a state.
    #[must_use]
    pub fn new(
        change: &'a Change,
        state: &'a State,
        clock: &'a Clock,
        topology: &'a Topology,
        named: Named,
        mismatch: Option<Mismatch>,
    ) -> Self {
        let process = change.process.and_then(|key| state.process(key));
        Context { mismatch, named, ..Self::of_history(change, process, clock, topology) }
    }

    /// Of an event of the history, which has no ioctls.
    #[must_use]
    pub fn of_history(
        change: &'a Change,
        process: Option<&'a Process>,
        clock: &'a Clock,
        topology: &'a Topology,
    ) -> Self {
        Context {
            clock,
            process,
            ended: &change.ended,
            lasted_ns: change.lasted_ns,
            priority_before: change.priority_before,
            hit: &change.hit,
            mismatch: None,
            named: Named::default(),
            topology,
        }
    }

    /// Of an event of a recording, with the state after it.
    pub(crate) fn of_replay(replay: &'a Replay, event: &Event, change: &'a Change) -> Self {
        let Replay { state, clock, topology, named, .. } = replay;
        Self::new(change, state, clock, topology, *named, replay.mismatch(event))
    }
}

impl Context<'_> {
    /// comm of the owner. A failed open has no row, but has the opener's comm.
    pub(crate) fn comm<'e>(&'e self, event: &'e Event) -> Option<&'e str> {
        let known = self.process.and_then(|process| process.comm.as_deref());
        known.or(event.body.comm()).filter(|comm| !comm.is_empty())
    }

    /// GPU name; a GPU that is not in the topology is shown by KFD's own number.
    pub(super) fn gpu(&self, gpu_id: Option<u32>) -> String {
        let Some(id) = gpu_id else { return "gpu ?".to_owned() };
        self.topology.label(id).unwrap_or_else(|| format!("gpu_id={id}"))
    }

    /// The queue with this id that the event ended.
    pub(crate) fn ended(&self, queue_id: u32) -> Option<&Queue> {
        self.ended.iter().find(|queue| queue.queue_id == queue_id)
    }
}
