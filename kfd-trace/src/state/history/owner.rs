//! Identity of a process, shared by its entries.

use crate::model::event::ProcessId;
use crate::state::labels::RowVersion;
use crate::state::process::{Process, ProcessDetails, ProcessKey};
use crate::state::source::Sources;

/// The row, and the tgid. A DRM user queue has only a caller, no KFD process.
pub(super) type OwnerKey = (Option<ProcessKey>, Option<u32>);

/// A key as numbers, which are compared at once: it is looked up three times for each entry.
pub(super) fn packed((process, tgid): OwnerKey) -> (u64, u64) {
    let (number, kind) = match process {
        None => (0, 0),
        Some(ProcessKey::Traced(ProcessId(number))) => (number, 1),
        Some(ProcessKey::Adopted(number)) => (number, 2),
    };
    let tgid = tgid.map_or(0, |tgid| 1 << 32 | u64::from(tgid));
    (number, kind << 33 | tgid)
}

/// Identity of a process. Its arguments are not kept: they are long and may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    key: OwnerKey,
    /// The row that it was made from.
    version: RowVersion,
    pub ns_pid: Option<u32>,
    pub uid: Option<u32>,
    pub comm: Option<Box<str>>,
    /// Where it belonged. `cgroup` is only the last path component if just the kernel reported it.
    pub details: ProcessDetails,
    /// Context id of a secondary context of its PID (7.2); `None` for the first one.
    pub context_id: Option<u32>,
    /// CLOCK_BOOTTIME, nanoseconds.
    pub start_boottime_ns: Option<u64>,
}

impl Owner {
    pub(super) fn new(key: OwnerKey, row: Option<&Process>, comm: Option<&str>) -> Self {
        let text = |text: Option<&str>| text.map(Into::into);
        Owner {
            key,
            version: row.map(|row| row.labels.version()).unwrap_or_default(),
            ns_pid: row.and_then(|row| row.ns_tgid),
            uid: row.and_then(|row| row.uid),
            comm: text(row.and_then(|row| row.comm.as_deref()).or(comm)),
            details: row
                .map(|row| ProcessDetails { cmdline: None, ..row.known_details() })
                .unwrap_or_default(),
            context_id: row.and_then(|row| row.context_id),
            start_boottime_ns: row.and_then(|row| row.start_boottime_ns),
        }
    }

    /// True if row and comm add nothing new.
    pub(super) fn is(&self, row: Option<&Process>, comm: Option<&str>) -> bool {
        // A forgotten row adds nothing.
        let Some(row) = row else { return comm.is_none() || self.comm.as_deref() == comm };
        let is = self.version.is_of(&row.labels) && (row.comm.is_some() || self.comm.as_deref() == comm);
        debug_assert!(
            !is || *self == Owner::new(self.key, Some(row), comm),
            "a change of the row forgets its labels"
        );
        is
    }

    pub(super) fn key(&self) -> OwnerKey {
        self.key
    }

    /// tgid in the initial PID namespace.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.key.1
    }

    /// The process number that the BPF side assigned.
    #[must_use]
    pub fn id(&self) -> Option<ProcessId> {
        match self.key.0 {
            Some(ProcessKey::Traced(id)) => Some(id),
            Some(ProcessKey::Adopted(_)) | None => None,
        }
    }

    /// Bytes, allocator overhead included.
    pub(super) fn bytes(&self) -> usize {
        let ProcessDetails { cmdline: _, cgroup, belongs, pod, container_name, job } = &self.details;
        let names = pod.iter().flat_map(|pod| [Some(&pod.namespace), Some(&pod.pod), pod.container.as_ref()]);
        let job = job.iter().flat_map(|job| [job.account.as_ref(), job.partition.as_ref()]);
        let texts = [
            cgroup.as_ref(),
            belongs.container.as_ref().map(|container| &container.id),
            belongs.pod_uid.as_ref(),
            belongs.slurm.as_ref().and_then(|slurm| slurm.step.as_ref()),
            belongs.unit.as_ref(),
            container_name.as_ref(),
        ];
        let texts = texts
            .into_iter()
            .chain(names)
            .chain(job)
            .flatten()
            .map(String::len)
            .chain(self.comm.as_ref().map(|comm| comm.len()));
        size_of::<Owner>() + 32 + RowVersion::HEAP + texts.map(|len| len + 16).sum::<usize>()
    }

    /// As a row, for outputs that show events.
    #[must_use]
    pub fn row(&self) -> Process {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let key = self.key.0.unwrap_or(ProcessKey::Adopted(0));
        Process {
            ns_tgid: self.ns_pid,
            uid: self.uid,
            comm: text(&self.comm),
            context_id: self.context_id,
            start_boottime_ns: self.start_boottime_ns,
            details: self.details.clone(),
            ..Process::new(key, self.pid(), Sources::default(), 0)
        }
    }
}
