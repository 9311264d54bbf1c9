//! The calls of a state as values: what its parts are given, and the whole of each call.

use super::activity::Reading;
use super::process::{ProcessDetails, ProcessKey};
use super::source::Source;
use super::totals::Difference;
use crate::model::event::{Event, QueueFacts};
use crate::model::inventory::{Listed, Place};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// When a source was read, CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadTimes {
    pub from_ns: u64,
    pub until_ns: u64,
}

impl From<u64> for ReadTimes {
    /// Read at a single point in time.
    fn from(at_ns: u64) -> Self {
        ReadTimes { from_ns: at_ns, until_ns: at_ns }
    }
}

/// One difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FoundDifference {
    /// The affected row; for a missing queue the live row at its place, if any.
    pub key: Option<ProcessKey>,
    pub tgid: u32,
    /// Which of its contexts (7.2).
    pub context_id: Option<u32>,
    pub queue_id: u32,
    pub difference: Difference,
}

impl FoundDifference {
    #[must_use]
    pub fn place(&self) -> Place {
        (self.tgid, self.context_id)
    }
}

/// The result for one [`super::Sought`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub key: ProcessKey,
    pub queue_id: u32,
    pub since_ns: u64,
    pub reading: Reading,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
}

/// What the driver counts for a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vram {
    pub place: Place,
    /// Bytes by gpu_id.
    pub bytes: BTreeMap<u32, u64>,
}

/// One call. Its name and those of its fields are the format of recordings: they are never changed, and fields that are
/// added are optional.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// [`super::State::apply`]
    Event(Event),
    /// [`super::State::enrich`]
    Details { key: ProcessKey, details: ProcessDetails },
    /// [`super::State::adopt_process`]; the queues are adopted one by one.
    Process { read: ReadTimes, process: Listed, source: Source },
    /// [`super::State::adopt_queue`]
    Queue { key: ProcessKey, read: ReadTimes, queue: QueueFacts, source: Source },
    /// [`super::State::compared`]
    Compared(Source),
    /// [`super::State::resync`], with what the lists show.
    Corrected { finding: FoundDifference, listed: Option<Box<ListedQueue>>, at_ns: u64 },
    /// [`super::State::keep_unlisted`]
    Unlisted(FoundDifference),
    /// [`super::State::gone`]
    Gone { key: ProcessKey, at_ns: u64 },
    /// [`super::State::driver_unloaded`]
    Unloaded { at_ns: u64 },
    /// [`super::State::sought`]
    Sought,
    /// [`super::State::sampled`]: all of one pass.
    Sampled(Vec<Sample>),
    /// [`super::State::samples_are_late`]
    Late,
    /// [`super::State::expire`], where that removed something.
    Expired { at_ns: u64 },
    /// [`super::State::start_anew`]
    Anew,
    /// [`super::State::count_vram`]: what has changed.
    Vram { at_ns: u64, changed: Vec<Vram> },
    /// [`super::State::miss_memory`]
    Missed { at_ns: u64 },
}

/// What a list shows for a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedQueue {
    pub source: Source,
    pub read: ReadTimes,
    /// Without its queues.
    pub process: Listed,
    pub queue: QueueFacts,
}
