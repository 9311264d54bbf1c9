//! One KFD process and its queues.

use super::activity::Works;
use super::labels::KeptLabels;
use super::memory::Memory;
use super::pairs;
use super::queue::{Evictions, MqdWrites, Queue};
use super::schedules::Preempts;
use super::source::Sources;
use crate::attribute::{Belongs, PodNames, SlurmJob, belongs};
use crate::model::event::{ProcessId, ProcessSeen};
use crate::model::inventory::Place;
use crate::model::queue::is_of_runtime;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Start times from /proc are truncated to ticks of 10 ms: a difference below this value is the same
/// start.
const START_TOLERANCE_NS: u64 = 20_000_000;

/// Key of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKey {
    /// Seen by a probe.
    Traced(ProcessId),
    /// Found as an existing process and not yet seen by a probe; numbered by the state.
    Adopted(u64),
}

impl From<ProcessId> for ProcessKey {
    fn from(id: ProcessId) -> Self {
        ProcessKey::Traced(id)
    }
}

/// What /proc reports for a process. `None`: not read, or the process exited first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDetails {
    /// Arguments, separated by spaces, if requested. May hold secrets: no metric carries it.
    pub cmdline: Option<String>,
    /// Path in the cgroup v2 hierarchy, or the deepest v1 path.
    pub cgroup: Option<String>,
    /// Derived from its cgroup paths; before they are read, from the last component of one.
    pub belongs: Belongs,
    /// Names of its pod.
    pub pod: Option<PodNames>,
    /// Name of its container, outside of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Account and partition of its Slurm job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<SlurmJob>,
}

impl ProcessDetails {
    /// Name of its container, in its pod or as its engine has it.
    #[must_use]
    pub fn container_name(&self) -> Option<&str> {
        let in_pod = self.pod.as_ref().and_then(|names| names.container.as_deref());
        in_pod.or(self.container_name.as_deref())
    }
}

/// One `struct kfd_process`. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub key: ProcessKey,
    /// In the initial PID namespace.
    pub tgid: Option<u32>,
    pub start_boottime_ns: Option<u64>,
    pub ns_tgid: Option<u32>,
    pub uid: Option<u32>,
    pub comm: Option<String>,
    pub cgroup_leaf: Option<String>,
    /// Which of its PID's contexts it is (7.2); `None` for the first one.
    pub context_id: Option<u32>,
    pub details: ProcessDetails,
    /// Follows from the fields above and `key`, as the history's owners do: whoever changes one of these forgets it.
    #[serde(skip)]
    pub labels: KeptLabels,
    pub sources: Sources,
    /// It existed before the tracer.
    pub standing: bool,
    /// The record that identifies the process was lost: the row is made from another record's header.
    pub seen_lost: bool,
    pub first_seen_ns: u64,
    pub last_event_ns: u64,
    /// When its creation was seen; `None` if it was not.
    pub created_ns: Option<u64>,
    /// When its address space was released.
    pub mm_released_ns: Option<u64>,
    /// When the driver freed it, or when it was found to have ended.
    pub released_ns: Option<u64>,
    /// Successful opens of /dev/kfd since the tracer began.
    pub opens: u64,
    pub failed_opens: u64,
    /// Open files whose last reference was dropped.
    pub closes: u64,
    /// By gpu_id.
    pub evictions: BTreeMap<u32, Evictions>,
    /// Of the whole process: evicted from at least one GPU.
    pub evicted: Evictions,
    /// By gpu_id; `None` where it could not be read.
    #[serde(with = "pairs")]
    pub vm_faults: BTreeMap<Option<u32>, u64>,
    #[serde(with = "pairs")]
    pub works: Works,
    /// By gpu_id; only where preemptions are requested.
    pub preempts: BTreeMap<u32, Preempts>,
    #[serde(default)]
    pub memory: Memory,
    /// MQD writes of queues whose creation is not yet reported, by queue id.
    pub(super) mqd_of_unborn: BTreeMap<u32, MqdWrites>,
    /// Live queues by id.
    pub queues: BTreeMap<u32, Queue>,
    /// When the last queue of each id ended; ids are few and reused.
    pub(super) last_ends: BTreeMap<u32, u64>,
    /// The last queues that ended, oldest first.
    pub(super) ended_queues: VecDeque<Queue>,
}

impl Process {
    pub(super) fn new(key: ProcessKey, tgid: Option<u32>, sources: Sources, at_ns: u64) -> Self {
        Self {
            key,
            tgid,
            start_boottime_ns: None,
            ns_tgid: None,
            uid: None,
            comm: None,
            cgroup_leaf: None,
            context_id: None,
            details: ProcessDetails::default(),
            labels: KeptLabels::default(),
            sources,
            standing: false,
            seen_lost: false,
            first_seen_ns: at_ns,
            last_event_ns: at_ns,
            created_ns: None,
            mm_released_ns: None,
            released_ns: None,
            opens: 0,
            failed_opens: 0,
            closes: 0,
            evictions: BTreeMap::new(),
            evicted: Evictions::default(),
            vm_faults: BTreeMap::new(),
            works: Works::new(),
            preempts: BTreeMap::new(),
            memory: Memory::default(),
            mqd_of_unborn: BTreeMap::new(),
            queues: BTreeMap::new(),
            last_ends: BTreeMap::new(),
            ended_queues: VecDeque::new(),
        }
    }

    /// [`is_of_runtime`] of one of its live queues.
    #[must_use]
    pub fn is_of_runtime(&self, queue: &Queue) -> Option<bool> {
        is_of_runtime(&queue.facts, self.queues.values().map(|queue| &queue.facts))
    }

    /// Everything that it allocated was seen: its sums are all that it holds, but for SVM. `None` where no such call was
    /// seen: there was none, or they are not traced.
    #[must_use]
    pub fn memory_is_whole(&self) -> Option<bool> {
        self.memory.sees_all().map(|sees_all| sees_all && self.created_ns.is_some())
    }

    /// A copy for the outputs, without what only the rules use: that is most of the row of a process that had
    /// many queues.
    pub(super) fn shown(&self) -> Self {
        Self {
            comm: self.comm.clone(),
            cgroup_leaf: self.cgroup_leaf.clone(),
            details: self.details.clone(),
            labels: self.labels.clone(),
            evictions: self.evictions.clone(),
            vm_faults: self.vm_faults.clone(),
            works: self.works.clone(),
            preempts: self.preempts.clone(),
            memory: self.memory.clone(),
            queues: self.queues.clone(),
            mqd_of_unborn: BTreeMap::new(),
            last_ends: BTreeMap::new(),
            ended_queues: VecDeque::new(),
            ..*self
        }
    }

    /// The process number that the BPF side assigned; `None` if no probe has seen the process.
    #[must_use]
    pub fn id(&self) -> Option<ProcessId> {
        match self.key {
            ProcessKey::Traced(id) => Some(id),
            ProcessKey::Adopted(_) => None,
        }
    }

    /// Whether it has a live queue on this GPU. An eviction where it has none takes nothing from it.
    #[must_use]
    pub fn has_queue_on(&self, gpu_id: u32) -> bool {
        self.queues.values().any(|queue| queue.facts.gpu_id == Some(gpu_id))
    }

    /// `None` where its tgid could not be read.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.tgid.map(|tgid| (tgid, self.context_id))
    }

    #[must_use]
    pub fn alive(&self) -> bool {
        self.released_ns.is_none()
    }

    /// It is leaving the driver's lists and its release will be reported: its address space was released, or
    /// it is a secondary context (7.2) whose file was closed (`kfd_release` takes the same path as
    /// `kfd_process_notifier_release`, but passes no probe of it).
    pub(super) fn dying(&self) -> bool {
        self.mm_released_ns.is_some() || self.closed()
    }

    /// A secondary context has one file, and ends with it.
    pub(super) fn closed(&self) -> bool {
        self.context_id.is_some() && self.closes > 0
    }

    /// Sets the last component of its cgroup path, if reported.
    pub(super) fn take_leaf(&mut self, leaf: Option<String>) {
        let Some(leaf) = leaf else { return };
        if self.details.cgroup.is_none() {
            self.details.belongs = belongs([leaf.as_str()]);
        }
        self.cgroup_leaf = Some(leaf);
        self.labels.forget();
    }

    /// Its cgroup path; its last component only if procfs did not report the path.
    #[must_use]
    pub fn cgroup(&self) -> Option<&str> {
        self.details.cgroup.as_deref().or(self.cgroup_leaf.as_deref())
    }

    /// Its details, with the cgroup from [`Process::cgroup`].
    #[must_use]
    pub fn known_details(&self) -> ProcessDetails {
        ProcessDetails { cgroup: self.cgroup().map(str::to_owned), ..self.details.clone() }
    }

    /// What the kernel reported at first sight overrides what was read before.
    pub(super) fn seen(&mut self, seen: &ProcessSeen, at_ns: u64) {
        self.start_boottime_ns = seen.start_boottime_ns.or(self.start_boottime_ns);
        self.ns_tgid = seen.ns_tgid.or(self.ns_tgid);
        self.uid = seen.uid.or(self.uid);
        self.comm = seen.comm.clone().or_else(|| self.comm.take());
        self.take_leaf(seen.cgroup_leaf.clone());
        self.labels.forget();
        self.context_id = seen.context_id;
        self.seen_lost = false;
        self.standing = seen.standing;
        self.created_ns = if seen.standing { None } else { Some(at_ns) };
    }

    /// Whether a start time from another source can be this process's.
    pub(super) fn same_start(&self, other: Option<u64>) -> bool {
        match (self.start_boottime_ns, other) {
            (Some(own), Some(other)) => own.abs_diff(other) < START_TOLERANCE_NS,
            _ => true,
        }
    }
}
