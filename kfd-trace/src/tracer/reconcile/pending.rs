//! What is remembered from one comparison with the driver's lists to the next.

use crate::state::{Finding, ProcessKey};
use crate::tracer::inventory::Standings;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is remembered from look to look.
#[derive(Default)]
pub(crate) struct Pending {
    /// `None` while the driver is not loaded.
    pub(super) standings: Option<Arc<Standings>>,
    pub(super) ticks: u32,
    /// Until then there is a look at every tick, CLOCK_MONOTONIC nanoseconds.
    pub(super) until_ns: u64,
    /// Lost records at the last tick, and what could not be told.
    pub(super) lost: u64,
    pub(super) found: BTreeSet<Finding>,
    /// Walks in a row that broke off.
    pub(super) broken_walks: u32,
    /// Live rows whose processes were gone by the lists of the last look.
    pub(super) unlisted: BTreeSet<ProcessKey>,
}

impl Pending {
    pub(crate) fn new(standings: Arc<Standings>) -> Self {
        Pending { standings: Some(standings), ..Pending::default() }
    }
}
