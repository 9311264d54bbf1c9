//! What a process does, and whether it gets on, and if not why: for the tables of `top` and of the page.

use super::belongs::BelongsFields;
use super::load::Load;
use crate::state::Process;
use crate::text::clock::age;

/// What deserves attention comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Since when, CLOCK_MONOTONIC; `None` if it was found evicted.
    Evicted(Option<u64>),
    /// This many of its queues.
    Stalled(usize),
    Suspended,
    Busy,
    /// Since when, CLOCK_MONOTONIC, and for how long at the last reading; nanoseconds.
    Idle {
        since_ns: u64,
        for_ns: u64,
    },
    Unknown,
    WithoutQueues,
    Exiting,
}

impl Standing {
    /// `queues_are_seen`: else a process without queues may have some.
    pub(super) fn of(process: &Process, load: &Load, queues_are_seen: bool) -> Self {
        if process.mm_released_ns.is_some() {
            return Standing::Exiting;
        }
        if process.evicted.evicted {
            return Standing::Evicted(process.evicted.since_ns);
        }
        match load.idle_ns() {
            _ if load.queues == 0 && queues_are_seen => Standing::WithoutQueues,
            _ if load.queues == 0 => Standing::Unknown,
            _ if load.stalled > 0 => Standing::Stalled(load.stalled),
            _ if load.suspended == load.queues => Standing::Suspended,
            Some(0) => Standing::Busy,
            Some(for_ns) => {
                load.busy_ns().map_or(Standing::Unknown, |since_ns| Standing::Idle { since_ns, for_ns })
            }
            None => Standing::Unknown,
        }
    }

    /// Its name, and since when it has been so, where that is known. `None`: not known.
    pub(super) fn label(self) -> Option<(String, Option<u64>)> {
        let since_ns = match self {
            Standing::Evicted(since_ns) => since_ns,
            Standing::Idle { since_ns, .. } => Some(since_ns),
            _ => None,
        };
        let name = match self {
            Standing::Evicted(_) => "evicted",
            Standing::Stalled(queues) => return Some((format!("{queues} stalled"), None)),
            Standing::Suspended => "suspended",
            Standing::Busy => "busy",
            Standing::Idle { .. } => "idle",
            Standing::Unknown => return None,
            Standing::WithoutQueues => "no queue",
            Standing::Exiting => "exiting",
        };
        Some((name.to_owned(), since_ns))
    }

    /// `evicted 5s`; `None`: not known. `now_ns`: CLOCK_MONOTONIC.
    pub(super) fn text(self, now_ns: u64) -> Option<String> {
        let (name, since_ns) = self.label()?;
        let for_ns = match self {
            Standing::Idle { for_ns, .. } => Some(for_ns),
            _ => since_ns.map(|since_ns| now_ns.saturating_sub(since_ns)),
        };
        Some(for_ns.map_or_else(|| name.clone(), |for_ns| format!("{name} {}", age(for_ns))))
    }

    /// By which rows are sorted; `None` if it is not known.
    pub(super) fn rank(self) -> Option<f64> {
        Some(match self {
            Standing::Evicted(_) => 0.0,
            Standing::Stalled(_) => 1.0,
            Standing::Suspended => 2.0,
            Standing::Busy => 3.0,
            Standing::Idle { .. } => 4.0,
            Standing::WithoutQueues => 5.0,
            Standing::Exiting => 6.0,
            Standing::Unknown => return None,
        })
    }
}

/// A process, and what its queues do.
pub(super) struct Working<'a> {
    pub(super) process: &'a Process,
    pub(super) load: Load,
    pub(super) owner: Option<String>,
    pub(super) standing: Standing,
}

impl<'a> Working<'a> {
    /// `queues_are_seen`: else a process without queues may have some.
    pub(super) fn new(process: &'a Process, queues_are_seen: bool) -> Self {
        let load = Load::of(process.queues.values());
        let owner = BelongsFields::from(&process.details).owner();
        let standing = Standing::of(process, &load, queues_are_seen);
        Working { process, load, owner, standing }
    }
}
