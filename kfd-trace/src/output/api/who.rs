//! Identity of a process, live or ended: the first fields of every row about one.

use crate::output::belongs::BelongsFields;
use crate::state::{Entry, Process};
use serde::Serialize;

#[derive(Serialize)]
pub(in crate::output) struct Who<'a> {
    pub(in crate::output) pid: Option<u32>,
    ns_pid: Option<u32>,
    uid: Option<u32>,
    pub(in crate::output) comm: Option<&'a str>,
    cgroup: Option<&'a str>,
    #[serde(flatten)]
    pub(in crate::output) belongs: BelongsFields<'a>,
    pub(in crate::output) kfd_process: Option<String>,
    context_id: Option<u32>,
}

impl<'a> From<&'a Process> for Who<'a> {
    fn from(process: &'a Process) -> Self {
        Who {
            pid: process.tgid,
            ns_pid: process.ns_tgid,
            uid: process.uid,
            comm: process.comm.as_deref(),
            cgroup: process.cgroup(),
            belongs: BelongsFields::from(&process.details),
            kfd_process: process.id().map(|id| id.0.to_string()),
            context_id: process.context_id,
        }
    }
}

/// The owner, as of the event.
impl<'a> From<&'a Entry> for Who<'a> {
    fn from(entry: &'a Entry) -> Self {
        let owner = entry.owner.as_deref();
        Who {
            pid: entry.pid(),
            ns_pid: owner.and_then(|owner| owner.ns_pid),
            uid: owner.and_then(|owner| owner.uid),
            comm: owner.and_then(|owner| owner.comm.as_deref()),
            cgroup: owner.and_then(|owner| owner.details.cgroup.as_deref()),
            belongs: owner.map(|owner| BelongsFields::from(&owner.details)).unwrap_or_default(),
            kfd_process: entry.process().map(|id| id.0.to_string()),
            context_id: owner.and_then(|owner| owner.context_id),
        }
    }
}
