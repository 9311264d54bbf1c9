//! The data kept from one comparison with the driver's lists to the next.

use crate::state::{FoundDifference, ProcessKey};
use crate::tracer::inventory::InventoryReader;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The data kept from scan to scan.
#[derive(Default)]
pub(crate) struct Pending {
    /// `None` while the driver is not loaded.
    pub(in crate::tracer) reader: Option<Arc<InventoryReader>>,
    pub(super) ticks: u32,
    /// Until then every tick begins a scan, CLOCK_MONOTONIC nanoseconds.
    pub(super) until_ns: u64,
    /// Lost records at the last tick, plus what could not be recorded.
    pub(super) lost: u64,
    /// Records that could not be decoded until then, those of earlier loadings of the driver among them.
    pub(super) undecoded: u64,
    pub(super) found: BTreeSet<FoundDifference>,
    /// Consecutive walks that broke off.
    pub(super) broken_walks: u32,
    /// Live rows whose processes were gone from the lists of the last scan.
    pub(super) unlisted: BTreeSet<ProcessKey>,
}

impl Pending {
    pub(crate) fn new(reader: Arc<InventoryReader>, undecoded: u64) -> Self {
        Pending { reader: Some(reader), undecoded, ..Pending::default() }
    }
}
