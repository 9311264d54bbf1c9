//! Who has which queue: the memory of the tracer.
//!
//! In: events in ring buffer order, details of processes from /proc ([`ProcessDetails`]), and what existed
//! before the tracer (`State::adopt_*`). Out: [`Snapshot`], owned and ordered, and for each event the
//! [`Change`] that it made; [`History`] keeps what clients may query later. Pure: no clock is read here.
//! Times come from the caller and are CLOCK_MONOTONIC unless noted.

mod activity;
mod adopt;
mod apply;
mod change;
mod eviction;
mod existing;
mod gpu;
mod history;
mod image;
mod incidents;
mod input;
mod inventory;
mod ioctls;
mod labels;
mod limits;
mod memory;
mod pairs;
mod places;
mod process;
mod queue;
mod queues;
mod reconcile;
mod reported;
mod rows;
mod sample_totals;
mod sampling;
mod scheduler;
mod schedules;
mod snapshot;
mod source;
mod succession;
mod suspension;
mod tape;
mod totals;
mod unload;
mod update;
mod vram;
mod weight;

#[cfg(test)]
mod property;
#[cfg(test)]
pub(crate) mod samples;

pub use activity::{Activity, Measured, Rate, Reading, STALLED_AFTER_NS, Work, Works};
pub use change::Change;
pub use gpu::{GpuState, GpuStates};
pub use history::{
    Class, Ended, Entry, Filter, Gap, History, Kept, Matches, New, Owner, Passed, QueueIdentity, What,
};
pub use image::Image;
pub use input::{FoundDifference, Input, ListedQueue, ReadTimes, Sample, Vram};
pub use inventory::{Inventory, Shown};
pub use ioctls::{Edge, IoctlSum, IoctlTotals};
pub use labels::{KeptLabels, LabelText};
pub use limits::StateLimits;
pub use memory::{Held, Memory, MemorySum};
pub use process::{Process, ProcessDetails, ProcessKey};
pub use queue::{
    Cause, Debugger, Evictions, MqdWrites, PriorityChange, Queue, QueueEnd, QueueLabel, Suspended,
};
pub use reconcile::Difference;
pub use rows::State;
pub use sample_totals::{SampleTotals, WaitingReaders};
pub use sampling::{Sought, Target};
pub use schedules::{LastList, Lists, Preempted, Preempts, Scheduled, Schedules};
pub use snapshot::Snapshot;
pub use source::{Source, Sources};
pub use totals::{Anomaly, Totals};
