//! A row of the table of events: of a history here, or of one that a daemon reports.

use crate::output::belongs::BelongsFields;
use crate::output::event;
use crate::output::reported::ReportedEvent;
use crate::state::{Entry, What};
use crate::text::escape;
use kfd_trace_common::kind::{Kind, Severity};
use std::sync::Arc;

/// An event that is shown.
#[derive(Clone, Debug)]
pub enum Recent {
    Kept(Arc<Entry>),
    Reported(Arc<ReportedEvent>),
}

impl From<Arc<Entry>> for Recent {
    fn from(entry: Arc<Entry>) -> Self {
        Recent::Kept(entry)
    }
}

impl Recent {
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Recent::Kept(entry) => entry.name(),
            Recent::Reported(event) => &event.name,
        }
    }

    /// By [`super::Moment::clock`].
    pub(super) fn at_ns(&self) -> u64 {
        match self {
            Recent::Kept(entry) => entry.mono_ns,
            Recent::Reported(event) => event.at_ns,
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Recent::Kept(entry) => entry.pid(),
            Recent::Reported(event) => event.pid,
        }
    }

    /// Not yet safe for a terminal.
    pub(super) fn comm(&self) -> Option<&str> {
        match self {
            Recent::Kept(entry) => entry.owner.as_ref().and_then(|owner| owner.comm.as_deref()),
            Recent::Reported(event) => event.comm.as_deref(),
        }
    }

    /// `None` where it is not known.
    pub(super) fn owner(&self) -> Option<String> {
        match self {
            Recent::Kept(entry) => {
                entry.owner.as_ref().and_then(|owner| BelongsFields::from(&owner.details).owner())
            }
            Recent::Reported(_) => None,
        }
    }

    pub(super) fn gpu_id(&self) -> Option<u32> {
        match self {
            Recent::Kept(entry) => entry.what.gpu_id(),
            Recent::Reported(event) => event.gpu_id,
        }
    }

    /// Safe for a terminal.
    pub(super) fn detail(&self) -> String {
        match self {
            Recent::Kept(entry) => event::remembered(entry),
            Recent::Reported(event) => event.detail.clone(),
        }
    }

    fn kind(&self) -> Option<Kind> {
        match self {
            Recent::Kept(entry) => entry.what.kind(),
            Recent::Reported(event) => event.kind,
        }
    }

    fn is_loading(&self) -> bool {
        match self {
            Recent::Kept(entry) => matches!(entry.what, What::Driver { loaded: true, .. }),
            Recent::Reported(event) => event.name == "driver_loaded",
        }
    }

    /// A failure, whatever its kind.
    fn failed(&self) -> bool {
        match self {
            Recent::Kept(entry) => entry.event().is_some_and(|(event, _)| event.body.errno().is_some()),
            Recent::Reported(event) => event.failed,
        }
    }

    pub(super) fn severity(&self) -> Severity {
        match self.kind() {
            _ if self.failed() => Severity::Failure,
            None if self.is_loading() => Severity::Created,
            None => Severity::Failure,
            Some(kind) => kind.severity(),
        }
    }

    /// Where it is: the same as long as it is kept.
    pub(crate) fn address(&self) -> usize {
        match self {
            Recent::Kept(entry) => Arc::as_ptr(entry).addr(),
            Recent::Reported(event) => Arc::as_ptr(event).addr(),
        }
    }

    /// Comm, safe for a terminal.
    pub(super) fn shown_comm(&self) -> Option<String> {
        match self {
            Recent::Kept(_) => self.comm().map(escape::terminal),
            Recent::Reported(event) => event.comm.clone(),
        }
    }
}
