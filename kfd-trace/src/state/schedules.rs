//! What is known of GPUs' lists of queues and their preemptions: values, without the rules ([`super::scheduler`]).

use super::ioctls::{IoctlSum, subtract};
use super::pairs;
use crate::model::mes::MesOp;
use crate::model::runlist::Reason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a GPU was made to run. A reason is `None` where the calling function is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scheduled {
    /// Preemptions: durations of those that took all queues off, and the errnos of those that did not.
    #[serde(with = "pairs")]
    pub preempted: BTreeMap<Option<Reason>, IoctlSum>,
    #[serde(with = "pairs")]
    pub lists: BTreeMap<Option<Reason>, Lists>,
    /// The last list; `None` before the first one is seen.
    pub last: Option<LastList>,
    /// Requests to the firmware scheduler MES: durations of those that succeeded, and the errnos of those that failed.
    pub mes: BTreeMap<MesOp, IoctlSum>,
}

impl Scheduled {
    /// What was counted since an earlier moment; the last list is today's.
    pub(super) fn since(&self, earlier: Option<&Self>) -> Self {
        let none = Self::default();
        let earlier = earlier.unwrap_or(&none);
        let preempted = sums_since(&self.preempted, &earlier.preempted);
        let mes = sums_since(&self.mes, &earlier.mes);
        let mut lists = self.lists.clone();
        for (reason, before) in &earlier.lists {
            if let Some(all) = lists.get_mut(reason) {
                all.sent = all.sent.saturating_sub(before.sent);
                subtract(&mut all.failed, &before.failed);
            }
        }
        lists.retain(|_, lists| *lists != Lists::default());
        Self { preempted, lists, last: self.last, mes }
    }
}

/// Without the keys of which nothing was counted since.
fn sums_since<K: Ord + Copy>(
    now: &BTreeMap<K, IoctlSum>,
    earlier: &BTreeMap<K, IoctlSum>,
) -> BTreeMap<K, IoctlSum> {
    let mut sums = now.clone();
    for (key, before) in earlier {
        if let Some(all) = sums.get_mut(key) {
            all.subtract(before);
        }
    }
    sums.retain(|_, sum| sum.stat.returned > 0 || !sum.errors.is_empty());
    sums
}

/// Lists that were made for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lists {
    /// Submitted.
    pub sent: u64,
    /// They could not be made or submitted, by positive errno.
    pub failed: BTreeMap<i32, u64>,
}

/// The list that a GPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastList {
    /// With queues on the GPU; `None` where that could not be read, as in the others.
    pub processes: Option<u32>,
    pub queues: Option<u32>,
    pub cp_queues: Option<u32>,
    pub oversubscribed: Option<bool>,
}

/// Preemptions of a GPU that concern a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preempts {
    /// On its behalf.
    pub own: Preempted,
    /// On behalf of others, or of no process, while it had active queues there.
    pub others: Preempted,
}

/// Some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preempted {
    pub count: u64,
    /// Time that the GPU's queues were taken off, or off, nanoseconds.
    pub ns: u64,
}

impl Preempts {
    pub(super) fn since(self, earlier: Self) -> Self {
        let since = |now: Preempted, before: Preempted| Preempted {
            count: now.count.saturating_sub(before.count),
            ns: now.ns.saturating_sub(before.ns),
        };
        Self { own: since(self.own, earlier.own), others: since(self.others, earlier.others) }
    }
}

/// By gpu_id.
pub type Schedules = BTreeMap<u32, Scheduled>;
