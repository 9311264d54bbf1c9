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
mod pane;
mod processes;
mod queues;
mod recent;
mod render;
mod table;
mod trends;
mod ui;
mod view;

use crate::attribute::Topology;
use crate::model::verdict::Sight;
use crate::state::Snapshot;
use crate::text::clock::Clock;
pub use recent::Recent;
pub use render::render;
use std::collections::BTreeMap;
use std::time::Duration;
pub use trends::Trends;
pub use ui::{Controls, Ui};
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
    /// CLOCK_BOOTTIME at the same time, nanoseconds.
    pub boot_ns: u64,
    /// From the history, oldest first.
    pub recent: Vec<Recent>,
    pub sight: Sight,
    /// By name, none of them 0; `None` if they could not be read.
    pub lost: Option<BTreeMap<String, u64>>,
    /// Why nothing is traced now, if so.
    pub why_not: Option<String>,
    /// Interval at which queues are read; zero for never, `None` where it is not known.
    pub sample: Option<Duration>,
    /// It comes from a recording.
    pub played: Option<Played>,
    /// It comes from a daemon.
    pub watched: Option<Watched>,
}

/// A daemon that is watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// Where it is: `node1:20200`.
    pub place: String,
    /// It was not verified that this is it.
    pub insecure: bool,
    /// All else is old, since it gives no answer.
    pub silence: Option<Silence>,
}

/// What comes instead of answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Silence {
    /// Since the last answer, nanoseconds.
    pub for_ns: u64,
    /// Why, if that is known; safe for a terminal.
    pub why: Option<String>,
}

impl Moment {
    /// What it has was true at an earlier time.
    pub(crate) fn is_old(&self) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.silence.is_some())
    }
}

/// A recording that is played.
#[derive(Clone, Debug, PartialEq)]
pub struct Played {
    /// Of the machine that was traced.
    pub host: String,
    /// Since its begin, nanoseconds.
    pub after_ns: u64,
    /// As fast as it happened: 1.
    pub speed: u32,
    /// Why it does not go on.
    pub over: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests;
