//! Ioctl totals by number, over all processes, ended ones included.

use crate::events::tables::{ErrorRow, IoctlRow, Tables};
use crate::model::event::ProcessId;
use crate::model::ioctl;
use kfd_trace_common::stat::{BUCKETS, FIRST_EDGE_LOG2, IoctlStat, bucket_of, upper_edge_ns};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Totals of all calls of one ioctl number, for any size that user space passed; or of other calls that take a while
/// and may fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoctlSum {
    #[serde(with = "StatFields")]
    pub stat: IoctlStat,
    /// Calls by positive errno, refused calls included.
    pub errors: BTreeMap<i32, u64>,
}

/// The fields of a sum of the programs, which know no serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "IoctlStat")]
struct StatFields {
    entered: u64,
    returned: u64,
    refused: u64,
    no_return_seen: u64,
    latency_ns: u64,
    buckets: [u64; BUCKETS],
}

impl Default for IoctlSum {
    fn default() -> Self {
        Self { stat: IoctlStat::ZERO, errors: BTreeMap::new() }
    }
}

impl IoctlSum {
    /// Counts one: with its duration, or if it failed by its positive errno.
    pub(super) fn returns(&mut self, errno: i32, latency_ns: u64) {
        if errno != 0 {
            *self.errors.entry(errno).or_default() += 1;
            return;
        }
        let stat = &mut self.stat;
        stat.returned += 1;
        stat.latency_ns = stat.latency_ns.saturating_add(latency_ns);
        stat.buckets[bucket_of(latency_ns)] += 1;
    }

    /// Takes off what was counted earlier.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        self.stat.subtract(&earlier.stat);
        subtract(&mut self.errors, &earlier.errors);
    }

    /// Calls that returned an errno.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Mean latency of the calls that returned.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        self.stat.latency_ns.checked_div(self.stat.returned)
    }

    /// Upper edge of the bucket that holds the `percent` percentile; `None` also for the last bucket.
    #[must_use]
    pub fn below_ns(&self, percent: u64) -> Option<u64> {
        match self.percentile(percent)? {
            Edge::Below(ns) => Some(ns),
            Edge::Above(_) => None,
        }
    }

    /// Upper edge of the bucket that holds the `percent` percentile. `None` if no call was measured;
    /// [`Edge::Above`] for the last bucket, which has no upper edge.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<Edge> {
        let all: u64 = self.stat.buckets.iter().sum();
        if all == 0 {
            return None;
        }
        let rank = all.saturating_mul(percent).div_ceil(100).max(1);
        let mut below = 0;
        let bucket = self.stat.buckets.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(upper_edge_ns(bucket).map_or(Edge::Above(LAST_LOWER_EDGE_NS), Edge::Below))
    }
}

/// Calls that entered and have no observed end.
fn without_end(stat: &IoctlStat) -> u64 {
    stat.entered.saturating_sub(stat.returned + stat.refused + stat.no_return_seen)
}

/// Takes earlier counts off; what was not counted since has none.
pub(super) fn subtract(counts: &mut BTreeMap<i32, u64>, earlier: &BTreeMap<i32, u64>) {
    for (errno, before) in earlier {
        if let Some(count) = counts.get_mut(errno) {
            *count = count.saturating_sub(*before);
        }
    }
    counts.retain(|_, count| *count > 0);
}

const LAST_LOWER_EDGE_NS: u64 = 1 << (FIRST_EDGE_LOG2 as usize + BUCKETS - 2);

/// Position of a latency in the histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Less than this, nanoseconds.
    Below(u64),
    /// This or more, nanoseconds.
    Above(u64),
}

/// Totals by ioctl number. Includes the rows of processes whose map rows were deleted, so that totals never
/// decrease: see [`IoctlTotals::retire`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoctlTotals {
    by_nr: BTreeMap<u8, IoctlSum>,
    /// Calls of WAIT_EVENTS whose ends were not probed. They are counted apart since the next driver to be loaded may
    /// be probed in another way.
    not_measured: u64,
}

impl IoctlTotals {
    /// Adds the rows of tables that were deleted from the maps.
    pub fn retire(&mut self, tables: &Tables) {
        for row in &tables.ioctls {
            self.add(row, tables.whole_calls);
        }
        for row in &tables.errors {
            self.add_error(row);
        }
    }

    fn add(&mut self, row: &IoctlRow, whole_calls: bool) {
        let nr = ioctl::nr(row.cmd);
        self.by_nr.entry(nr).or_default().stat.add(&row.stat);
        if nr == ioctl::WAIT_EVENTS && !whole_calls {
            self.not_measured += without_end(&row.stat);
        }
    }

    fn add_error(&mut self, row: &ErrorRow) {
        let sum = self.by_nr.entry(ioctl::nr(row.cmd)).or_default();
        *sum.errors.entry(row.errno).or_default() += row.count;
    }

    /// These totals plus the rows that are in the maps now.
    #[must_use]
    pub fn with(&self, tables: &Tables) -> Self {
        let mut all = self.clone();
        all.retire(tables);
        all
    }

    /// The rows of the maps, grouped by process.
    #[must_use]
    pub fn by_process(tables: &Tables) -> BTreeMap<ProcessId, IoctlTotals> {
        let mut all: BTreeMap<ProcessId, IoctlTotals> = BTreeMap::new();
        for row in &tables.ioctls {
            all.entry(row.process).or_default().add(row, tables.whole_calls);
        }
        for row in &tables.errors {
            all.entry(row.process).or_default().add_error(row);
        }
        all
    }

    /// In order of ioctl number.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &IoctlSum)> {
        self.by_nr.iter().map(|(nr, sum)| (*nr, sum))
    }

    #[must_use]
    pub fn get(&self, nr: u8) -> Option<&IoctlSum> {
        self.by_nr.get(&nr)
    }

    /// Calls of WAIT_EVENTS that were counted at their entry alone ([`Tables::whole_calls`]), refused ones not
    /// included.
    #[must_use]
    pub fn not_measured(&self) -> u64 {
        self.not_measured
    }

    /// Calls of an ioctl that entered, have no observed end, and are not among the `open` ones that have not returned:
    /// the probes missed their returns. The maps are not read atomically, so on a busy machine a few of these may just
    /// be in flight.
    #[must_use]
    pub fn missed(&self, nr: u8, open: usize) -> u64 {
        let not_measured = if nr == ioctl::WAIT_EVENTS { self.not_measured } else { 0 };
        let open = u64::try_from(open).unwrap_or(u64::MAX);
        let without_end = self.get(nr).map_or(0, |sum| without_end(&sum.stat));
        without_end.saturating_sub(not_measured).saturating_sub(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::samples::{error_row, ioctl_row};

    const CREATE_96: u32 = 0xc060_4b02;
    const CREATE_88: u32 = 0xc058_4b02;
    const WAIT: u32 = 0xc018_4b0c;

    fn tables(ioctls: Vec<IoctlRow>, errors: Vec<ErrorRow>) -> Tables {
        Tables { ioctls, errors, ..Tables::default() }
    }

    #[test]
    fn both_sizes_of_an_ioctl_are_one_number_and_retired_rows_stay() {
        let mut retired = IoctlTotals::default();
        retired.retire(&tables(vec![ioctl_row(1, CREATE_96, 3, 1000)], vec![error_row(1, CREATE_96, 22, 2)]));
        let now = retired
            .with(&tables(vec![ioctl_row(2, CREATE_88, 4, 5000)], vec![error_row(2, CREATE_88, 22, 1)]));
        let sum = now.get(2).expect("CREATE_QUEUE");
        assert_eq!((sum.stat.entered, sum.stat.returned, sum.failed()), (7, 7, 3));
        assert_eq!(sum.mean_ns(), Some((3 * 1000 + 4 * 5000) / 7));
        assert_eq!(retired.get(2).map(|sum| sum.stat.entered), Some(3), "with() must not change the retired");
    }

    #[test]
    fn a_percentile_is_an_upper_edge() {
        let mut sum = IoctlSum::default();
        assert_eq!(sum.percentile(50), None);
        sum.stat.buckets[..3].copy_from_slice(&[1, 1, 1]);
        assert_eq!(sum.percentile(50), Some(Edge::Below(2048)), "the median of three is the second");
        sum.stat.buckets[..3].copy_from_slice(&[0, 0, 0]);
        sum.stat.buckets[0] = 98;
        sum.stat.buckets[3] = 1;
        sum.stat.buckets[BUCKETS - 1] = 1;
        assert_eq!(sum.percentile(50), Some(Edge::Below(1024)));
        assert_eq!(sum.percentile(99), Some(Edge::Below(8192)));
        assert_eq!(sum.percentile(100), Some(Edge::Above(1 << 35)));
    }

    #[test]
    fn processes_are_kept_apart() {
        let rows = vec![ioctl_row(1, CREATE_96, 3, 10), ioctl_row(2, CREATE_96, 4, 10)];
        let by = IoctlTotals::by_process(&tables(rows, vec![error_row(2, CREATE_96, 22, 1)]));
        let entered = |id| by[&ProcessId(id)].get(2).map(|sum| (sum.stat.entered, sum.failed()));
        assert_eq!((entered(1), entered(2)), (Some((3, 0)), Some((4, 1))));
    }

    /// One driver was probed without the return of `kfd_ioctl`, and the next one with it.
    #[test]
    fn waits_that_were_not_measured_stay_so_and_are_no_missed_returns() {
        let stat = IoctlStat { entered: 9, refused: 1, no_return_seen: 2, ..IoctlStat::ZERO };
        let unprobed = tables(vec![IoctlRow { process: ProcessId(1), cmd: WAIT, stat }], Vec::new());
        let mut retired = IoctlTotals::default();
        retired.retire(&unprobed);
        assert_eq!((retired.not_measured(), retired.missed(ioctl::WAIT_EVENTS, 0)), (6, 0));
        let stat = IoctlStat { entered: 307, returned: 4, ..IoctlStat::ZERO };
        let ioctls =
            vec![IoctlRow { process: ProcessId(2), cmd: WAIT, stat }, ioctl_row(2, CREATE_96, 3, 10)];
        let all = retired.with(&Tables { ioctls, whole_calls: true, ..Tables::default() });
        assert_eq!((all.not_measured(), all.missed(ioctl::WAIT_EVENTS, 300)), (6, 3));
        assert_eq!(all.missed(ioctl::WAIT_EVENTS, 303), 0);
        assert_eq!((all.missed(2, 0), all.missed(0x77, 0)), (0, 0), "all returned, and none was called");
    }
}
