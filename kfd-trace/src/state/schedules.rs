//! What is known of GPUs' lists of queues and their preemptions: values, without the rules ([`super::scheduler`]).

use super::ioctls::IoctlSum;
use crate::model::runlist::Reason;
use kfd_trace_common::stat::{BUCKETS, IoctlStat, bucket_of};
use std::collections::BTreeMap;

/// Durations, as in [`kfd_trace_common::stat::IoctlStat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    pub count: u64,
    pub sum_ns: u64,
    pub buckets: [u64; BUCKETS],
}

impl Durations {
    pub(super) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        if let Some(bucket) = self.buckets.get_mut(bucket_of(ns)) {
            *bucket += 1;
        }
    }
}

/// As calls that returned, for their histogram.
impl From<&Durations> for IoctlSum {
    fn from(durations: &Durations) -> Self {
        let Durations { count, sum_ns, buckets } = *durations;
        let stat = IoctlStat { returned: count, latency_ns: sum_ns, buckets, ..IoctlStat::ZERO };
        IoctlSum { stat, ..IoctlSum::default() }
    }
}

/// What a GPU was made to run. A reason is `None` where the calling function is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Preemptions that took all queues off.
    pub preempted: BTreeMap<Option<Reason>, Durations>,
    /// Those that did not, by positive errno.
    pub failed: BTreeMap<(Option<Reason>, i32), u64>,
    /// Lists that were submitted.
    pub lists: BTreeMap<Option<Reason>, u64>,
    /// Lists that could not be made, by positive errno.
    pub unsent: BTreeMap<(Option<Reason>, i32), u64>,
    /// The last list; `None` before the first one is seen.
    pub last: Option<LastList>,
}

/// The list that a GPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastList {
    /// With queues on the GPU; `None` where that could not be read, as in the others.
    pub processes: Option<u32>,
    pub queues: Option<u32>,
    pub cp_queues: Option<u32>,
    pub oversubscribed: Option<bool>,
}

/// Preemptions of a GPU that concern a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preempts {
    /// On its behalf.
    pub own: u64,
    /// Of these, time that the GPU's queues were taken off, or off, nanoseconds.
    pub own_ns: u64,
    /// On behalf of others, or of no process, while it had active queues there.
    pub others: u64,
    /// The same of those.
    pub others_ns: u64,
}

/// By gpu_id.
pub type Schedules = BTreeMap<u32, Scheduled>;
