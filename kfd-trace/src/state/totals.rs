//! Totals that outlive the rows they came from: none of them ever decreases.

use super::pairs;
use super::queue::{Cause, MqdWrites, QueueLabel};
use super::source::Source;
use crate::model::incident::Trigger;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Differences between the probes and a list of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// A queue that lives here but no longer exists in the driver.
    Ghost,
    /// A queue that the driver has and the state does not know.
    Missing,
    /// A queue that the kernel has but sysfs does not list.
    Unlisted,
    /// The driver reports other properties.
    Properties,
}

impl Difference {
    /// All differences.
    pub const ALL: &'static [Difference] =
        &[Difference::Ghost, Difference::Missing, Difference::Unlisted, Difference::Properties];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Difference::Ghost => "ghost",
            Difference::Missing => "missing",
            Difference::Unlisted => "unlisted",
            Difference::Properties => "properties",
        }
    }
}

/// An inconsistency in the records. Each occurrence is counted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anomaly {
    /// A record of a process whose first-sight record was not received.
    ProcessSeenLost,
    /// A record that names no process.
    OwnerUnknown,
    /// A successful open by an unknown process.
    OpenOfUnknownProcess,
    /// A queue was created, but its id could not be read.
    QueueWithoutId,
    /// A queue was created under the id of a live one, whose end was not seen.
    CreateOfLiveQueue,
    /// An unknown queue was destroyed.
    DestroyOfUnknownQueue,
    /// An unknown queue was updated.
    UpdateOfUnknownQueue,
    /// A destroy failed, but no destroy of the queue was known.
    DestroyFailedOfUnknownQueue,
    /// A queue that was still alive when its process was released.
    LeftAtRelease,
    /// A record of a process after its release.
    RecordAfterRelease,
    /// A process was found to have ended, but its release had not been seen.
    EndNotSeen,
    /// More processes than rows: the one that was silent the longest was dropped.
    ProcessesFull,
}

impl Anomaly {
    /// All anomalies.
    pub const ALL: &'static [Anomaly] = &[
        Anomaly::ProcessSeenLost,
        Anomaly::OwnerUnknown,
        Anomaly::OpenOfUnknownProcess,
        Anomaly::QueueWithoutId,
        Anomaly::CreateOfLiveQueue,
        Anomaly::DestroyOfUnknownQueue,
        Anomaly::UpdateOfUnknownQueue,
        Anomaly::DestroyFailedOfUnknownQueue,
        Anomaly::LeftAtRelease,
        Anomaly::RecordAfterRelease,
        Anomaly::EndNotSeen,
        Anomaly::ProcessesFull,
    ];

    /// The name in metrics and the summary.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Anomaly::ProcessSeenLost => "process_seen_lost",
            Anomaly::OwnerUnknown => "owner_unknown",
            Anomaly::OpenOfUnknownProcess => "open_of_unknown_process",
            Anomaly::QueueWithoutId => "queue_without_id",
            Anomaly::CreateOfLiveQueue => "create_of_live_queue",
            Anomaly::DestroyOfUnknownQueue => "destroy_of_unknown_queue",
            Anomaly::UpdateOfUnknownQueue => "update_of_unknown_queue",
            Anomaly::DestroyFailedOfUnknownQueue => "destroy_failed_of_unknown_queue",
            Anomaly::LeftAtRelease => "left_at_release",
            Anomaly::RecordAfterRelease => "record_after_release",
            Anomaly::EndNotSeen => "end_not_seen",
            Anomaly::ProcessesFull => "processes_full",
        }
    }
}

/// Totals since the tracer started. For queues this always holds:
/// `created + adopted + revived == destroyed + born_later + live`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    pub processes_created: u64,
    pub processes_standing: u64,
    pub processes_ended: u64,
    pub opens: u64,
    /// Failed opens by positive errno.
    pub open_errors: BTreeMap<i32, u64>,
    pub closes: u64,
    /// Queues whose creation was seen.
    #[serde(with = "pairs")]
    pub queues_created: BTreeMap<QueueLabel, u64>,
    /// Queues whose end was seen or inferred. Includes destroys that the driver then failed.
    #[serde(with = "pairs")]
    pub queues_destroyed: BTreeMap<(QueueLabel, Cause), u64>,
    /// Destroys that failed after they were counted: the queue still exists.
    #[serde(with = "pairs")]
    pub queues_revived: BTreeMap<QueueLabel, u64>,
    /// Existing queues that were found.
    pub queues_adopted: u64,
    /// Of these, the ones whose creation record was received afterwards.
    pub queues_born_later: u64,
    /// Calls of `update_queue` by positive errno, 0 for success, `None` where no return was seen.
    #[serde(with = "pairs")]
    pub queue_updates: BTreeMap<(QueueLabel, Option<i32>), u64>,
    /// Outermost calls of the MQD functions, failed creations included.
    #[serde(with = "pairs")]
    pub mqd_writes: BTreeMap<Option<u32>, MqdWrites>,
    /// Evictions of a process from a GPU, by gpu_id and trigger.
    #[serde(with = "pairs")]
    pub evictions: BTreeMap<(u32, Option<Trigger>), u64>,
    /// Restores, by gpu_id.
    pub restores: BTreeMap<u32, u64>,
    /// Time evicted, sum over all processes, for evictions that ended in a restore, by gpu_id; nanoseconds.
    pub evicted_ns: BTreeMap<u32, u64>,
    /// Differences between the probes and the driver's own lists.
    pub differences: BTreeMap<Difference, u64>,
    /// How often the state was compared with a list of the driver.
    pub comparisons: BTreeMap<Source, u64>,
    pub anomalies: BTreeMap<Anomaly, u64>,
}

impl Totals {
    pub(super) fn anomaly(&mut self, anomaly: Anomaly) {
        *self.anomalies.entry(anomaly).or_default() += 1;
    }

    /// Of processes from a GPU.
    #[must_use]
    pub fn evictions_of(&self, gpu_id: u32) -> u64 {
        self.evictions.iter().filter(|((gpu, _), _)| *gpu == gpu_id).map(|(_, count)| count).sum()
    }

    /// Sum over all labels.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.queues_created.values().sum()
    }

    /// Sum over all labels and causes.
    #[cfg(test)]
    pub fn destroyed(&self) -> u64 {
        self.queues_destroyed.values().sum()
    }

    /// Sum over all labels.
    #[must_use]
    pub fn revived(&self) -> u64 {
        self.queues_revived.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = Anomaly::ALL.iter().map(|anomaly| anomaly.name()).collect();
        assert_eq!(names.len(), Anomaly::ALL.len());
    }
}
