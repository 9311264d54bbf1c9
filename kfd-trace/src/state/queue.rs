//! One queue, from creation to end.

use super::activity::Activity;
use super::source::{Source, Sources};
use crate::model::event::{QueueFacts, QueueType};
use crate::model::incident::{CuMask, MqdOp, Trigger};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A queue. Within a process its id is unique while it lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    pub queue_id: u32,
    /// What is known of it; `None` in a field is "not reported".
    pub facts: QueueFacts,
    pub sources: Sources,
    /// When its creation was seen; `None` for a queue that existed before the tracer.
    pub born_ns: Option<u64>,
    /// When it was found as an existing queue.
    pub adopted_ns: Option<u64>,
    /// Observed calls of `update_queue`.
    pub updates: u64,
    /// The last mask that was seen being set.
    pub cu_mask: Option<CuMask>,
    pub mqd_writes: MqdWrites,
    pub evictions: Evictions,
    pub(super) rare: Option<Box<Rare>>,
    pub activity: Activity,
    /// When its last record was applied, or when it was found.
    pub changed_ns: u64,
    /// When it was reread from sysfs or the kernel because a record had been lost: its counts are then too
    /// low.
    pub resynced_ns: Option<u64>,
    /// sysfs does not list it: its entry was removed before a destroy that failed (6.1), or could not be
    /// created.
    pub unlisted: bool,
    pub end: Option<QueueEnd>,
}

/// How a queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueEnd {
    pub at_ns: u64,
    pub cause: Cause,
}

/// Why a queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// DESTROY_QUEUE.
    Ioctl,
    /// The driver cleaned up after its process, in a kworker or in the dying task.
    ProcessDeath,
    /// Its context's file descriptor was closed: a secondary context of a PID (7.2) ends with it.
    Close,
    /// Destroyed outside DESTROY_QUEUE while its process lived.
    Other,
    /// Its process was released, and no destroy of the queue had been seen.
    LeftAtRelease,
    /// Its id was given to a new queue, and no destroy had been seen.
    Replaced,
    /// Its process ended unseen.
    NotSeen,
    /// The driver was unloaded, and the end of the queue had not been seen.
    DriverUnloaded,
}

impl Cause {
    /// Every cause.
    pub const ALL: &'static [Cause] = &[
        Cause::Ioctl,
        Cause::ProcessDeath,
        Cause::Close,
        Cause::Other,
        Cause::LeftAtRelease,
        Cause::Replaced,
        Cause::NotSeen,
        Cause::DriverUnloaded,
    ];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Ioctl => "ioctl",
            Cause::ProcessDeath => "process_death",
            Cause::Close => "close",
            Cause::Other => "other",
            Cause::LeftAtRelease => "left_at_release",
            Cause::Replaced => "replaced",
            Cause::NotSeen => "not_seen",
            Cause::DriverUnloaded => "driver_unloaded",
        }
    }
}

/// Labels of queue counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueLabel {
    pub gpu_id: Option<u32>,
    pub queue_type: Option<QueueType>,
}

impl QueueLabel {
    /// The type's name; `unknown` if not reported.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.queue_type.map_or("unknown", QueueType::name)
    }
}

/// Who suspended a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debugger {
    pub pid: u32,
    pub comm: Option<String>,
}

/// How a queue came to be suspended; whether it is, is in its facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Suspended {
    /// `None` if it is not suspended, or was found so.
    pub by: Option<Debugger>,
    /// CLOCK_MONOTONIC nanoseconds; `None` as above.
    pub since_ns: Option<u64>,
    /// Observed suspends; of a queue that is already suspended they do not count.
    pub count: u64,
    /// A debugger tried to change it, and what became of that is not known.
    pub unclear: bool,
}

/// The last change of a queue's priority that was seen, or seen to have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityChange {
    /// When the call was seen, CLOCK_MONOTONIC nanoseconds, and the tgid that called; `None` if it was not.
    pub by: Option<(u64, u32)>,
    /// The priority that the queue was created with; `None` if that was not seen.
    pub created_with: Option<u32>,
}

/// What few queues ever have, apart from them since all are copied for each response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Rare {
    pub(super) suspended: Suspended,
    pub(super) priority: Option<PriorityChange>,
    /// When an earlier tracer found it, CLOCK_MONOTONIC nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) found_before_ns: Option<u64>,
}

impl Queue {
    pub(super) fn born(queue_id: u32, facts: &QueueFacts, at_ns: u64) -> Self {
        let mut queue = Self { born_ns: Some(at_ns), ..Self::new(queue_id, facts, Source::Probe, at_ns) };
        if facts.evicted == Some(true) {
            queue.evictions.begin(at_ns, None);
        }
        queue
    }

    pub(super) fn standing(queue_id: u32, facts: &QueueFacts, source: Source, at_ns: u64) -> Self {
        let mut queue = Self { adopted_ns: Some(at_ns), ..Self::new(queue_id, facts, source, at_ns) };
        queue.evictions.found(facts.evicted == Some(true), at_ns);
        queue
    }

    pub(super) fn new(queue_id: u32, facts: &QueueFacts, sources: impl Into<Sources>, at_ns: u64) -> Self {
        Self {
            queue_id,
            facts: facts.clone(),
            sources: sources.into(),
            born_ns: None,
            adopted_ns: None,
            updates: 0,
            cu_mask: None,
            mqd_writes: MqdWrites::default(),
            evictions: Evictions::default(),
            rare: None,
            activity: Activity::default(),
            changed_ns: at_ns,
            resynced_ns: None,
            unlisted: false,
            end: None,
        }
    }

    /// When it was created or found, CLOCK_MONOTONIC nanoseconds; unique among the queues of one id.
    pub(super) fn since_ns(&self) -> u64 {
        self.known_since_ns().unwrap_or(0)
    }

    /// When it was found, or else created: the time of the event that reported it first.
    #[must_use]
    pub fn known_since_ns(&self) -> Option<u64> {
        self.adopted_ns.or(self.born_ns)
    }

    /// When an earlier tracer of this boot found it, if one did, and its creation is not known.
    #[must_use]
    pub fn found_before_ns(&self) -> Option<u64> {
        self.rare.as_ref().and_then(|rare| rare.found_before_ns)
    }

    /// When it was found first, of a queue whose creation was not seen.
    #[must_use]
    pub fn found_ns(&self) -> Option<u64> {
        self.found_before_ns().or(self.adopted_ns).filter(|_| self.born_ns.is_none())
    }

    /// The time from which it is known to have existed.
    #[must_use]
    pub fn stood_from_ns(&self) -> Option<u64> {
        self.born_ns.or(self.found_ns())
    }

    #[must_use]
    pub fn label(&self) -> QueueLabel {
        QueueLabel { gpu_id: self.facts.gpu_id, queue_type: self.facts.queue_type }
    }

    /// `None` while no change of its priority is known.
    #[must_use]
    pub fn priority_change(&self) -> Option<PriorityChange> {
        self.rare.as_ref().and_then(|rare| rare.priority)
    }

    /// The priority that it was created with; `None` if that was not seen.
    #[must_use]
    pub fn created_priority(&self) -> Option<u32> {
        match self.priority_change() {
            Some(change) => change.created_with,
            None => self.facts.priority.filter(|_| self.born_ns.is_some()),
        }
    }

    /// What few queues have, to be changed and kept.
    pub(super) fn rare(&self) -> Rare {
        self.rare.as_deref().cloned().unwrap_or_default()
    }

    pub(super) fn keep(&mut self, rare: Rare) {
        self.rare = (rare != Rare::default()).then(|| Box::new(rare));
    }

    /// Its lifetime, or its age at `now_ns` if live; `None` if its creation was not seen.
    #[must_use]
    pub fn age_ns(&self, now_ns: u64) -> Option<u64> {
        let until = self.end.map_or(now_ns, |end| end.at_ns);
        self.born_ns.map(|born| until.saturating_sub(born))
    }
}

/// Outermost calls of the MQD functions, by function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<MqdOp, u64>", into = "BTreeMap<MqdOp, u64>")]
pub struct MqdWrites([u64; MqdOp::ALL.len()]);

impl MqdWrites {
    #[must_use]
    pub fn of(&self, op: MqdOp) -> u64 {
        self.0[op as usize]
    }

    pub(super) fn add(&mut self, op: MqdOp) {
        self.0[op as usize] += 1;
    }
}

/// By name: the functions of a later driver are more.
impl From<BTreeMap<MqdOp, u64>> for MqdWrites {
    fn from(counts: BTreeMap<MqdOp, u64>) -> Self {
        let mut writes = Self::default();
        counts.into_iter().for_each(|(op, count)| writes.0[op as usize] = count);
        writes
    }
}

impl From<MqdWrites> for BTreeMap<MqdOp, u64> {
    fn from(writes: MqdWrites) -> Self {
        let counts = MqdOp::ALL.iter().map(|op| (*op, writes.of(*op)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

impl<const N: usize> From<[(MqdOp, u64); N]> for MqdWrites {
    fn from(counts: [(MqdOp, u64); N]) -> Self {
        let mut writes = Self::default();
        counts.iter().for_each(|(op, count)| writes.0[*op as usize] += count);
        writes
    }
}

/// Transitions into and out of eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evictions {
    /// Observed evictions.
    pub count: u64,
    pub evicted: bool,
    /// Start of the current eviction; `None` if it is not evicted, or was found evicted.
    pub since_ns: Option<u64>,
    /// When it was found evicted, if the begin of the current eviction was not seen by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found_ns: Option<u64>,
    /// Time evicted, up to the last restore; what was before an eviction was found is excluded.
    pub total_ns: u64,
    /// Trigger of the last eviction; `None`: not seen.
    pub trigger: Option<Trigger>,
}

impl Evictions {
    /// Time evicted up to `now_ns`, nanoseconds.
    #[must_use]
    pub fn evicted_ns(&self, now_ns: u64) -> u64 {
        self.total_ns.saturating_add(self.lasts_ns(now_ns).unwrap_or(0))
    }

    /// For how long the current eviction has lasted: at least that, if its begin was not seen. Nanoseconds; `None`: it is not
    /// evicted.
    #[must_use]
    pub fn lasts_ns(&self, now_ns: u64) -> Option<u64> {
        self.found_ns.or(self.since_ns).map(|from_ns| now_ns.saturating_sub(from_ns))
    }

    /// False if its begin was already reported. An eviction that was only found gets its begin now: the
    /// driver's function is recorded when it ends, and other sources may show its effect earlier.
    pub(super) fn begin(&mut self, at_ns: u64, trigger: Option<Trigger>) -> bool {
        if self.evicted && self.since_ns.is_some() {
            return false;
        }
        *self = Self { count: self.count + 1, evicted: true, since_ns: Some(at_ns), trigger, ..*self };
        true
    }

    /// How long the eviction lasted, if known.
    pub(super) fn end(&mut self, at_ns: u64) -> Option<u64> {
        let lasted = self.since_ns.map(|since| at_ns.saturating_sub(since));
        self.total_ns = self.evicted_ns(at_ns);
        (self.evicted, self.since_ns, self.found_ns) = (false, None, None);
        lasted
    }

    /// It was found evicted: begin and trigger are unknown. Or it was found not to be: a restore was missed, and since the
    /// time up to now has been shown as evicted, it counts. A counter must not fall.
    pub(super) fn found(&mut self, evicted: bool, at_ns: u64) {
        match (self.evicted, evicted) {
            (false, true) => {
                *self = Self { evicted, since_ns: None, found_ns: Some(at_ns), trigger: None, ..*self };
            }
            (true, false) => {
                self.end(at_ns);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::samples::facts;

    #[test]
    fn age_ends_with_the_queue_and_is_unknown_without_a_birth() {
        let mut queue = Queue::born(1, &facts(1), 100);
        assert_eq!(queue.age_ns(350), Some(250));
        queue.end = Some(QueueEnd { at_ns: 200, cause: Cause::Ioctl });
        assert_eq!(queue.age_ns(350), Some(100));
        assert_eq!(Queue::standing(1, &facts(1), Source::Sysfs, 5).age_ns(350), None);
    }
}
