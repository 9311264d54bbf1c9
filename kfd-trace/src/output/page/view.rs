//! Input of a page, and tables of bounded size.

use super::query::Past;
use super::trends::Rates;
use crate::model::verdict::{all_see, sees_hangs};
use crate::output::api::{ApiView, Tracing};
use crate::output::status;
use kfd_trace_common::counter::ProbeId;

/// Rows of a table; further rows are only counted.
pub(super) const ROWS: usize = 100;

/// Input of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'a> {
    /// `None`: nothing is traced now; `tracing` has the reason.
    pub now: Option<&'a ApiView<'a>>,
    pub tracing: &'a Tracing<'a>,
    pub past: &'a Past,
    pub rates: &'a Rates,
}

/// The rows that are shown, and the number of others.
pub(super) struct Part<T> {
    pub(super) rows: Vec<T>,
    pub(super) more: usize,
}

impl<T> Part<T> {
    pub(super) fn new(mut rows: Vec<T>, most: usize) -> Self {
        let more = rows.len().saturating_sub(most);
        rows.truncate(most);
        Part { rows, more }
    }
}

/// What is seen at all: where it is not, a count of 0 means nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Queues are followed from their creation on.
    pub(super) queues: bool,
    pub(super) evictions: bool,
    pub(super) faults: bool,
    pub(super) resets: bool,
    pub(super) hangs: bool,
    /// Opens and closes of /dev/kfd.
    pub(super) opens: bool,
}

impl PageView<'_> {
    pub(super) fn seen(&self) -> Seen {
        let Tracing { probes, queues_by_ioctl, .. } = self.tracing;
        let sight = status::sight(probes, *queues_by_ioctl);
        let one = |id| all_see(probes, &[id]);
        Seen {
            queues: sight.queues,
            evictions: sight.evictions,
            faults: one(ProbeId::VmFault),
            resets: one(ProbeId::GpuReset),
            hangs: sees_hangs(probes),
            opens: one(ProbeId::Open) && one(ProbeId::Release),
        }
    }
}
