//! The screen of `kfd-trace top`. Pure.
//!
//! In: a [`Moment`], what was counted at earlier ones ([`Trends`]), and what the user chose ([`Ui`]). Out: a [`View`],
//! whose rows are built only as far as they are visible, and a frame of it ([`render`]). Keys and the mouse change
//! the [`Ui`] ([`Ui::after`]).

mod column;
mod events;
mod gpus;
mod header;
mod help;
mod keys;
mod layout;
mod load;
mod pane;
mod processes;
mod queues;
mod render;
mod table;
mod trends;
mod ui;
mod view;

use crate::attribute::Topology;
use crate::model::verdict::{EVICTIONS, ProbeStatus, QUEUES, all_see};
use crate::state::{Entry, Snapshot};
use crate::text::clock::Clock;
pub use render::render;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
pub use trends::Trends;
pub use ui::Ui;
pub use view::View;

/// Entries of the history that [`Moment::recent`] needs at most.
pub const RECENT: usize = 200;

/// What is known at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    pub snapshot: Snapshot,
    pub topology: Topology,
    pub clock: Clock,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub now_ns: u64,
    /// From the history, oldest first.
    pub recent: Vec<Arc<Entry>>,
    /// Empty while nothing is traced.
    pub probes: Vec<ProbeStatus>,
    /// Queues are followed by their ioctls alone.
    pub queues_by_ioctl: bool,
    /// By name, none of them 0; `None` if they could not be read.
    pub lost: Option<BTreeMap<String, u64>>,
    /// Why nothing is traced now, if so.
    pub why_not: Option<String>,
    /// Interval at which queues are read; zero for never.
    pub sample: Duration,
}

impl Moment {
    /// Queues are followed from their creation on: else those that are known need not be all.
    fn sees_queues(&self) -> bool {
        self.queues_by_ioctl || (!self.probes.is_empty() && all_see(&self.probes, &QUEUES))
    }

    /// Evictions and restores are seen: else a count of 0 means nothing.
    fn sees_evictions(&self) -> bool {
        !self.probes.is_empty() && all_see(&self.probes, &EVICTIONS)
    }
}

#[cfg(test)]
pub(crate) mod tests;
